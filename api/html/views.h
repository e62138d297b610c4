/* The pages of a model below /models/{id}/view/. They are HTML for every client. */
#ifndef TD_API_HTML_VIEWS_H
#define TD_API_HTML_VIEWS_H

#include "api/call/call.h"

/* Answers call->rest, the path after view/, with the page of call->model; 404 if there is no such page. */
void td_html_view(const struct td_call *call);

#endif
