/* Conditional requests (RFC 9110 section 13), evaluated once for every endpoint, in the order of 13.2.2. */
#ifndef TD_HTTP_CONDITIONAL_H
#define TD_HTTP_CONDITIONAL_H

#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

/* Turns a 200 answer into 304 or 412 where a precondition says so. Returns false when it did. */
bool td_conditional_apply(const struct td_request *request, struct td_response *response);

/* If-Range: whether a Range field may be honoured (13.1.5). */
bool td_conditional_range_allowed(const struct td_request *request, const struct td_response *response);

#endif
