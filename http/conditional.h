/* Conditional requests (RFC 9110 section 13), evaluated here for all endpoints, in the order of 13.2.2. */
#ifndef TD_HTTP_CONDITIONAL_H
#define TD_HTTP_CONDITIONAL_H

#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

/* Turns a 200 answer into 304 or 412 when a precondition demands that; leaves other answers alone. Sets response->etag
 * to former_etag when the client names that tag. Returns false when the answer's status was changed. */
bool td_conditional_apply(const struct td_request *request, struct td_response *response);

/* Checks the conditions of a request that writes: If-Match and If-None-Match. etag: of what is there now, with its
 * quotes; NULL: nothing is there. Returns false after it answered 412. */
bool td_conditional_allow_write(const struct td_request *request, const char *etag, struct td_response *response);

/* Turns a 200 answer into a 304 with the same fields, also Content-Length, and without a body. */
void td_conditional_not_modified(struct td_response *response);

/* Returns whether If-Range allows a Range field to be applied to the response (13.1.5); true without If-Range. Call it
 * after td_conditional_apply. */
bool td_conditional_range_allowed(const struct td_request *request, const struct td_response *response);

#endif
