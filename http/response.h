/* A response: status, headers, and the whole body as extents. Handlers always give the whole representation;
 * conditional.c and range.c cut it down, for all endpoints. For one thread at a time. */
#ifndef TD_HTTP_RESPONSE_H
#define TD_HTTP_RESPONSE_H

#include "core/buffer.h"
#include "core/error.h"
#include "http/request.h"
#include "http/request_id.h"
#include "http/stream.h"
#include "http/trailers.h"
#include "storage/body.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_RESPONSE_HEADERS = 10, TD_HEADER_VALUE_BYTES = 512, TD_ETAG_BYTES = 96, TD_RESPONSE_TOKEN_BYTES = 65 };

/* All routes, each with its label in metrics and in the access log. "none": nothing matched, the request was refused
 * before routing, or it was a preflight of CORS. "hub_file" is a file of the Hub facade; all else of that facade is
 * "hub_api"; so are "oci_manifest", "oci_blob" and "oci_api" of the OCI facade. "rpc" is a call of an unknown method.
 */
#define TD_ROUTES(ROUTE)                                     \
    ROUTE(TD_ROUTE_NONE, "none")                             \
    ROUTE(TD_ROUTE_MODELS, "models")                         \
    ROUTE(TD_ROUTE_MODEL, "model")                           \
    ROUTE(TD_ROUTE_VERSIONS, "versions")                     \
    ROUTE(TD_ROUTE_CHANGES, "changes")                       \
    ROUTE(TD_ROUTE_MANIFEST, "manifest")                     \
    ROUTE(TD_ROUTE_TENSOR, "tensor")                         \
    ROUTE(TD_ROUTE_FILE, "file")                             \
    ROUTE(TD_ROUTE_READ, "read")                             \
    ROUTE(TD_ROUTE_PLANS, "plans")                           \
    ROUTE(TD_ROUTE_PLAN, "plan")                             \
    ROUTE(TD_ROUTE_RANK_FILE, "shard")                       \
    ROUTE(TD_ROUTE_MODEL_FILE, "model_file")                 \
    ROUTE(TD_ROUTE_BLOB, "blob")                             \
    ROUTE(TD_ROUTE_COMMITS, "commits")                       \
    ROUTE(TD_ROUTE_DATASETS, "datasets")                     \
    ROUTE(TD_ROUTE_DATASET, "dataset")                       \
    ROUTE(TD_ROUTE_ROWS, "rows")                             \
    ROUTE(TD_ROUTE_ROW, "row")                               \
    ROUTE(TD_ROUTE_ROWS_BATCH, "rows_batch")                 \
    ROUTE(TD_ROUTE_ROW_INDEX, "row_index")                   \
    ROUTE(TD_ROUTE_HUB_FILE, "hub_file")                     \
    ROUTE(TD_ROUTE_HUB_API, "hub_api")                       \
    ROUTE(TD_ROUTE_OCI_MANIFEST, "oci_manifest")             \
    ROUTE(TD_ROUTE_OCI_BLOB, "oci_blob")                     \
    ROUTE(TD_ROUTE_OCI_UPLOAD, "oci_upload")                 \
    ROUTE(TD_ROUTE_OCI_API, "oci_api")                       \
    ROUTE(TD_ROUTE_HEALTHZ, "healthz")                       \
    ROUTE(TD_ROUTE_READYZ, "readyz")                         \
    ROUTE(TD_ROUTE_METRICS, "metrics")                       \
    ROUTE(TD_ROUTE_OPENAPI, "openapi")                       \
    ROUTE(TD_ROUTE_SCHEMA, "schema")                         \
    ROUTE(TD_ROUTE_VERSION, "version")                       \
    ROUTE(TD_ROUTE_START, "start")                           \
    ROUTE(TD_ROUTE_RESCAN, "rescan")                         \
    ROUTE(TD_ROUTE_SIGN, "sign")                             \
    ROUTE(TD_ROUTE_EVENTS, "events")                         \
    ROUTE(TD_ROUTE_ASSET, "asset")                           \
    ROUTE(TD_ROUTE_VIEW, "view")                             \
    ROUTE(TD_ROUTE_COMPARE, "compare")                       \
    ROUTE(TD_ROUTE_STATUS, "status")                         \
    ROUTE(TD_ROUTE_S3_BUCKET, "s3_bucket")                   \
    ROUTE(TD_ROUTE_S3_LIST, "s3_list")                       \
    ROUTE(TD_ROUTE_S3_OBJECT, "s3_object")                   \
    ROUTE(TD_ROUTE_RPC, "rpc")                               \
    ROUTE(TD_ROUTE_RPC_HEALTH_CHECK, "rpc_health_check")     \
    ROUTE(TD_ROUTE_RPC_HEALTH_LIST, "rpc_health_list")       \
    ROUTE(TD_ROUTE_RPC_HEALTH_WATCH, "rpc_health_watch")     \
    ROUTE(TD_ROUTE_RPC_REFLECT, "rpc_reflect")               \
    ROUTE(TD_ROUTE_RPC_LIST_MODELS, "rpc_list_models")       \
    ROUTE(TD_ROUTE_RPC_GET_MODEL, "rpc_get_model")           \
    ROUTE(TD_ROUTE_RPC_LIST_VERSIONS, "rpc_list_versions")   \
    ROUTE(TD_ROUTE_RPC_GET_MANIFEST, "rpc_get_manifest")     \
    ROUTE(TD_ROUTE_RPC_GET_RANK_FILE, "rpc_get_rank_file")   \
    ROUTE(TD_ROUTE_RPC_WATCH_MODEL, "rpc_watch_model")       \
    ROUTE(TD_ROUTE_RPC_READ_TENSORS, "rpc_read_tensors")     \
    ROUTE(TD_ROUTE_RPC_BATCH_GET_ROWS, "rpc_batch_get_rows") \
    ROUTE(TD_ROUTE_RPC_STREAM_ROWS, "rpc_stream_rows")       \
    ROUTE(TD_ROUTE_RPC_REGISTER_PLAN, "rpc_register_plan")   \
    ROUTE(TD_ROUTE_RPC_GET_PLAN, "rpc_get_plan")             \
    ROUTE(TD_ROUTE_RPC_LIST_DATASETS, "rpc_list_datasets")   \
    ROUTE(TD_ROUTE_RPC_GET_DATASET, "rpc_get_dataset")       \
    ROUTE(TD_ROUTE_RPC_GET_VERSION, "rpc_get_version")       \
    ROUTE(TD_ROUTE_RPC_GET_READINESS, "rpc_get_readiness")   \
    ROUTE(TD_ROUTE_RPC_RESCAN, "rpc_rescan")

#define TD_ROUTE_VALUE(value, label) value,
enum td_route { TD_ROUTES(TD_ROUTE_VALUE) TD_ROUTE_COUNT };
#undef TD_ROUTE_VALUE

/* Returns the route's label, such as "models". Static. */
const char *td_route_name(enum td_route route);

struct td_response_header {
    const char *name; /* static */
    char value[TD_HEADER_VALUE_BYTES];
};

struct td_response {
    int status;
    int sent_status; /* of an error: the status that is sent in place of `status`; 0: none is */
    unsigned form;   /* of the request's errors (td_facade.choose_form) */
    enum td_route route;
    const char *content_type;        /* static, or owned_type; NULL: no body */
    char *owned_type;                /* freed with the response */
    char etag[TD_ETAG_BYTES];        /* with its quotes; empty: none */
    char former_etag[TD_ETAG_BYTES]; /* the tag of the same bytes before they were hashed; a client that names this
                                        tag gets it as the ETag; empty: none */
    int64_t last_modified_s;         /* since 1970; < 0: none */
    const char *cache_control;       /* static; NULL: none */
    bool accept_ranges;              /* ranges apply; also sends Accept-Ranges: bytes */
    bool refuses_empty_ranges;       /* answers a range of an empty body with 416 instead of ignoring it */
    bool close;                      /* end the connection after this answer */
    bool changed;                    /* a file changed since the snapshot: a scan should start */
    bool has_document;               /* the body is a document in the call's kind (td_call_begin_document) */
    bool is_timed;                   /* a header field reports how long the answer took (td_response_add_timing) */
    uint64_t planning_ns; /* the time that planning rank files for the answer took, where it is known; or 0 */
    struct td_response_header headers[TD_RESPONSE_HEADERS];
    size_t header_count;
    const char *allow_origin; /* Access-Control-Allow-Origin, which brings Access-Control-Expose-Headers with it; of the
                                 request's td_cors, borrowed; NULL: neither */
    bool varies_by_origin;    /* every answer to the request has "Vary: Origin" */
    struct td_body body;
    struct td_trailers trailers; /* follow the body; are in the header of an answer without a body */
    struct td_stream *stream;    /* owned; in place of `body`, of a 200 answer that ends the connection; NULL: none */
    const struct td_cancel *cancel; /* the request's; borrowed */
    uint64_t announced_bytes;       /* of a 304: the length that a 200 would have had */
    uint64_t wait_until_ns; /* not 0: this is no answer yet. The request is to be handled again when the catalog has
                               published something, and at this time (td_clock_ns) at the latest */
    bool asks_body;         /* the request's method is not HEAD */
    bool is_for_browser;    /* the request names text/html in Accept, so errors are pages if the facade has some */
    struct td_text kept; /* the id of a model whose folder was removed: the answer counts only if it is of this model,
                            or of one below; borrowed; empty: any answer counts */
    bool is_of_kept;     /* it is, as td_response_note_subject found */
    const struct td_facade *facade;       /* gives errors and entity tags their form; NULL: plain text */
    struct td_text resource;              /* the target without its query, for errors; borrowed from the request */
    char request_id[TD_REQUEST_ID_BYTES]; /* empty: none was chosen yet */
    char token[TD_RESPONSE_TOKEN_BYTES];  /* the name of the token that asked, for the log; empty: none */
};

/* Starts a 200 answer without a facade. */
void td_response_init(struct td_response *response);

/* Starts a 200 answer in the form of the request's facade: adds the field that all its answers have, and where the
 * facade has a field of its own for the request's id, chooses the id and adds that field. Sets the fields of CORS,
 * which every answer to the request has. The request must live as long as errors can be written. */
void td_response_init_for(struct td_response *response, const struct td_request *request);

/* Notes what the answer is about: the path of a file, or the id of a model or repository. */
void td_response_note_subject(struct td_response *response, struct td_text path);

/* Frees the body, the trailers, the stream and owned_type. */
void td_response_fini(struct td_response *response);

/* Adds a header field. `name` must be static; the value is cut at TD_HEADER_VALUE_BYTES - 1 bytes. A field beyond
 * TD_RESPONSE_HEADERS makes the answer a 500: no handler adds so many, and a lost field must not go unnoticed. The
 * value of a second "Vary" joins the first, after a comma, since caches such as nginx 1.22 read one line alone. */
void td_response_add_header(struct td_response *response, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Does the same with a text that is ready. */
void td_response_add_header_text(struct td_response *response, const char *name, struct td_text value);

/* td_response_add_timing reports the time of answers that took at least 1 ms. */
#define TD_TIMED_NS UINT64_C(1000000)

/* Adds Server-Timing (https://www.w3.org/TR/server-timing/), in milliseconds: how long the server took to make the
 * answer, at least TD_TIMED_NS, and planning_ns if that is not 0. Sets is_timed. Does nothing when there are
 * TD_RESPONSE_HEADERS fields already. */
void td_response_add_timing(struct td_response *response, uint64_t took_ns);

/* Chooses the request's id, and adds it as X-Request-Id, unless the answer has an id already. Adds no field when there
 * are TD_RESPONSE_HEADERS already. An error that replaces the answer keeps the id and its field. */
void td_response_add_request_id(struct td_response *response, const struct td_request *request);

/* Sets the ETag: adds the quotes, and the end that the facade gives its tags. A text that is too long for TD_ETAG_BYTES
 * is cut. */
void td_response_set_etag(struct td_response *response, const char *text);

/* Sets the former ETag in the same way. */
void td_response_set_former_etag(struct td_response *response, const char *text);

/* Sets Last-Modified to a file's mtime (ns since 1970), or to now when the mtime is in the future: RFC 9110 section
 * 8.8.2.1 has no date later than the answer's. */
void td_response_set_modified(struct td_response *response, int64_t mtime_ns);

/* A header field on its way to the client; both texts are borrowed. */
struct td_response_field {
    const char *name, *value;
};

enum { TD_RESPONSE_FIELDS = TD_RESPONSE_HEADERS + TD_TRAILERS + 8, TD_RESPONSE_DATE_BYTES = 30 };

/* Lists the fields of the answer's header in the order in which they are sent, with "Connection: close" when
 * response->close is set, but not those that a server adds, such as the body's length. Returns their number. The
 * trailers are among them if there is no body. `date` takes the text of Last-Modified; NULL: only lengths are wanted,
 * and the value is any date, since all have the same length. */
size_t td_response_list_fields(const struct td_response *response, char date[TD_RESPONSE_DATE_BYTES],
                               struct td_response_field fields[TD_RESPONSE_FIELDS]);

/* Marks the body as a representation of this media type (static): clients may cache it if they revalidate it, and
 * ranges apply. */
void td_response_describe(struct td_response *response, const char *content_type);

/* Does the same for bytes that others wrote, such as a file's or a tensor's: also adds X-Content-Type-Options, so that
 * no browser takes them for a script or a page of this server. */
void td_response_describe_bytes(struct td_response *response, const char *content_type);

/* Adds the header fields of every page for browsers: X-Content-Type-Options, Referrer-Policy, and a
 * Content-Security-Policy that allows scripts, styles and images of this server alone, none of them within the page. */
void td_response_add_page_headers(struct td_response *response);

/* Turns the response into an error answer in the form of its facade. Keeps the route, `close`, `changed`, `token` and
 * what td_response_init_for has set; drops all else. The message is for the client, and is cut at 1,023 bytes;
 * `details` is a JSON object that only the native facade shows, or NULL for {}. Adds Retry-After to 503 and 429. Never
 * fails: without memory the answer is an empty 503. */
void td_response_fail(struct td_response *response, int status, const char *details, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Sets Retry-After of an answer that td_response_fail has made a 503 or a 429, in seconds, at least 1. Does nothing for
 * others. */
void td_response_set_retry_after(struct td_response *response, unsigned seconds);

/* Does what td_response_fail does with the facade's own word for the error, for errors whose word does not follow from
 * the status. */
void td_response_fail_as(struct td_response *response, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same for a td_error, without details: the error's code gives the status. TD_UNAVAILABLE also sets
 * response->changed. */
void td_response_fail_error(struct td_response *response, const struct td_error *err);

/* Moves the buffer into the response as the JSON body of a 200 answer, with a validator over its bytes, and leaves the
 * buffer empty. Without memory the response becomes an error. */
void td_response_set_json(struct td_response *response, struct td_buffer *json);

/* Does the same for a JSON buffer whose `len` bytes are taken from the budget, by the buffer itself or by the caller
 * (NULL: from none). The bytes are returned when the last reference to the body is dropped, and also on failure. */
void td_response_set_json_from(struct td_response *response, struct td_buffer *json, struct td_budget *budget);

/* Moves the buffer into the response as the body of a 200 answer of this media type (static), without ranges and
 * without a validator, and leaves the buffer empty. Without memory the response becomes an error. */
void td_response_set_text(struct td_response *response, const char *type, const char *cache_control,
                          struct td_buffer *text);

#endif
