/* Big-endian arrays in little-endian order: a generated blob over another, which swaps the bytes that are asked for. */
#ifndef TD_STORAGE_SWAPPED_H
#define TD_STORAGE_SWAPPED_H

#include "core/swap.h"
#include "storage/blob.h"

enum { TD_SWAPPED_BLOCK_MAX_BYTES = 512 };

/* A blob of len bytes: those of source from off on, whole blocks, each with its numbers' bytes reversed. One reference
 * for the caller; holds one on source, and changes when source does. Reading is thread-safe when source's is. Errors:
 * TD_INTERNAL when len is no whole number of blocks, a block is too large, a number leaves it, or the range leaves
 * source; TD_RESOURCE_EXHAUSTED. */
bool td_blob_swapped(struct td_blob *source, uint64_t off, uint64_t len, const struct td_swap *swap,
                     struct td_blob **out, struct td_error *err);

#endif
