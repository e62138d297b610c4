/* A canonical form of JSON, by which texts that say the same are recognised. */
#ifndef TD_CORE_JSON_CANONICAL_H
#define TD_CORE_JSON_CANONICAL_H

#include "core/json.h"
#include "core/text.h"

/* Appends text[0..len), one JSON value, to out in canonical form: no insignificant blanks, the members of every object
 * sorted by the bytes of their names as they are written, with the closing quote (so "a!" comes before "a", since '!'
 * comes before '"'), every string escaped as td_json_write_string does. Numbers keep their spelling; members of one
 * name keep their order. Takes memory for the text about three times and 32 bytes for each member, and time for its
 * length at each level of nesting (at most TD_JSON_MAX_DEPTH). Returns false, and out is then rubbish, when the text is
 * not JSON (TD_INVALID_ARGUMENT with the position), when a string holds an escaped NUL, or when memory is short
 * (TD_RESOURCE_EXHAUSTED). */
bool td_json_canonical(struct td_text text, struct td_buffer *out, struct td_error *err);

#endif
