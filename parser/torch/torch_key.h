/* Keys of dictionaries as parts of names. Internal to the torch readers. */
#ifndef TD_PARSER_TORCH_KEY_H
#define TD_PARSER_TORCH_KEY_H

#include "core/buffer.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends a key as Python's str() shows it: text, an int of 64 bits, a float, True, None, and a tuple of these, its
 * strings in quotes (short ones that need no escapes there). Text that is not UTF-8, and bytes, are escaped. False for
 * any other key, and nothing is appended. Stops once `out` holds more than max_bytes: a part of the key, then. Takes
 * time for each byte that it writes and for each item of a tuple. */
bool td_torch_write_key(const struct td_pickle *pickle, td_pickle_ref key, size_t max_bytes, struct td_buffer *out);

#endif
