/* Generated blobs of arrays that a file stores in another form. Strided blobs: the elements of a transposed, sliced or
 * expanded array in logical (row-major) order. Swapped blobs: a big-endian array with its numbers in little-endian
 * order. A read copies, and swaps, only the bytes that are asked for. */
#ifndef TD_STORAGE_ARRAY_BLOB_H
#define TD_STORAGE_ARRAY_BLOB_H

#include "core/swap.h"
#include "storage/blob.h"

enum { TD_STRIDED_MAX_RANK = 64 };

/* Makes a blob of product(shape) * elem_bytes bytes, with one reference for the caller: the elements with the last
 * index fastest. Element (i0, ..., ik) is at byte off + (i0 * strides[0] + ... + ik * strides[k]) * elem_bytes of
 * `source`. Strides are in elements; stride 0 repeats an element. The blob takes a reference on `source`, counts as
 * changed when `source` does, and any thread may read it if any thread may read `source`. Errors: TD_INTERNAL when rank
 * is above TD_STRIDED_MAX_RANK, an element would be outside `source` or the size overflows; TD_RESOURCE_EXHAUSTED. */
bool td_blob_strided(struct td_blob *source, uint64_t off, uint32_t elem_bytes, uint32_t rank, const uint64_t *shape,
                     const uint64_t *strides, struct td_blob **out, struct td_error *err);

enum { TD_SWAPPED_BLOCK_MAX_BYTES = 512 };

/* Makes a blob of bytes [off, off+len) of `source`, whole blocks with their numbers reversed (core/swap.h), with one
 * reference for the caller. The blob takes a reference on `source`, counts as changed when `source` does, and any
 * thread may read it if any thread may read `source`. Errors: TD_INTERNAL when len is not a whole number of blocks, a
 * block has more than TD_SWAPPED_BLOCK_MAX_BYTES, a number leaves its block, or the range leaves `source`;
 * TD_RESOURCE_EXHAUSTED. */
bool td_blob_swapped(struct td_blob *source, uint64_t off, uint64_t len, const struct td_swap *swap,
                     struct td_blob **out, struct td_error *err);

#endif
