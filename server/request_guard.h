/* The request guard: what libmicrohttpd 0.9.75 lets through but RFC 9112 and RFC 9110 forbid or what has no place in
 * a read-only service is refused here, before anything is routed. Pure: no socket, no HTTP library. */
#ifndef TD_SERVER_REQUEST_GUARD_H
#define TD_SERVER_REQUEST_GUARD_H

#include "api/request.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_MAX_HEADER_FIELDS = 64 };

struct td_guard_verdict {
    int status;          /* 0: let it pass; else the status to answer with, closing the connection */
    const char *message; /* static */
};

/* Judges a request. `version` is the protocol text ("HTTP/1.1"); header_count may exceed what request->headers
 * holds only when `too_many` is set. max_header_bytes bounds target and fields together. */
struct td_guard_verdict td_request_guard(const struct td_request *request, const char *version, bool too_many,
                                         size_t max_header_bytes);

#endif
