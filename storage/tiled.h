/* Arrays that lie in pieces: a generated blob that puts together the boxes of a grid, each row-major in a place of its
 * own, as distributed checkpoints store them. */
#ifndef TD_STORAGE_TILED_H
#define TD_STORAGE_TILED_H

#include "storage/blob.h"

enum { TD_TILED_MAX_RANK = 64 };

/* One box: elements starts[i] to starts[i] + sizes[i] of each dimension i. */
struct td_tile {
    struct td_blob *source;
    uint64_t off; /* of its first element in source, bytes */
    const uint64_t *starts, *sizes;
};

/* Whether the boxes fill an array of this shape exactly: the cells of a grid, each once, in any order. The sources may
 * be NULL here. Errors: TD_INVALID_ARGUMENT when they do not, TD_RESOURCE_EXHAUSTED. */
bool td_tiles_check(const struct td_tile *tiles, size_t count, uint32_t rank, const uint64_t *shape,
                    struct td_error *err);

/* A blob of product(shape) * elem_bytes bytes, elements in row-major order. One reference for the caller; holds one on
 * every source and changes when one of them does. Errors as td_tiles_check, and TD_INTERNAL when a tile would leave its
 * source. */
bool td_blob_tiled(const struct td_tile *tiles, size_t count, uint32_t elem_bytes, uint32_t rank,
                   const uint64_t *shape, struct td_blob **out, struct td_error *err);

#endif
