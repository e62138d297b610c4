/* A request as handlers get it: without socket and HTTP library. A handler borrows all members until the request is
 * answered. */
#ifndef TD_HTTP_REQUEST_H
#define TD_HTTP_REQUEST_H

#include "core/cancel.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_header {
    struct td_text name;  /* compares without case (RFC 9110 section 5.1) */
    struct td_text value; /* without surrounding blanks */
};

struct td_facade;    /* http/facade.h */
struct td_body_room; /* http/body_room.h */
struct td_body_sink; /* http/body_sink.h */
struct td_cors;      /* http/cors.h */

/* The length of a body that ends with its last chunk (RFC 9112 section 7.1). */
#define TD_BODY_LENGTH_UNKNOWN UINT64_MAX

struct td_request {
    const struct td_facade *facade; /* gives the answer its form; NULL in tests of http/ alone */
    const struct td_cors *cors;     /* the origins whose pages may read the answer; NULL: only those of the server */
    bool is_local;                  /* the request came over the loopback interface */
    bool is_tls;                    /* the request came over TLS */
    uint64_t client;                /* stands for the client's address: a hash whose key is secret */
    struct td_text method;          /* case-sensitive: "GET" */
    struct td_text target;          /* the raw request target: path, and query after '?' */
    const struct td_header *headers;
    size_t header_count;
    struct td_text body;             /* the whole body; empty: no body, or one that went to the sink */
    const struct td_body_room *room; /* for the unpacked body; NULL: packed bodies are refused */
    struct td_body_sink
        *sink;           /* took the body of an upload; NULL: the request is not an upload, or its body has not begun */
    bool is_whole;       /* the sink has taken the whole body; else it has failed */
    uint64_t body_bytes; /* length of the body as declared, or TD_BODY_LENGTH_UNKNOWN */
    /* Asks for an end when nobody waits for the answer any more. Outlives the answer. NULL: never asks. */
    const struct td_cancel *cancel;
    /* Asks for an end of waits for a change: as `cancel`, and once the client sends nothing more, even if it may still
     * read. Outlives the answer. NULL: never asks. */
    const struct td_cancel *ends_wait;
    /* When the request came (td_clock_ns), for answers that wait for a change: see td_response's wait_until_ns. 0: such
     * answers come at once. */
    uint64_t since_ns;
};

/* Returns the next header line of this name at or after index *at, and moves *at past that line; NULL when there is
 * none. Several lines of one name are one list (RFC 9110 section 5.3): set *at to 0 and call until NULL. */
const struct td_header *td_request_next_header(const struct td_request *request, const char *name, size_t *at);

/* Returns whether the request has a header line of this name. */
bool td_request_has_header(const struct td_request *request, const char *name);

/* Returns whether a header line Accept names this media type, with any parameters; a wildcard does not name it. */
bool td_request_accepts(const struct td_request *request, const char *type);

/* Returns the header line of this name if there is exactly one, else NULL: two lines of a single-valued field are no
 * valid field. */
const struct td_header *td_request_single_header(const struct td_request *request, const char *name);

/* The next two functions return the parts of the origin that the client addresses, "https://host:port" (RFC 6454), for
 * absolute URLs in answers. */

/* Returns the client's scheme, "http" or "https" (static): by X-Forwarded-Proto, else by whether the request came over
 * TLS. Each proxy appends its scheme to the field, so the client's comes first. A client that forges the field breaks
 * only its own links. */
const char *td_request_scheme(const struct td_request *request);

/* Returns the host and port of the request's target in absolute-form, else of its field Host, if they can stand in a
 * URL without escapes; else an empty text. Borrowed. X-Forwarded-Host is not read: caches distinguish answers by Host,
 * so a forged host would send other clients elsewhere. */
struct td_text td_request_host(const struct td_request *request);

#endif
