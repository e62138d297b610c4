/* "Did you mean": finds the known word that a mistyped word was probably meant to be. */
#ifndef TD_SERVER_CONFIG_SUGGEST_H
#define TD_SERVER_CONFIG_SUGGEST_H

#include "core/text.h"

#include <stddef.h>

enum { TD_SUGGEST_BYTES = 96 };

/* Returns the word of `known` (a list that NULL ends) that is nearest to `word`, or NULL when none is near. A known
 * word is near if at most a third of the letters of `word` (at least one, at most three) are wrong, missing, too many
 * or swapped, or if it begins with `word` and `word` has two letters or more. Words of more than 40 bytes are never
 * near to another, which bounds the work. */
const char *td_suggest_nearest(struct td_text word, const char *const *known);

/* Writes " (did you mean PREFIXword?)" to `out` when a known word is near, else an empty text. Dashes in front of the
 * word, and the text from "=" on, are ignored; a word that is already right is not suggested. */
void td_suggest(const char *word, const char *prefix, const char *const *known, char out[TD_SUGGEST_BYTES]);

#endif
