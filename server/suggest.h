/* "Did you mean": the known word that a mistyped one is nearest to. */
#ifndef TD_SERVER_SUGGEST_H
#define TD_SERVER_SUGGEST_H

#include "core/text.h"

#include <stddef.h>

enum { TD_SUGGEST_BYTES = 96 };

/* Returns the known word (of a list that NULL ends) that a mistyped one is nearest to, or NULL when none is
 * near, as described below. */
const char *td_suggest_nearest(struct td_text word, const char *const *known);

/* Writes " (did you mean PREFIXword?)" to out when one of the known words (NULL-terminated) is near, else an empty
 * text. Near is: few letters are wrong, missing, too many or swapped; or the known word begins with the given one.
 * Dashes in front of the given word do not count, but a word that is already right with them is not suggested again.
 * Words beyond 40 bytes are near to nothing, which bounds the work. */
void td_suggest(const char *word, const char *prefix, const char *const *known, char out[TD_SUGGEST_BYTES]);

#endif
