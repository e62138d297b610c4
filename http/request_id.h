/* The id of a request, which its answer and its line of the access log carry, so that one finds the other. Any
 * thread. */
#ifndef TD_HTTP_REQUEST_ID_H
#define TD_HTTP_REQUEST_ID_H

#include "http/request.h"

/* TD_REQUEST_ID_BYTES: the longest id, 128 bytes, with a NUL. */
enum { TD_REQUEST_ID_BYTES = 129 };

/* Writes the id of the request, with a NUL: the value of its X-Request-Id if there is exactly one, of 1 to 128 visible
 * ASCII characters without quotes and backslashes; else 16 upper-case hexadecimal digits that no other request to this
 * process gets. Makes no system call, but for the first id. */
void td_request_id_choose(const struct td_request *request, char id[TD_REQUEST_ID_BYTES]);

#endif
