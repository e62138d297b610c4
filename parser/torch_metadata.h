/* Values of a pickle as JSON: what stands beside the tensors of a checkpoint. Internal to the torch readers. */
#ifndef TD_PARSER_TORCH_METADATA_H
#define TD_PARSER_TORCH_METADATA_H

#include "core/buffer.h"
#include "parser/pickle.h"

#include <stdbool.h>

/* A LIST or TUPLE. */
bool td_torch_is_array(const struct td_pickle *pickle, td_pickle_ref ref);

/* Writes a value without parts (a number of NumPy's too), or a list or tuple of such; long ones are cut and their length
 * is said. False for any other value, and the buffer then holds anything. */
bool td_torch_write_metadata(const struct td_pickle *pickle, td_pickle_ref ref, struct td_buffer *out);

#endif
