#include "slicing/box_file.h"

#include "slicing/runs.h"

static bool append_box(struct td_layout *layout, const struct td_plan_item *box, const struct td_tensor_list *tensors,
                       struct td_error *err)
{
    uint32_t number;
    struct td_selection selection;
    const struct td_tensor *tensor = td_plan_items_find(tensors, box->name, &number);
    if (tensor == NULL)
        return td_error_set(err, TD_NOT_FOUND, "the checkpoint has no such tensor");
    if (tensor->reason != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s", tensor->reason);
    td_selection_all(tensor->rank, tensor->shape, &selection);
    return (box->slice == NULL ||
            td_slice_parse(td_text_of(box->slice), tensor->rank, tensor->shape, &selection, err)) &&
           td_layout_append_selection(layout, TD_RANK_SOURCE_TENSOR + number, tensor, &selection, err);
}

static bool append_boxes(struct td_layout *layout, const struct td_plan_item *boxes, size_t count,
                         const struct td_tensor_list *tensors, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    for (size_t i = 0; i < count; i++)
        if (!append_box(layout, &boxes[i], tensors, &why))
            return td_error_set(err, why.code, "box %zu, tensor \"%.160s\": %s", i, boxes[i].name, why.message);
    return true;
}

bool td_box_file_create(const struct td_plan_item *boxes, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_rank_file **out, struct td_error *err)
{
    struct td_layout *layout = td_layout_create(budget, err);
    if (layout == NULL)
        return false;
    if (append_boxes(layout, boxes, count, tensors, err))
        return td_rank_file_from_layout(layout, budget, out, err);
    td_layout_unref(layout);
    return false;
}
