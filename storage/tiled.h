/* Arrays that lie in pieces, as distributed checkpoints store them: the boxes of a grid, each row-major in a place of
 * its own. Which box lies where is a grid: pure numbers, checked once and shared. A generated blob over a grid and its
 * files puts the pieces together. */
#ifndef TD_STORAGE_TILED_H
#define TD_STORAGE_TILED_H

#include "storage/blob.h"

enum { TD_TILED_MAX_RANK = 64 };

/* One box: elements starts[i] to starts[i] + sizes[i] of each dimension i. */
struct td_tile {
    uint32_t part;                  /* in which file it lies, by the caller's own numbers */
    uint64_t off;                   /* of its first element there, bytes */
    const uint64_t *starts, *sizes; /* NULL when rank is 0 */
};

/* Immutable, so any thread may use it. */
struct td_grid;

/* The boxes must fill an array of this shape exactly: the cells of a grid, each once, in any order. Nothing of the
 * tiles is kept by pointer. One reference for the caller. Errors: TD_INVALID_ARGUMENT when they do not, or when the
 * array has more than 2^64-1 bytes; TD_RESOURCE_EXHAUSTED. Time: rank * count, times log count where starts come out of
 * order. */
bool td_grid_create(const struct td_tile *tiles, size_t count, uint32_t elem_bytes, uint32_t rank,
                    const uint64_t *shape, struct td_grid **out, struct td_error *err);
struct td_grid *td_grid_ref(struct td_grid *grid);
void td_grid_unref(struct td_grid *grid); /* NULL is fine */

/* What a grid of so many boxes takes at most. */
uint64_t td_grid_memory_bytes(uint32_t count, uint32_t rank);

/* The parts in which its boxes lie, each once, in ascending order. */
const uint32_t *td_grid_parts(const struct td_grid *grid, size_t *count);

/* A blob of product(shape) * elem_bytes bytes, elements in row-major order; sources[i] is the whole of the grid's i-th
 * part. One reference for the caller; holds one on the grid and on every source, and changes when one of these does.
 * Takes time and memory by the number of parts alone. Errors: TD_INTERNAL when a box would leave its source,
 * TD_RESOURCE_EXHAUSTED. */
bool td_blob_tiled(struct td_grid *grid, struct td_blob *const *sources, struct td_blob **out, struct td_error *err);

#endif
