/* Selections: which box of a tensor is asked for. Pure: text and shapes in, numbers out. */
#ifndef TD_SLICING_SELECTION_H
#define TD_SLICING_SELECTION_H

#include "core/error.h"
#include "core/text.h"
#include "parser/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Elements starts[i] to starts[i] + sizes[i] of each dimension i of a tensor of the same rank. */
struct td_selection {
    uint32_t rank;
    uint64_t starts[TD_MAX_RANK];
    uint64_t sizes[TD_MAX_RANK];
    uint64_t dropped; /* bit i: dimension i was indexed by an integer, its size is 1 and it is not in the result */
};

/* All of a tensor. */
void td_selection_all(uint32_t rank, const uint64_t *shape, struct td_selection *out);

/* NumPy basic indexing without steps (https://numpy.org/doc/stable/user/basics.indexing.html): one item per
 * dimension, separated by commas: "0:128,:", "-4:", "...,0:8", "5". Stops and starts clip as in NumPy; an integer drops
 * its dimension. Errors (TD_INVALID_ARGUMENT, the message has the item and the dimension's size): an empty text, a
 * step, an integer out of range, more items than dimensions, two ellipses, anything else. */
bool td_slice_parse(struct td_text text, uint32_t rank, const uint64_t *shape, struct td_selection *out,
                    struct td_error *err);

/* "DIM:RANK/SIZE": torch.chunk's RANK-th of SIZE pieces of dimension DIM (negative: from the end); pieces past the last
 * are empty, as DTensor's Shard has them. Errors (TD_INVALID_ARGUMENT): not of that form, DIM none of the tensor's,
 * RANK not below SIZE, SIZE 0. */
bool td_shard_parse(struct td_text text, uint32_t rank, const uint64_t *shape, struct td_selection *out,
                    struct td_error *err);

/* The shape of the result, dropped dimensions left out; returns its rank. shape has room for TD_MAX_RANK. */
uint32_t td_selection_shape(const struct td_selection *selection, uint64_t *shape);

/* One level of repetition; counts are at least 2. */
struct td_box_level {
    uint64_t count, stride;
};

/* A selection as runs of elements, counted in row-major order: `len` from `off` on, repeated by levels[0], all of that
 * by levels[1] and so on. Dimensions that are taken whole are one run, or one level, with their neighbours. */
struct td_box {
    uint64_t off, len; /* len 0: nothing, and there are no levels */
    uint32_t level_count;
    struct td_box_level levels[TD_MAX_RANK];
};

/* False when the shape has more than 2^64-1 elements (and the selection one at least). */
bool td_selection_box(const struct td_selection *selection, const uint64_t *shape, struct td_box *box);

/* Bytes of the selected elements. Errors (TD_INVALID_ARGUMENT): a run of the box does not begin and end between two
 * blocks of the dtype (GGUF's block types, types below a byte), or an overflow. */
bool td_selection_nbytes(const struct td_selection *selection, const uint64_t *shape, const struct td_dtype *dtype,
                         uint64_t *nbytes, struct td_error *err);

#endif
