/* The elements of tensors as numbers, for statistics. Pure.
 *
 * An element becomes a double: exact for all types but 64-bit integers past 2^53 and F128, which are rounded. A boolean
 * is 0 or 1, a complex number its magnitude, NumPy's "not a time" of dates is NaN. Elements of GGUF's blocks are
 * computed in single precision, in the order of operations of `gguf.quants.dequantize` of the package gguf. */
#ifndef TD_RANK_VALUES_VALUES_H
#define TD_RANK_VALUES_VALUES_H

#include "parser/format/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether elements of the type can be decoded. */
bool td_values_known(const struct td_dtype *dtype);

/* Decodes `blocks` blocks of the type, which td_values_known knows: dtype->block_bytes each at `bytes`, little-endian,
 * become dtype->block_elems numbers each at `out`, in logical order. */
void td_values_decode(const struct td_dtype *dtype, const uint8_t *bytes, size_t blocks, double *out);

#endif
