/* Tensors of a pickled object graph: strided, quantised, sparse, nested, NumPy's, bare storages. Only for torch_walk.c.
 */
#ifndef TD_PARSER_TORCH_TORCH_TENSOR_H
#define TD_PARSER_TORCH_TORCH_TENSOR_H

#include "parser/pickle/pickle.h"
#include "parser/torch/torch_walker.h"

#include <stdbool.h>

/* Lists the tensor that this object stands for under the present path. Sets *done to false when the object is no
 * tensor.
 */
bool td_torch_read_tensor(struct td_torch_walker *w, td_pickle_ref ref, bool *done);

/* Lists a storage that was saved by itself as a tensor of one dimension. */
bool td_torch_read_bare_storage(struct td_torch_walker *w, td_pickle_ref ref);

#endif
