/* The page of the server's state: numbers, rates of the last minutes, what arrives, and problems. */
#ifndef TD_API_HTML_STATUS_PAGE_H
#define TD_API_HTML_STATUS_PAGE_H

#include "api/call/call.h"

/* Answers with the page. */
void td_html_status(const struct td_call *call);

#endif
