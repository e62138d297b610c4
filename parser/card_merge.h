/* The merge key of YAML 1.1 (https://yaml.org/type/merge.html) on JSON: {"a": 1, "<<": {"a": 2, "b": 3}} becomes
 * {"a": 1, "b": 3}. */
#ifndef TD_PARSER_CARD_MERGE_H
#define TD_PARSER_CARD_MERGE_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>

/* Appends an object to *out: the members of `object` except "<<", then the members of the value of "<<", which is an
 * object or an array of objects. Leaves out a member whose key occurred before. `object` must be JSON without blanks,
 * as this program writes it, with distinct keys. Takes the time of sorting the members. Errors: TD_INVALID_ARGUMENT
 * when the value of "<<" is neither, TD_RESOURCE_EXHAUSTED. */
bool td_card_merge(struct td_text object, struct td_buffer *out, struct td_error *err);

#endif
