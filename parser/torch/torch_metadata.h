/* Values of a pickle as JSON, the metadata beside the tensors of a checkpoint, and keys of dictionaries as parts of
 * tensor names. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_METADATA_H
#define TD_PARSER_TORCH_TORCH_METADATA_H

#include "core/buffer.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether the value is a LIST, TUPLE, SET or FROZENSET; false for TD_PICKLE_NIL. */
bool td_torch_is_array(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns how many bytes td_torch_write_metadata reads to their end, although it writes only their beginning: bytes
 * that old protocols spell as text have to be counted character by character. The caller limits the work by this
 * number. */
uint64_t td_torch_metadata_bytes(const struct td_pickle *pickle, td_pickle_ref ref);

/* Appends a value without parts, or an array of 1 or more such values, as JSON. Values without parts: None, a bool, a
 * number, a NumPy number, a text, bytes, a torch.device, a torch.dtype. Texts of more than 1,000 bytes and arrays of
 * more than 64 items are cut: {"length":N,"first":...}. An integer of more than 512 bits becomes {"reason":...}; text
 * that is not UTF-8 is escaped by td_utf8_escape. Returns false for any other value; the appended text is then
 * undefined. out->failed is set when memory is short. */
bool td_torch_write_metadata(const struct td_pickle *pickle, td_pickle_ref ref, struct td_buffer *out);

/* Appends a key as Python's str() shows it: a text, an int of 64 bits, a float, True, None, or a tuple of these, in
 * which strings are in quotes (only strings of at most 256 bytes that need no escapes there). Text that is not UTF-8,
 * and bytes, are escaped. Returns false, and appends nothing, for any other key. Stops once `out` holds more than
 * max_bytes; it then has a part of the key. Takes time for each byte written and for each item of a tuple. */
bool td_torch_write_key(const struct td_pickle *pickle, td_pickle_ref key, size_t max_bytes, struct td_buffer *out);

#endif
