/* Values of a pickle as JSON: the metadata beside the tensors of a checkpoint. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_METADATA_H
#define TD_PARSER_TORCH_TORCH_METADATA_H

#include "core/buffer.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
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

#endif
