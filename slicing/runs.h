/* Runs: turn a selection, or a result of a plan, into stretches of tensors' bytes. Runs that recur at equal distances
 * are stored as one with a count and a stride, so that the memory does not grow with their number. Offsets count from a
 * tensor's first byte in logical (row-major) order. */
#ifndef TD_SLICING_RUNS_H
#define TD_SLICING_RUNS_H

#include "slicing/plan/plan.h"
#include "storage/composed.h"

/* Appends the bytes of a box of a tensor to the layout; `source` is the tensor's number there. A block of the layout
 * has at most two levels of repetition; a box with more becomes a block for each index of the outer levels. Errors:
 * - TD_INVALID_ARGUMENT: a run begins or ends within a block of the dtype (see td_selection_nbytes).
 * - TD_FAILED_PRECONDITION: the outer levels have more than 4,096 indices.
 * - TD_RESOURCE_EXHAUSTED: memory or the budget is short.
 * - TD_INTERNAL: the box leaves the tensor. */
bool td_layout_append_selection(struct td_layout *layout, uint32_t source, const struct td_tensor *tensor,
                                const struct td_selection *selection, struct td_error *err);

/* Appends a result of a plan to the layout, where tensor i of the list has the number `source` + i. A tensor without
 * dimensions counts as one element along the axis. A piece with a selection must be the only one of its cell. After an
 * error the layout must not be used any more. Errors:
 * - TD_FAILED_PRECONDITION, with the tensor's name: a run would begin or end within a block of the dtype.
 * - TD_RESOURCE_EXHAUSTED: memory or the budget is short.
 * - TD_INTERNAL: the pieces leave their tensors, or do not give the bytes that the plan states. */
bool td_layout_append_output(struct td_layout *layout, uint32_t source, const struct td_plan *plan,
                             const struct td_plan_output *output, const struct td_tensor_list *tensors,
                             struct td_error *err);

#endif
