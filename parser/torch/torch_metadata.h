/* Values of a pickle as JSON: the metadata beside the tensors of a checkpoint. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_METADATA_H
#define TD_PARSER_TORCH_METADATA_H

#include "core/buffer.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the value is a LIST, TUPLE, SET or FROZENSET. */
bool td_torch_is_array(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns the most bytes of text that td_torch_write_metadata reads beyond those that it writes. */
uint64_t td_torch_metadata_bytes(const struct td_pickle *pickle, td_pickle_ref ref);

/* Writes a value without parts, or an array of such values. Values without parts include a NumPy number, bytes, a
 * torch.device and a torch.dtype. Texts of more than 1,000 bytes and arrays of more than 64 items are cut:
 * {"length":N,"first":...}. Returns false for any other value; the contents of the buffer are then undefined. */
bool td_torch_write_metadata(const struct td_pickle *pickle, td_pickle_ref ref, struct td_buffer *out);

#endif
