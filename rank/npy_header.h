/* The header of a file of NumPy's format. Pure. */
#ifndef TD_RANK_NPY_HEADER_H
#define TD_RANK_NPY_HEADER_H

#include "core/buffer.h"
#include "core/error.h"
#include "parser/format/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns whether NumPy has the type. */
bool td_npy_has_type(const struct td_dtype *dtype);

/* Appends the header of a little-endian, row-major array in NumPy's format, version 1.0
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): magic, version, length and dictionary,
 * padded to a multiple of 64 bytes. Errors: TD_INVALID_ARGUMENT for a type that NumPy does not have ("BF16");
 * TD_RESOURCE_EXHAUSTED. */
bool td_npy_write_header(struct td_buffer *out, const struct td_dtype *dtype, uint32_t rank, const uint64_t *shape,
                         struct td_error *err);

#endif
