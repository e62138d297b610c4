/* The request guard: refuses requests that libmicrohttpd 0.9.75 lets through although RFC 9112 or RFC 9110 forbids
 * them, or that this service never accepts, before they are routed. A body must belong to a POST and have a
 * Content-Length or, in HTTP/1.1, be chunked; where uploads are taken, PUT, PATCH and DELETE may have bodies, too. The
 * guard is a pure function: no socket, no HTTP library. */
#ifndef TD_SERVER_NET_REQUEST_GUARD_H
#define TD_SERVER_NET_REQUEST_GUARD_H

#include "http/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MAX_HEADER_FIELDS = 64 };

struct td_guard_limits {
    size_t max_header_bytes; /* of the target and all names and values of fields together; more: 431 */
    uint64_t max_body_bytes; /* more: 413, for bodies in memory that declare their length */
    bool takes_uploads;      /* the request's facade does */
};

struct td_guard_verdict {
    int status;           /* 0: the request passes; else the status to answer before the connection is closed */
    const char *message;  /* for the answer; static; NULL when the request passes */
    uint64_t body_bytes;  /* length of the body that follows, when the request passes; TD_BODY_LENGTH_UNKNOWN: it is
                             chunked */
    bool has_unread_body; /* the request passes with a body that must not be read: the router answers 405, then the
                             connection is closed */
};

/* Judges a request by its method, target and header fields. `version` is the protocol text, such as "HTTP/1.1".
 * `too_many`: the request had more than TD_MAX_HEADER_FIELDS fields, and request->headers has only the first ones. */
struct td_guard_verdict td_request_guard(const struct td_request *request, const char *version, bool too_many,
                                         const struct td_guard_limits *limits);

/* Judges a request further that has passed with takes_uploads, and whose body is to be read into memory. */
struct td_guard_verdict td_guard_memory_body(struct td_guard_verdict verdict, const struct td_guard_limits *limits);

/* Returns whether requests with this method may have a body where uploads are taken. */
bool td_guard_is_write(struct td_text method);

#endif
