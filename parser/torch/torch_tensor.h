/* Tensors of an object graph: strided, quantised, sparse, nested, NumPy's, bare storages. What torch_tensor.c (a
 * tensor's members) and torch_walk.c (the graph, names) share; for these two only. */
#ifndef TD_PARSER_TORCH_TENSOR_H
#define TD_PARSER_TORCH_TENSOR_H

#include "core/buffer.h"
#include "parser/manifest.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_storage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_torch_frame; /* torch_walk.c's */

struct td_torch_walker {
    struct td_pickle *pickle;
    const struct td_torch_places *places;
    struct td_manifest *manifest;
    struct td_buffer path;
    struct td_torch_frame *frames;
    size_t depth, frame_capacity;
    size_t tensor_capacity, metadata_capacity;
    size_t omitted; /* metadata entries past the limit */
    unsigned parts_depth;
    uint64_t visits_left;
    size_t memory_max; /* of the manifest's arena */
    struct td_error *err;
};

/* ---- torch_tensor.c ---- */

/* Lists the tensor that this object stands for under the present path; *done is false when it is none. */
bool td_torch_read_tensor(struct td_torch_walker *w, td_pickle_ref ref, bool *done);

/* A storage that was saved by itself: a tensor of one dimension. */
bool td_torch_read_bare_storage(struct td_torch_walker *w, td_pickle_ref ref);

/* ---- torch_walk.c ---- */

/* A new tensor with the present path as its name; NULL when out of memory, which is reported. It moves when the next
 * one is added. */
struct td_tensor *td_torch_add_tensor(struct td_torch_walker *w);

/* Walks all of a part at once, under the present path with ".name": the next part's name takes its place. NIL is
 * nothing. */
bool td_torch_visit_part(struct td_torch_walker *w, td_pickle_ref ref, const char *name);

#endif
