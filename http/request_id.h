/* The id of a request, which its answer and its line of the access log carry, so that one finds the other; and the
 * trace that the request is a part of, by the field traceparent of W3C Trace Context
 * (https://www.w3.org/TR/trace-context/). Any thread. */
#ifndef TD_HTTP_REQUEST_ID_H
#define TD_HTTP_REQUEST_ID_H

#include "http/request.h"

/* TD_REQUEST_ID_BYTES: the longest id, 128 bytes, with a NUL. */
enum { TD_REQUEST_ID_BYTES = 129 };

/* Writes the id of the request, with a NUL: the value of its X-Request-Id if there is exactly one, of 1 to 128 visible
 * ASCII characters without quotes and backslashes; else 16 upper-case hexadecimal digits that no other request to this
 * process gets. Makes no system call, but for the first id. */
void td_request_id_choose(const struct td_request *request, char id[TD_REQUEST_ID_BYTES]);

struct td_trace_context {
    struct td_text trace_id;  /* 32 lower-case hexadecimal digits */
    struct td_text parent_id; /* 16 of them: the span of the client that sent the request */
};

/* Reads the field's value. Returns false, and does not change *out, for a value that is not valid (section 3.2.2); a
 * version above 00 is read as section 4.3 says, as far as 00 goes. The ids point into the value. */
bool td_trace_context_read(struct td_text value, struct td_trace_context *out);

#endif
