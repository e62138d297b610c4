/* The elements of GGUF's blocks as numbers, as `gguf.quants.dequantize` of the package gguf computes them: in single
 * precision and in the same order of operations. Pure. */
#ifndef TD_RANK_VALUES_BLOCK_VALUES_H
#define TD_RANK_VALUES_BLOCK_VALUES_H

#include "parser/format/dtype.h"

#include <stdint.h>

enum { TD_BLOCK_MAX_ELEMS = 256 };

/* Decodes one block of the type: its block_bytes at `block`, which need not be aligned, become its block_elems numbers
 * at `out`, at most TD_BLOCK_MAX_ELEMS. */
typedef void td_block_decoder(const uint8_t *block, float *out);

/* Returns the decoder of a type of blocks, or NULL for a type that it does not know. Static. */
td_block_decoder *td_block_decoder_of(const struct td_dtype *dtype);

#endif
