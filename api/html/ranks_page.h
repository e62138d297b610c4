/* The page of a model's ranks, view/ranks?engine=&tp=: the bytes of each rank's file, and lines that fetch rank 0. */
#ifndef TD_API_HTML_RANKS_PAGE_H
#define TD_API_HTML_RANKS_PAGE_H

#include "api/call/call.h"

/* Answers with the page for call->model. Where the engine refuses the model, the page has its reason. */
void td_html_ranks(const struct td_call *call);

#endif
