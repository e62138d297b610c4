/* The page that compares two models, /compare?a=&b=: which tensors differ between their first checkpoints. It is HTML
 * for every client. */
#ifndef TD_API_HTML_COMPARE_PAGE_H
#define TD_API_HTML_COMPARE_PAGE_H

#include "api/call/call.h"

/* Answers with the page; without a and b, with its form alone. A model that the caller may not see is answered as one
 * that does not exist. */
void td_html_compare(const struct td_call *call);

#endif
