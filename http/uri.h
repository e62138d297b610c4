/* Request targets: splitting, percent-decoding, percent-encoding (RFC 3986) and query parameters. */
#ifndef TD_HTTP_URI_H
#define TD_HTTP_URI_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_URI_MAX_PARAMETERS = 16 };

struct td_parameter {
    struct td_text name, value; /* decoded */
};

/* A decoded target. path and parameters point into `memory`, which it owns. */
struct td_uri {
    char *memory;
    struct td_text path;     /* decoded, begins with '/', valid UTF-8, no NUL */
    struct td_text raw_path; /* the path before decoding; borrowed from the target */
    struct td_parameter parameters[TD_URI_MAX_PARAMETERS];
    size_t parameter_count;
};

/* How a query is read. STRICT: a parameter that is given twice and more than TD_URI_MAX_PARAMETERS are errors. REPEATS,
 * for clients that repeat parameters: the first of each name counts, and everything beyond the limit is ignored. */
enum td_uri_query { TD_URI_STRICT, TD_URI_REPEATS };

/* Splits and decodes a target in origin-form or absolute-form (RFC 9112 section 3.2). %2F in a path is a '/', so
 * encoded and plain slashes are the same; '+' in a query is a blank (the form encoding that clients use). Errors:
 * TD_INVALID_ARGUMENT (a bad escape, %00, not UTF-8, a parameter twice, too many), TD_RESOURCE_EXHAUSTED. Call
 * td_uri_fini in every case. */
bool td_uri_parse(struct td_uri *uri, struct td_text target, enum td_uri_query query, struct td_error *err);
void td_uri_fini(struct td_uri *uri);

/* Returns the path of a target before decoding, without authority and query; borrowed from the target. */
struct td_text td_uri_raw_path(struct td_text target);

/* Returns the host and the port, if it has one, of a target in absolute-form; borrowed from the target. They replace
 * the field Host (RFC 9112 section 3.2.2). Returns a text whose p is NULL for a target in another form. */
struct td_text td_uri_authority(struct td_text target);

/* Returns the query of a target before decoding, without its '?'; empty without a query. Borrowed from the target.
 */
struct td_text td_uri_raw_query(struct td_text target);

/* Decodes a part of a raw path, or of a form (plus_is_blank: '+' is a blank). Writes to `out`, which has room for
 * text.len bytes, and sets *len. `what` names the whole text in messages: TD_URI_TARGET. Errors: TD_INVALID_ARGUMENT (a
 * bad escape, a NUL, not UTF-8). */
bool td_uri_decode(struct td_text text, bool plus_is_blank, const char *what, char *out, size_t *len,
                   struct td_error *err);
#define TD_URI_TARGET "the request target"

/* Returns the parameter's decoded value, which lives as long as `uri`, or NULL when the query has no such parameter. */
const struct td_text *td_uri_parameter(const struct td_uri *uri, const char *name);

/* Appends text; percent-encodes everything but unreserved characters (and '/', when keep_slash). */
void td_uri_encode(struct td_buffer *out, struct td_text text, bool keep_slash);

#endif
