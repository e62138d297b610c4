/* Plans: the contents of one rank's file, tensor by tensor, as pieces of the checkpoint's tensors. Planning is pure: it
 * reads names, types and shapes of tensors, never their bytes. Plans share nothing but their budget, so several threads
 * may plan at once. */
#ifndef TD_SLICING_PLAN_PLAN_H
#define TD_SLICING_PLAN_PLAN_H

#include "slicing/plan/plan_match.h"
#include "slicing/plan/selection.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_PIECE_ZEROS UINT32_MAX

/* A part of a result along its axis: `count` boxes of the source tensor. Box i has `size` indices of dimension `axis`,
 * from start + i * stride on, and all indices of the other dimensions. With a selection the piece is that box alone,
 * and start, size, count and stride are 0, 0, 1, 0. Indices count stored elements; an element that packs several counts
 * once. A tensor without dimensions is a piece of size 1. A plan has no pieces of size 0. */
struct td_plan_piece {
    uint32_t tensor; /* number in the tensor list that was planned; TD_PIECE_ZEROS: `size` indices of zeros */
    uint64_t start, size;
    uint64_t count, stride;               /* count is at least 1; stride is 0 when count is 1 */
    const struct td_selection *selection; /* NULL: none */
};

/* A tensor of the rank's file (a result). It consists of cell_count cells, one after the other; each cell consists of
 * piece_count / cell_count pieces, joined along dimension `axis` of the cell, which is also that of the sources. A
 * stacked result has a cell for each index of its first dimension, any other result has one cell. A constant has type
 * F32, no dimensions and no pieces. */
struct td_plan_output {
    const char *name;
    const struct td_dtype *dtype;
    uint32_t rank;                   /* number of dimensions */
    const uint64_t *shape;           /* in elements of dtype */
    uint64_t nbytes;                 /* in the file */
    uint32_t axis;                   /* 0 without dimensions */
    uint64_t cell_count;             /* at least 1 */
    size_t first_piece, piece_count; /* of plan->pieces, cell by cell; may be none */
    bool is_constant;
    float constant; /* the value of a constant */
};

struct td_plan {
    struct td_arena arena; /* owns everything below, types aside; at most TD_PLAN_MAX_MEMORY_BYTES */
    uint64_t tp_size, tp_rank;
    /* In the order of the file: as safetensors' own serializer sorts them, by falling td_dtype_number and then by name;
     * or as an explicit list gives them. */
    struct td_plan_output *outputs;
    size_t output_count;
    struct td_plan_piece *pieces;
    size_t piece_count;
    const char **dropped; /* names of the tensors that rules with `drop` leave out */
    size_t dropped_count;
    uint64_t total_bytes; /* of all results */
};

/* Frees the plan's memory, and gives it back to the budget. An empty plan (all zero), or one that could not be made, is
 * allowed. */
void td_plan_fini(struct td_plan *plan);

/* Plans the file of rank tp_rank (from 0) of tp_size from a match, which is borrowed for the call. Memory comes from
 * the match's budget, which must outlive the plan. A plan that could not be made owns nothing. Errors:
 * - TD_FAILED_PRECONDITION, with the tensor's name: the ranks do not divide a size; parts do not make up the dimension;
 *   types or shapes cannot be joined; a slot or an index of a stack is missing or occurs twice; a tensor's result has
 *   the name of a constant; a cut is within a block of a type; the plan takes more than TD_PLAN_MAX_MEMORY_BYTES.
 * - TD_INVALID_ARGUMENT: tp_size is not from 1 to TD_MAX_TP_SIZE, or tp_rank is not below tp_size.
 * - TD_RESOURCE_EXHAUSTED: memory or the budget is short. */
bool td_plan_from_match(const struct td_plan_match *match, uint64_t tp_size, uint64_t tp_rank, struct td_plan *out,
                        struct td_error *err);

#endif
