/* Runs: which bytes of a tensor a selection or a piece of a plan is, as progressions, never one by one. Bytes count
 * from the tensor's first one in logical (row-major) order. */
#ifndef TD_SLICING_RUNS_H
#define TD_SLICING_RUNS_H

#include "slicing/plan.h"
#include "storage/composed.h"

/* Appends the bytes of a box of a tensor, which are source number `source`. Dimensions that are taken whole are one run
 * with their neighbours; at most two levels of nesting are left in one block, more become a block for each outer index.
 * Errors: TD_INVALID_ARGUMENT when a run does not lie between blocks of the dtype, as td_selection_nbytes says;
 * TD_FAILED_PRECONDITION past 4,096 outer indices, TD_RESOURCE_EXHAUSTED; TD_INTERNAL when the box leaves the tensor.
 */
bool td_layout_append_selection(struct td_layout *layout, uint32_t source, const struct td_tensor *tensor,
                                const struct td_selection *selection, struct td_error *err);

/* Appends a result of a plan: `source` + i is tensor i of the list. A tensor without dimensions counts as one element
 * along the axis. A piece with a selection has to be its cell's only one. Errors: TD_FAILED_PRECONDITION (names the
 * tensor) when a run would begin or end within a block of the dtype; TD_RESOURCE_EXHAUSTED; TD_INTERNAL when the pieces
 * leave their tensors, or do not give the shape and the bytes that the plan says. A layout that it failed on is of no
 * more use. */
bool td_layout_append_output(struct td_layout *layout, uint32_t source, const struct td_plan *plan,
                             const struct td_plan_output *output, const struct td_tensor_list *tensors,
                             struct td_error *err);

#endif
