/* A canonical form of JSON: texts with the same meaning have the same form. */
#ifndef TD_CORE_JSON_JSON_CANONICAL_H
#define TD_CORE_JSON_JSON_CANONICAL_H

#include "core/json/json.h"
#include "core/text.h"

/* Appends the text, one JSON value, to out in canonical form:
 *   - no insignificant whitespace;
 *   - every string escaped as td_json_write_string does;
 *   - the members of every object sorted by the bytes of their names as written, closing quote included ("a!" comes
 *     before "a", because '!' is less than '"'); members of equal names keep their order;
 *   - numbers spelled as in the text.
 * Takes memory for about three times the text and 32 bytes for each member, and time proportional to the length times
 * the depth of nesting (at most TD_JSON_MAX_DEPTH). Errors (the contents of out are then undefined):
 * TD_INVALID_ARGUMENT with the position when the text is not JSON or a string holds an escaped NUL,
 * TD_RESOURCE_EXHAUSTED. */
bool td_json_canonical(struct td_text text, struct td_buffer *out, struct td_error *err);

#endif
