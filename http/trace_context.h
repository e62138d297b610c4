/* The field traceparent of W3C Trace Context (https://www.w3.org/TR/trace-context/), by which a request names the trace
 * that it is a part of. */
#ifndef TD_HTTP_TRACE_CONTEXT_H
#define TD_HTTP_TRACE_CONTEXT_H

#include "core/text.h"

#include <stdbool.h>

struct td_trace_context {
    struct td_text trace_id;  /* 32 lower-case hexadecimal digits */
    struct td_text parent_id; /* 16 of them: the span of the client that sent the request */
};

/* Reads the field's value. Returns false, and does not change *out, for a value that is not valid (section 3.2.2); a
 * version above 00 is read as section 4.3 says, as far as 00 goes. The ids point into the value. */
bool td_trace_context_read(struct td_text value, struct td_trace_context *out);

#endif
