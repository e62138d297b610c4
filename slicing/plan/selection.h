/* Selections: the box of a tensor that a client requests. Pure: reads text and shapes, and returns numbers. */
#ifndef TD_SLICING_PLAN_SELECTION_H
#define TD_SLICING_PLAN_SELECTION_H

#include "core/error.h"
#include "core/text.h"
#include "parser/format/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A box: in each dimension i of the tensor, the indices from starts[i] to starts[i] + sizes[i] - 1. */
struct td_selection {
    uint32_t rank; /* that of the tensor */
    uint64_t starts[TD_MAX_RANK];
    uint64_t sizes[TD_MAX_RANK];
    uint64_t dropped; /* bit i: dimension i was indexed by an integer; its size is 1, and the result lacks it */
};

/* Sets *out to the whole tensor. rank is at most TD_MAX_RANK in all functions here. */
void td_selection_all(uint32_t rank, const uint64_t *shape, struct td_selection *out);

/* Parses NumPy's basic indexing without steps (https://numpy.org/doc/stable/user/basics.indexing.html): one item for
 * each dimension, separated by commas, such as "0:128,:", "-4:", "...,0:8" or "5". Starts and stops are clipped as in
 * NumPy; an integer drops its dimension. Errors (TD_INVALID_ARGUMENT; the message has the item and the dimension's
 * size): an empty text, a step, an integer out of range, more items than dimensions, two ellipses, any other text. */
bool td_slice_parse(struct td_text text, uint32_t rank, const uint64_t *shape, struct td_selection *out,
                    struct td_error *err);

/* Parses "DIM:RANK/SIZE": piece RANK of the SIZE pieces into which torch.chunk splits dimension DIM (negative: from the
 * end). Where torch.chunk makes fewer pieces, the others are empty, as in DTensor's Shard. Errors
 * (TD_INVALID_ARGUMENT): another form, a DIM that the tensor lacks, a RANK that is not below SIZE. */
bool td_shard_parse(struct td_text text, uint32_t rank, const uint64_t *shape, struct td_selection *out,
                    struct td_error *err);

/* Writes the shape of the result, without dropped dimensions, and returns its rank. shape has room for TD_MAX_RANK. */
uint32_t td_selection_shape(const struct td_selection *selection, uint64_t *shape);

/* One level of repetition: `count` times, at least 2, `stride` elements apart. */
struct td_box_level {
    uint64_t count, stride;
};

/* A selection as runs of elements in row-major order: a run of `len` elements from `off` on, repeated by levels[0]; the
 * whole of that repeated by levels[1], and so on. Dimensions that are selected whole merge with their neighbours into
 * one run or level. */
struct td_box {
    uint64_t off, len; /* len 0: an empty selection, without levels */
    uint32_t level_count;
    struct td_box_level levels[TD_MAX_RANK];
};

/* Computes the runs of a selection that is within the shape. Returns false when the shape has more than 2^64-1
 * elements, unless the selection is empty. */
bool td_selection_box(const struct td_selection *selection, const uint64_t *shape, struct td_box *box);

/* Computes the number of bytes of the selected elements. Errors (TD_INVALID_ARGUMENT): a run begins or ends within a
 * block of the dtype (GGUF's block types, types smaller than a byte), or a size is past 2^64-1. */
bool td_selection_nbytes(const struct td_selection *selection, const uint64_t *shape, const struct td_dtype *dtype,
                         uint64_t *nbytes, struct td_error *err);

#endif
