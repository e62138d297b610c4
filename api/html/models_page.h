/* The pages of all models, at "/" and "/models/"; the first one also shows the datasets. */
#ifndef TD_API_HTML_MODELS_PAGE_H
#define TD_API_HTML_MODELS_PAGE_H

#include "api/call/call.h"

/* Answers with the page: models whose ids contain ?q=, in the order of ?sort=, 500 on each ?page=. Needs
 * call->snapshot. When memory is short it answers an error. */
void td_html_models(const struct td_call *call);

#endif
