/* The merge key of YAML 1.1 (https://yaml.org/type/merge.html) on JSON: {"a": 1, "<<": {"a": 2, "b": 3}} becomes
 * {"a": 1, "b": 3}. */
#ifndef TD_PARSER_CARD_MERGE_H
#define TD_PARSER_CARD_MERGE_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>

/* Appends to *out the object with the members of `object` but "<<", and those members of the value of "<<", an object
 * or an array of objects, whose keys come in none before. `object` is JSON without blanks, as this program writes it,
 * with keys that differ. The work is that of sorting the members. Errors: TD_INVALID_ARGUMENT when the value is
 * neither, TD_RESOURCE_EXHAUSTED. */
bool td_card_merge(struct td_text object, struct td_buffer *out, struct td_error *err);

#endif
