/* Strided arrays in logical order: a generated blob that shows the elements of a transposed, sliced or expanded array
 * row by row, without copying more than is asked for. */
#ifndef TD_STORAGE_STRIDED_H
#define TD_STORAGE_STRIDED_H

#include "storage/blob.h"

enum { TD_STRIDED_MAX_RANK = 64 };

/* A blob of product(shape) * elem_bytes bytes: element (i0, ..., ik) of the array is at byte
 * off + (i0 * strides[0] + ... + ik * strides[k]) * elem_bytes of source, and they follow one another with the last
 * index fastest. Strides are in elements; 0 repeats. One reference for the caller; holds one on source, and changes
 * when source does. Reading is thread-safe when source's is. Errors: TD_INTERNAL when an element would lie outside
 * source or the size overflows, TD_RESOURCE_EXHAUSTED. */
bool td_blob_strided(struct td_blob *source, uint64_t off, uint32_t elem_bytes, uint32_t rank, const uint64_t *shape,
                     const uint64_t *strides, struct td_blob **out, struct td_error *err);

#endif
