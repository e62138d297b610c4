/* URLs of servers that files are fetched from: a base, such as http://host:8080 or https://host/prefix, and paths below
 * it. Pure. */
#ifndef TD_STORAGE_FETCH_FETCH_URL_H
#define TD_STORAGE_FETCH_FETCH_URL_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>

/* Checks a base URL and sets *base to it without slashes at its end (borrowed from `url`). The scheme is http or https;
 * a name or an address must follow. Errors, TD_INVALID_ARGUMENT: another scheme, characters that are no printable ASCII
 * (RFC 3986 section 2), a user or a password, a query or a fragment, more than 2,000 bytes. No message repeats a
 * password. */
bool td_fetch_url_check(const char *url, struct td_text *base, struct td_error *err);

/* Appends "; did you mean URL?" for a URL without a scheme, and for one of the Python client's (tensord://HOST/MODEL,
 * tensords://); nothing for other schemes. */
void td_fetch_url_suggest(const char *url, struct td_buffer *out);

/* Returns whether a URL that td_fetch_url_check accepts has the scheme https. */
bool td_fetch_url_has_tls(struct td_text base);

/* Returns the path of such a URL, from its '/' on; empty when it has none. */
struct td_text td_fetch_url_path(struct td_text base);

/* Appends the path to a buffer and percent-encodes all bytes but '/', letters, digits and "-._~" (RFC 3986 section
 * 2.3). */
void td_fetch_url_append_path(struct td_buffer *out, struct td_text path);

#endif
