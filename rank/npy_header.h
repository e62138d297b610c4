/* The header of NumPy's format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), version 1.0.
 */
#ifndef TD_RANK_NPY_HEADER_H
#define TD_RANK_NPY_HEADER_H

#include "core/buffer.h"
#include "core/error.h"
#include "parser/format/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* Appends the header of a little-endian, row-major array: magic, version, length and dictionary, padded to a multiple
 * of 64 bytes. `rank` is the number of dimensions, at most TD_MAX_RANK. Errors: TD_INVALID_ARGUMENT for a type that
 * NumPy does not have ("BF16"); TD_RESOURCE_EXHAUSTED. */
bool td_npy_header_write(struct td_buffer *out, const struct td_dtype *dtype, uint32_t rank, const uint64_t *shape,
                         struct td_error *err);

#endif
