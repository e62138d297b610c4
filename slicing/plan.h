/* Plans: what one rank's file holds, tensor by tensor, as pieces of the checkpoint's tensors. Pure: tensors' names,
 * types and shapes in, numbers out. */
#ifndef TD_SLICING_PLAN_H
#define TD_SLICING_PLAN_H

#include "slicing/plan_match.h"
#include "slicing/selection.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_PIECE_ZEROS UINT32_MAX

/* A part of a result along its axis: `count` boxes of the source, each `size` elements of dimension axis from
 * start + i * stride on, and all of the other dimensions; or, with a selection, that box alone (start, size, count and
 * stride are then 0, 0, 1, 0). Elements are stored elements (packed ones count once). A whole tensor without dimensions
 * is one of size 1. Pieces without elements along the axis are left out. */
struct td_plan_piece {
    uint32_t tensor; /* in the list; TD_PIECE_ZEROS: size zero elements along the axis */
    uint64_t start, size;
    uint64_t count, stride;               /* at least 1; stride 0 when it is 1 */
    const struct td_selection *selection; /* NULL: none */
};

/* A tensor of the result: cell_count cells one after the other, each piece_count / cell_count pieces joined along
 * `axis`, a dimension of a cell (and of the sources). Cells are the indices of a stacked first dimension; without one
 * there is one. */
struct td_plan_output {
    const char *name;
    const struct td_dtype *dtype;
    uint32_t rank;
    const uint64_t *shape;
    uint64_t nbytes;
    uint32_t axis;
    uint64_t cell_count;
    size_t first_piece, piece_count;
};

struct td_plan {
    struct td_arena arena; /* owns all that follows; at most TD_PLAN_MAX_MEMORY_BYTES */
    uint64_t tp_size, tp_rank;
    struct td_plan_output *outputs; /* in the order of the file: by name */
    size_t output_count;
    struct td_plan_piece *pieces;
    size_t piece_count;
    const char **dropped; /* names of the tensors that the engine has no use for */
    size_t dropped_count;
    uint64_t total_bytes;
};

void td_plan_fini(struct td_plan *plan); /* of an empty or failed one too */

/* Rank tp_rank of tp_size by what was matched (which is borrowed for the call). Errors: TD_FAILED_PRECONDITION (the
 * message names the tensor): a size that the ranks do not divide, parts that are not the dimension, types or shapes
 * that cannot be joined, a slot or an index of a stack twice or missing, a slice within a block; TD_INVALID_ARGUMENT:
 * no such rank, tp_size not from 1 to TD_MAX_TP_SIZE; TD_FAILED_PRECONDITION too for more than
 * TD_PLAN_MAX_MEMORY_BYTES; TD_RESOURCE_EXHAUSTED. Memory comes from the match's budget. */
bool td_plan_from_match(const struct td_plan_match *match, uint64_t tp_size, uint64_t tp_rank, struct td_plan *out,
                        struct td_error *err);

/* td_plan_match and td_plan_from_match, for one rank alone. */
bool td_plan_from_rules(const struct td_rule_list *rules, const struct td_tensor_list *tensors, uint64_t tp_size,
                        uint64_t tp_rank, struct td_plan *out, struct td_error *err);

/* One tensor of an explicit list: {"name", "as"?, "slice"?}. Strings are borrowed. */
struct td_plan_item {
    const char *name;
    const char *as;    /* NULL: the same */
    const char *slice; /* NULL: all of it */
};

/* Exactly these tensors in this order. Errors: TD_NOT_FOUND for an unknown name; TD_INVALID_ARGUMENT for a bad slice or
 * two results of one name; TD_FAILED_PRECONDITION as above. Memory comes from the budget (borrowed; NULL: none). */
bool td_plan_from_items(const struct td_plan_item *items, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan *out, struct td_error *err);

/* One result: what is selected of tensor `number`, which the selection is of, under its name. Errors as above. */
bool td_plan_from_selection(const struct td_tensor_list *tensors, size_t number, const struct td_selection *selection,
                            struct td_budget *budget, struct td_plan *out, struct td_error *err);

#endif
