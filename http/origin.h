/* Origins: scheme, host and port of a page or of a server (RFC 6454; the HTML standard, "Origin"), such as
 * "https://a.example" or "http://localhost:5173". */
#ifndef TD_HTTP_ORIGIN_H
#define TD_HTTP_ORIGIN_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The parts of an origin, borrowed. */
struct td_origin {
    struct td_text scheme, host; /* compare without case; an IPv6 address stands in brackets */
    uint64_t port;               /* 0: the default port of the scheme */
};

/* Capacity for a serialised origin with its NUL. A longer text is no origin. */
enum { TD_ORIGIN_BYTES = 300 };

/* Reads "scheme://host" or "scheme://host:port". Returns false for any other text: one with a path, "null", and a host
 * that is not ASCII. */
bool td_origin_read(struct td_text text, struct td_origin *origin);

/* Makes an origin of a scheme and an authority, "host" or "host:port". Returns false as td_origin_read does. */
bool td_origin_of(struct td_text scheme, struct td_text authority, struct td_origin *origin);

bool td_origin_equals(const struct td_origin *a, const struct td_origin *b);

/* Writes the origin as browsers do in the field Origin: small letters, no default port. Returns the length without the
 * NUL. */
size_t td_origin_write(const struct td_origin *origin, char out[TD_ORIGIN_BYTES]);

#endif
