/* Plans of files that hold an explicit list of tensors. Pure. */
#ifndef TD_SLICING_PLAN_PLAN_ITEMS_H
#define TD_SLICING_PLAN_PLAN_ITEMS_H

#include "slicing/plan/plan.h"
#include "slicing/plan/selection.h"

/* One tensor of an explicit list. Strings are borrowed. */
struct td_plan_item {
    const char *name;  /* of the tensor in the checkpoint */
    const char *as;    /* its name in the file; NULL: the same */
    const char *slice; /* the part of it, as td_slice_parse reads it; NULL: all */
};

/* Finds a tensor by its name in a list that is sorted by name, and its number there. Returns NULL for an unknown name.
 */
const struct td_tensor *td_plan_items_find(const struct td_tensor_list *tensors, const char *name, uint32_t *number);

/* Plans a file of exactly these tensors in this order. Memory comes from the budget, which must outlive the plan; NULL:
 * no limit but the plan's. Items and tensors are borrowed for the call. A plan that could not be made owns nothing.
 * Errors: TD_NOT_FOUND for an unknown name; TD_INVALID_ARGUMENT for a bad slice or two results of one name;
 * TD_FAILED_PRECONDITION for a tensor without bytes, or more than TD_PLAN_MAX_MEMORY_BYTES; TD_RESOURCE_EXHAUSTED. */
bool td_plan_from_items(const struct td_plan_item *items, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan *out, struct td_error *err);

/* Plans a file of one result: the selected part of tensor `number` of the list, under the tensor's name. The selection
 * is copied. Memory and errors as td_plan_from_items. */
bool td_plan_from_selection(const struct td_tensor_list *tensors, size_t number, const struct td_selection *selection,
                            struct td_budget *budget, struct td_plan *out, struct td_error *err);

#endif
