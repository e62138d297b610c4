/* Glob patterns over names. `*` matches any text and `?` any character, '/' and '.' included. `[abc]`, `[a-z]`, `[!a]`
 * and `[^a]` match one character of a set. `\` quotes the next character, but stands for itself within a set. A `[`
 * without a `]` stands for itself. A character is a UTF-8 sequence, or one byte that is not UTF-8. */
#ifndef TD_CORE_GLOB_H
#define TD_CORE_GLOB_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns whether the pattern matches the whole text; upper and lower case differ. Takes time proportional to
 * pattern.len * text.len at most. */
bool td_glob_match(struct td_text pattern, struct td_text text);

#endif
