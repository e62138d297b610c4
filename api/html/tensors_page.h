/* The page with the table of a checkpoint's tensors: /models/{id}/view/tensors. */
#ifndef TD_API_HTML_TENSORS_PAGE_H
#define TD_API_HTML_TENSORS_PAGE_H

#include "api/call/call.h"

/* Answers with a page of the table of call->model's tensors: those that the parameters q and dtype choose, in the order
 * of sort. `page` is the number of the page. */
void td_html_tensors(const struct td_call *call);

/* Returns the checkpoint that the parameters of a page about tensors choose, as td_checkpoint_parameter_or_part does.
 * For a model without a whole checkpoint it is the first incomplete one, and the page says so. Returns NULL after it
 * answered an error. */
const struct td_checkpoint *td_html_choose_checkpoint(const struct td_call *call);

/* Appends a tensor's name as pages show it: "" in quotes for the empty name. */
void td_html_write_tensor_name(const struct td_tensor *tensor, struct td_buffer *out);

/* Returns whether the tensor's bytes are in its file from an offset on, as they are served. */
bool td_html_has_offset(const struct td_tensor *tensor);

/* Appends how the bytes of a tensor are found where no offset says so: the number of its pieces, how they are stored,
 * or why they cannot be served. Appends nothing where the offset does. */
void td_html_write_place(const struct td_tensor *tensor, struct td_buffer *out);

#endif
