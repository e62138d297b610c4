/* Requests of pages of other sites. Such a page can have a browser send a request to this server, with the user name
 * and the password that the browser keeps for it (RFC 7617). So requests that change something are refused. The option
 * --cors-origin decides which answers the page may read (http/cors.h). */
#ifndef TD_API_CALL_CROSS_SITE_H
#define TD_API_CALL_CROSS_SITE_H

#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

/* If the request is a preflight (the Fetch standard, "CORS-preflight request") of an allowed origin, answers 204 with
 * what requests of its pages may have, and returns true. The answer is the same for every path, and asks for no token,
 * since a preflight has none. Call it on a fresh response. */
bool td_cross_site_answer_preflight(const struct td_request *request, struct td_response *response);

/* Returns whether the browser says that a page of another site made it send the request: by Sec-Fetch-Site
 * (https://www.w3.org/TR/fetch-metadata/), else by an Origin that is not the one that the client addresses. Other
 * clients send neither field. Origins that may read answers are other sites, too. */
bool td_cross_site_is(const struct td_request *request);

/* Answers 403 to such a request. */
void td_cross_site_refuse(const struct td_request *request, struct td_response *response);

#endif
