/* Request targets: splitting, percent-decoding, percent-encoding (RFC 3986) and query parameters. */
#ifndef TD_HTTP_URI_H
#define TD_HTTP_URI_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"
#include "http/request.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_URI_MAX_PARAMETERS = 16 };

struct td_parameter {
    struct td_text name, value; /* decoded */
};

/* A decoded target. path and parameters point into `memory`. */
struct td_uri {
    char *memory;
    struct td_text path;     /* decoded, begins with '/', valid UTF-8, no NUL */
    struct td_text raw_path; /* the same as it came, in the target */
    struct td_parameter parameters[TD_URI_MAX_PARAMETERS];
    size_t parameter_count;
};

/* What a query may hold: each parameter once and no more than TD_URI_MAX_PARAMETERS; or, where clients repeat them, the
 * first of each counts and what is too much is passed over. */
enum td_uri_query { TD_URI_STRICT, TD_URI_REPEATS };

/* Takes a target in origin-form or absolute-form (RFC 9112 section 3.2) apart. %2F in a path is a '/', so encoded
 * and plain slashes are the same; '+' in a query is a blank (the form encoding that clients use). Errors
 * (TD_INVALID_ARGUMENT): a bad escape, %00, not UTF-8, a parameter twice, too many. Call fini in every case. */
bool td_uri_parse(struct td_uri *uri, struct td_text target, enum td_uri_query query, struct td_error *err);
void td_uri_fini(struct td_uri *uri);

/* The path of a target as it came: without authority and query. */
struct td_text td_uri_raw_path(struct td_text target);

/* Decodes a part of a raw path, or (plus_is_blank) of a form, to out, which has room for text.len bytes. Errors as
 * td_uri_parse. */
bool td_uri_decode(struct td_text text, bool plus_is_blank, char *out, size_t *len, struct td_error *err);

/* The parameter's value, or NULL. */
const struct td_text *td_uri_parameter(const struct td_uri *uri, const char *name);

/* Appends text with everything but unreserved characters (and '/', when keep_slash) percent-encoded. */
void td_uri_encode(struct td_buffer *out, struct td_text text, bool keep_slash);

#endif
