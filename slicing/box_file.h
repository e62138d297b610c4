/* Box files: the bytes of a list of boxes, which are parts of tensors, back to back in the order of the list and
 * without a header. A box file is a raw rank file (rank_file.h), and is kept, shared and sent like one. */
#ifndef TD_SLICING_BOX_FILE_H
#define TD_SLICING_BOX_FILE_H

#include "slicing/plan/plan_items.h"
#include "slicing/rank_file.h"

/* Makes the file of the boxes: items without `as`, whose names may recur. An item without a slice is the whole tensor.
 * Tensors have their bytes in logical order, in any type. Items and tensors are borrowed for the call. Beside the
 * file's memory, which comes from the budget (as in td_rank_file_create), none grows with the number of boxes. The
 * caller owns the one reference. Errors name the box by its number, which counts from 0, and its name: TD_NOT_FOUND for
 * an unknown name; TD_INVALID_ARGUMENT for a bad slice, or one that begins or ends within a block of the type;
 * TD_FAILED_PRECONDITION for a tensor without bytes, a slice of too many separate places, more than
 * TD_LAYOUT_MAX_MEMORY_BYTES, or more than 2^63-1 bytes; TD_RESOURCE_EXHAUSTED. */
bool td_box_file_create(const struct td_plan_item *boxes, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_rank_file **out, struct td_error *err);

#endif
