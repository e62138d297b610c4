/* Swapped blobs: generated blobs of a big-endian array with its numbers in little-endian order. A read swaps only the
 * blocks that are asked for. */
#ifndef TD_STORAGE_SWAPPED_H
#define TD_STORAGE_SWAPPED_H

#include "core/swap.h"
#include "storage/blob.h"

enum { TD_SWAPPED_BLOCK_MAX_BYTES = 512 };

/* Makes a blob of bytes [off, off+len) of `source`, whole blocks with their numbers reversed (core/swap.h), with one
 * reference for the caller. The blob takes a reference on `source`, counts as changed when `source` does, and any
 * thread may read it if any thread may read `source`. Errors: TD_INTERNAL when len is not a whole number of blocks, a
 * block has more than TD_SWAPPED_BLOCK_MAX_BYTES, a number leaves its block, or the range leaves `source`;
 * TD_RESOURCE_EXHAUSTED. */
bool td_blob_swapped(struct td_blob *source, uint64_t off, uint64_t len, const struct td_swap *swap,
                     struct td_blob **out, struct td_error *err);

#endif
