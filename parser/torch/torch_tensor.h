/* Tensors of a pickled object graph: strided, quantised, sparse, nested, NumPy's, bare storages. Only for torch_walk.c.
 */
#ifndef TD_PARSER_TORCH_TORCH_TENSOR_H
#define TD_PARSER_TORCH_TORCH_TENSOR_H

#include "core/buffer.h"
#include "parser/format/manifest.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_storage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_torch_frame; /* in torch_walk.c */
struct td_torch_walker;

/* Walks all of a part at once, under the present path with ".name" after it, which is removed afterwards. NIL lists
 * nothing. */
typedef bool td_torch_part_fn(struct td_torch_walker *w, td_pickle_ref ref, const char *name);

/* The state of a walk over a pickled object graph. torch_walk.c walks; torch_tensor.c reads the tensors that the walk
 * meets. */
struct td_torch_walker {
    struct td_pickle *pickle;
    const struct td_torch_places *places;
    struct td_manifest *manifest;
    td_torch_part_fn *visit_part; /* a tensor's parts are walked in their turn: torch_tensor.c calls back */
    struct td_buffer path;        /* the names down to the present value, joined by dots */
    struct td_torch_frame *frames;
    size_t depth, frame_capacity;
    size_t tensor_capacity, metadata_capacity;
    size_t omitted; /* metadata entries past the limit */
    unsigned parts_depth;
    uint64_t visits_left;
    size_t memory_max; /* of the manifest's arena */
    struct td_error *err;
};

/* Returns a copy of the present path in the manifest's arena, terminated; NULL and an error when out of memory. */
const char *td_torch_copy_path(struct td_torch_walker *w);

/* Lists the tensor that this object stands for under the present path. Sets *done to false when the object is no
 * tensor. */
bool td_torch_read_tensor(struct td_torch_walker *w, td_pickle_ref ref, bool *done);

/* Lists a storage that was saved by itself as a tensor of one dimension. */
bool td_torch_read_bare_storage(struct td_torch_walker *w, td_pickle_ref ref);

#endif
