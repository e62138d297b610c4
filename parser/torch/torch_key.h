/* Keys of dictionaries as parts of tensor names. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_KEY_H
#define TD_PARSER_TORCH_TORCH_KEY_H

#include "core/buffer.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends a key as Python's str() shows it: a text, an int of 64 bits, a float, True, None, or a tuple of these, in
 * which strings are in quotes (only strings of at most 256 bytes that need no escapes there). Text that is not UTF-8,
 * and bytes, are escaped. Returns false, and appends nothing, for any other key. Stops once `out` holds more than
 * max_bytes; it then has a part of the key. Takes time for each byte written and for each item of a tuple. */
bool td_torch_write_key(const struct td_pickle *pickle, td_pickle_ref key, size_t max_bytes, struct td_buffer *out);

#endif
