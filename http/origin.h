/* The origin that a client addresses, "https://host:port" (RFC 6454), for absolute URLs in answers. */
#ifndef TD_HTTP_ORIGIN_H
#define TD_HTTP_ORIGIN_H

#include "http/request.h"

#include <stdbool.h>

/* Returns the client's scheme, "http" or "https" (static): by X-Forwarded-Proto, else by whether the request came over
 * TLS. Each proxy appends its scheme to the field, so the client's comes first. A client that forges the field breaks
 * only its own links. */
const char *td_origin_scheme(const struct td_request *request);

/* Returns the host and port of the request's target in absolute-form, else of its field Host, if they can stand in a
 * URL without escapes; else an empty text. Borrowed. X-Forwarded-Host is not read: caches distinguish answers by Host,
 * so a forged host would send other clients elsewhere. */
struct td_text td_origin_host(const struct td_request *request);

#endif
