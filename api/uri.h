/* Request targets: splitting, percent-decoding, percent-encoding (RFC 3986) and query parameters. */
#ifndef TD_API_URI_H
#define TD_API_URI_H

#include "api/request.h"
#include "core/buffer.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_URI_MAX_PARAMETERS = 16 };

struct td_parameter {
    struct td_text name, value; /* decoded */
};

/* A decoded target. path and parameters point into `memory`. */
struct td_uri {
    char *memory;
    struct td_text path; /* decoded, begins with '/', valid UTF-8, no NUL */
    struct td_parameter parameters[TD_URI_MAX_PARAMETERS];
    size_t parameter_count;
};

/* Takes a target in origin-form or absolute-form (RFC 9112 section 3.2) apart. %2F in a path is a '/', so encoded
 * and plain slashes are the same; '+' in a query is a blank (the form encoding that clients use). Errors
 * (TD_INVALID_ARGUMENT): a bad escape, %00, not UTF-8, a parameter twice, too many. Call fini in every case. */
bool td_uri_parse(struct td_uri *uri, struct td_text target, struct td_error *err);
void td_uri_fini(struct td_uri *uri);

/* The parameter's value, or NULL. */
const struct td_text *td_uri_parameter(const struct td_uri *uri, const char *name);

/* Appends text with everything but unreserved characters (and '/', when keep_slash) percent-encoded. */
void td_uri_encode(struct td_buffer *out, const char *text, size_t len, bool keep_slash);

#endif
