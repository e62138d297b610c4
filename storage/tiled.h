/* Tiled blobs: arrays stored in pieces, as in distributed checkpoints. The pieces are the boxes of a grid; each is
 * row-major at a place of its own. A td_grid holds the place of each box: data alone, checked once, then shared. A
 * generated blob over a grid and its files assembles the array. */
#ifndef TD_STORAGE_TILED_H
#define TD_STORAGE_TILED_H

#include "storage/blob.h"

enum { TD_TILED_MAX_RANK = 64 };

/* One box: in each dimension i, the elements from starts[i] to starts[i] + sizes[i], exclusive. */
struct td_tile {
    uint32_t part;                  /* the caller's number of the file that holds the box */
    uint64_t off;                   /* of its first element in that file, in bytes */
    const uint64_t *starts, *sizes; /* NULL when rank is 0 */
};

/* The places of the boxes. Immutable: any thread may use a grid. */
struct td_grid;

/* Makes a grid from `count` boxes in any order, with one reference for the caller; copies what it needs. The boxes must
 * be the cells of a grid that fills an array of this shape exactly, each cell once. Takes time proportional to rank *
 * count, times log count where starts are not in order. Errors: TD_INVALID_ARGUMENT when the boxes do not fill the
 * array, rank is above TD_TILED_MAX_RANK or the array has more than 2^64-1 bytes; TD_RESOURCE_EXHAUSTED. */
bool td_grid_create(const struct td_tile *tiles, size_t count, uint32_t elem_bytes, uint32_t rank,
                    const uint64_t *shape, struct td_grid **out, struct td_error *err);

/* Takes a reference for the caller. Returns `grid`. */
struct td_grid *td_grid_ref(struct td_grid *grid);

/* Drops a reference; the last one frees the grid. NULL: does nothing. */
void td_grid_unref(struct td_grid *grid);

/* Returns the most memory that a grid of `count` boxes takes. */
uint64_t td_grid_memory_bytes(uint32_t count, uint32_t rank);

/* Returns the numbers of the files that hold the boxes (td_tile.part), each once, in ascending order, and sets *count.
 * Borrowed from the grid. */
const uint32_t *td_grid_parts(const struct td_grid *grid, size_t *count);

/* Makes a blob of the whole array, product(shape) * elem_bytes bytes in row-major order, with one reference for the
 * caller. sources[i] is the whole file that number i of td_grid_parts names. The blob takes a reference on the grid and
 * on every source, counts as changed when a source does, and any thread may read it if any thread may read the sources.
 * Takes time and memory proportional to the number of sources. Errors: TD_INTERNAL when a box would leave its source,
 * TD_RESOURCE_EXHAUSTED. */
bool td_blob_tiled(struct td_grid *grid, struct td_blob *const *sources, struct td_blob **out, struct td_error *err);

#endif
