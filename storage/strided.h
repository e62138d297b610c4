/* Strided blobs: generated blobs of the elements of a transposed, sliced or expanded array in logical (row-major)
 * order. A read copies only the bytes that are asked for. */
#ifndef TD_STORAGE_STRIDED_H
#define TD_STORAGE_STRIDED_H

#include "storage/blob.h"

enum { TD_STRIDED_MAX_RANK = 64 };

/* Makes a blob of product(shape) * elem_bytes bytes, with one reference for the caller: the elements with the last
 * index fastest. Element (i0, ..., ik) is at byte off + (i0 * strides[0] + ... + ik * strides[k]) * elem_bytes of
 * `source`. Strides are in elements; stride 0 repeats an element. The blob takes a reference on `source`, counts as
 * changed when `source` does, and any thread may read it if any thread may read `source`. Errors: TD_INTERNAL when rank
 * is above TD_STRIDED_MAX_RANK, an element would be outside `source` or the size overflows; TD_RESOURCE_EXHAUSTED. */
bool td_blob_strided(struct td_blob *source, uint64_t off, uint32_t elem_bytes, uint32_t rank, const uint64_t *shape,
                     const uint64_t *strides, struct td_blob **out, struct td_error *err);

#endif
