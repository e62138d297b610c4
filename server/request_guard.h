/* The request guard: what libmicrohttpd 0.9.75 lets through but RFC 9112 and RFC 9110 forbid or what has no place in
 * this service is refused here, before anything is routed. Bodies come with POST alone, and with a Content-Length.
 * Pure: no socket, no HTTP library. */
#ifndef TD_SERVER_REQUEST_GUARD_H
#define TD_SERVER_REQUEST_GUARD_H

#include "api/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MAX_HEADER_FIELDS = 64 };

struct td_guard_limits {
    size_t max_header_bytes; /* of target and fields together */
    uint64_t max_body_bytes;
};

struct td_guard_verdict {
    int status;           /* 0: let it pass; else the status to answer with, closing the connection */
    const char *message;  /* static */
    uint64_t body_bytes;  /* that will follow, when it passes */
    bool has_unread_body; /* passes with a body that is not to be read: for the router to say 405, and closing the
                             connection */
};

/* Judges a request. `version` is the protocol text ("HTTP/1.1"); header_count may exceed what request->headers
 * holds only when `too_many` is set. */
struct td_guard_verdict td_request_guard(const struct td_request *request, const char *version, bool too_many,
                                         const struct td_guard_limits *limits);

#endif
