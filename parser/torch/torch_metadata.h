/* Values of a pickle as JSON: what stands beside the tensors of a checkpoint. Internal to the torch readers. */
#ifndef TD_PARSER_TORCH_METADATA_H
#define TD_PARSER_TORCH_METADATA_H

#include "core/buffer.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
#include <stdint.h>

/* A LIST, TUPLE, SET or FROZENSET. */
bool td_torch_is_array(const struct td_pickle *pickle, td_pickle_ref ref);

/* How many bytes of text td_torch_write_metadata reads beyond what it writes, at most. */
uint64_t td_torch_metadata_bytes(const struct td_pickle *pickle, td_pickle_ref ref);

/* Writes a value without parts (a number of NumPy's, bytes, a torch.device or torch.dtype too), or an array of such;
 * long ones are cut and their length is said. False for any other value, and the buffer then holds anything. */
bool td_torch_write_metadata(const struct td_pickle *pickle, td_pickle_ref ref, struct td_buffer *out);

#endif
