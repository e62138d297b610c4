/* The page of one tensor: /models/{id}/view/tensor/{name}. */
#ifndef TD_API_HTML_TENSOR_PAGE_H
#define TD_API_HTML_TENSOR_PAGE_H

#include "api/call/call.h"

/* Answers with the page of the tensor of call->model whose name is call->rest. */
void td_html_tensor(const struct td_call *call);

#endif
