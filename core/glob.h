/* Globs over names: `*` and `?` match any characters, '/' and '.' too; `[abc]`, `[a-z]`, `[!a]`; `\` quotes,
 * but in a set it is itself. A `[` without its `]` is itself.
 * Bytewise except that `?` and a set take one whole UTF-8 character's bytes. Time is at most pattern x text. */
#ifndef TD_CORE_GLOB_H
#define TD_CORE_GLOB_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

bool td_glob_match(struct td_text pattern, struct td_text text);

#endif
