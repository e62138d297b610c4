/* Blobs of published repositories: PUT by their digest, whole or in pieces; POST to them to ask whether all of their
 * pieces have arrived; POST to their folder for a digest that the server says. */
#include "api/call/publish_sink.h"
#include "api/call/publishing.h"
#include "api/native/commit_answer.h"
#include "api/native/publish_handlers.h"
#include "core/digits.h"
#include "core/message/document.h"
#include "http/repr_digest.h"
#include "http/uri.h"

#include <stdio.h>
#include <string.h>

static const char algorithm[] = "sha256:";

/* The parameter that stands for Content-Range where a client can only send the URL that it is given. */
static const char range_name[] = "range";

/* Reads "sha256:HEX". Returns false after it answered 400. */
static bool read_digest(const struct td_call *call, struct td_text text, uint8_t sha256[TD_SHA256_BYTES])
{
    const struct td_text begin = TD_TEXT("sha256:");
    if (td_text_begins(text, begin) && td_hex_read_bytes(td_text_skip(text, begin.len), sha256, TD_SHA256_BYTES))
        return true;
    td_response_fail(call->response, 400, NULL,
                     "a blob's name is sha256: and 64 lower-case hexadecimal digits, not \"%.*s\"", TD_SHOW(text, 100));
    return false;
}

/* Answers with the state of a blob, and frees it. */
static void answer_blob(const struct td_call *call, struct td_publish_blob *blob, int status)
{
    struct td_buffer json;
    struct td_document builder;
    char digest[sizeof algorithm + TD_SHA256_TEXT_BYTES];
    memcpy(digest, algorithm, sizeof algorithm);
    td_hex_write(blob->sha256, TD_SHA256_BYTES, digest + sizeof algorithm - 1);
    td_buffer_init(&json);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    td_document_add_string(&builder, "digest", digest);
    td_document_add_u64(&builder, "size", blob->size_bytes);
    td_document_add_bool(&builder, "complete", blob->is_complete);
    td_commit_answer_add_missing(&builder, blob);
    td_document_end(&builder);
    td_buffer_putc(&json, '\n');
    td_publish_blob_fini(blob);
    td_response_set_text(call->response, "application/json", "no-store", &json);
    td_buffer_fini(&json);
    if (call->response->status != 200)
        return;
    call->response->status = status;
    if (td_uri_parameter(call->uri, range_name) != NULL) /* clients of Git LFS repeat the tag when all parts are sent */
        td_response_add_header(call->response, "ETag", "\"%s\"", digest + sizeof algorithm - 1);
}

/* Answers with what is here of the blob. */
static void answer_found(const struct td_call *call, const struct td_publish_name *name,
                         const uint8_t sha256[TD_SHA256_BYTES])
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_blob blob;
    if (td_publish_find_blob(call->api->publish, name, sha256, &blob, &err))
        answer_blob(call, &blob, 200);
    else
        td_publishing_fail(call, &err, 500);
}

void td_handle_blob(struct td_call *call, const struct td_publish_path *path)
{
    struct td_publish_name name;
    uint8_t sha256[TD_SHA256_BYTES];
    if (td_publishing_look(call, path->id, path->is_dataset, &name) && read_digest(call, path->rest, sha256))
        answer_found(call, &name, sha256);
}

/* ---- PUT ----------------------------------------------------------------------------------------------- */

/* Reads "A-B/N" into *span. Returns false for another text. */
static bool read_range(struct td_text text, struct td_publish_span *span)
{
    uint64_t last;
    struct td_text first = td_text_take_until(&text, '-');
    struct td_text end = td_text_take_until(&text, '/');
    if (!td_number_read(first, INT64_MAX, &span->first) || !td_number_read(end, INT64_MAX - 1, &last) ||
        !td_number_read(text, INT64_MAX, &span->size_bytes) || last < span->first || last >= span->size_bytes)
        return false;
    span->end = last + 1;
    return true;
}

/* Sets *span to the bytes that the request says it has. Returns false after it answered 400 or 411. */
static bool read_span(const struct td_call *call, struct td_publish_span *span)
{
    const struct td_request *request = call->request;
    if (request->body_bytes == TD_BODY_LENGTH_UNKNOWN) {
        td_response_fail(call->response, 411, NULL,
                         "a blob's bytes must come with a Content-Length; POST to blobs takes a body without one");
        return false;
    }
    *span = (struct td_publish_span){.size_bytes = request->body_bytes, .end = request->body_bytes};
    const struct td_text unit = TD_TEXT("bytes ");
    const struct td_text *parameter = td_uri_parameter(call->uri, range_name);
    bool has_field = td_request_has_header(request, "Content-Range");
    if (!has_field && parameter == NULL)
        return true;
    const struct td_header *field = td_request_single_header(request, "Content-Range");
    bool is_good = has_field ? parameter == NULL && field != NULL && td_text_begins(field->value, unit) &&
                                   read_range(td_text_skip(field->value, unit.len), span)
                             : read_range(*parameter, span);
    if (!is_good) {
        td_response_fail(call->response, 400, NULL,
                         "there must be one Content-Range: bytes FIRST-LAST/SIZE, with numbers, within the size, or a "
                         "parameter range=FIRST-LAST/SIZE");
        return false;
    }
    if (span->end - span->first == request->body_bytes)
        return true;
    td_response_fail(call->response, 400, NULL, "the body has another length than its range");
    return false;
}

struct td_body_sink *td_begin_blob_put(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    struct td_publish_span span;
    struct td_publish_part *part;
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name) || !read_digest(call, path->rest, sha256) ||
        !read_span(call, &span))
        return NULL;
    if (!td_publish_part_begin(call->api->publish, &name, sha256, &span, &part, &err)) {
        td_publishing_fail(call, &err, 500);
        return NULL;
    }
    if (part != NULL)
        return td_publish_sink_part(call, part);
    answer_found(call, &name, sha256);
    return NULL;
}

void td_end_blob_put(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    struct td_publish_blob blob;
    enum td_publish_end end;
    struct td_publish_sink *sink = td_publish_sink_of(call);
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name)) /* the token may have been revoked */
        return;
    if (!call->request->is_whole) {
        td_publishing_fail(call, &sink->err, 422);
        return;
    }
    struct td_publish_part *part = sink->part;
    sink->part = NULL;
    if (!td_publish_part_end(part, &end, &blob, &err)) {
        td_publishing_fail(call, &err, 422);
    } else if (end == TD_PUBLISH_WRONG) {
        td_publish_blob_fini(&blob);
        td_response_fail(call->response, 422, NULL,
                         "the bytes have another digest than %.*s, so all of them were dropped",
                         TD_SHOW(path->rest, 100));
    } else {
        answer_blob(call, &blob, end == TD_PUBLISH_COMPLETE ? 201 : 202);
    }
}

/* ---- POST to a blob ------------------------------------------------------------------------------------ */

/* Most bytes of a body that nobody reads: the list of parts that clients of Git LFS send. */
enum { CHECK_BYTES = 1024 * 1024 };

struct td_body_sink *td_begin_blob_check(struct td_call *call, const struct td_publish_path *path)
{
    struct td_publish_name name;
    return td_publishing_begin(call, path->id, path->is_dataset, &name) ? td_publish_sink_text(call, CHECK_BYTES)
                                                                        : NULL;
}

void td_end_blob_check(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    struct td_publish_blob blob;
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name) || !read_digest(call, path->rest, sha256))
        return;
    if (!call->request->is_whole) {
        td_publishing_fail(call, &td_publish_sink_of(call)->err, 413);
        return;
    }
    if (!td_publish_find_blob(call->api->publish, &name, sha256, &blob, &err)) {
        td_publishing_fail(call, &err, 500);
        return;
    }
    if (blob.is_complete) {
        answer_blob(call, &blob, 200);
        return;
    }
    td_publish_blob_fini(&blob);
    td_response_fail(call->response, 409, NULL, "bytes of the blob are missing; a GET of it lists their ranges");
}

/* ---- POST ---------------------------------------------------------------------------------------------- */

struct td_body_sink *td_begin_blob_post(struct td_call *call, const struct td_publish_path *path)
{
    struct td_publish_name name;
    struct td_repr_digest digest;
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name) ||
        !td_repr_digest_read(call->request, &digest, call->response))
        return NULL;
    return td_publish_sink_whole(call, &name);
}

/* Adds the blob's own path as Location. */
static void add_location(const struct td_call *call, const uint8_t sha256[TD_SHA256_BYTES])
{
    char hex[TD_SHA256_TEXT_BYTES];
    struct td_text path = call->uri->raw_path;
    struct td_buffer location;
    td_hex_write(sha256, TD_SHA256_BYTES, hex);
    while (path.len > 0 && path.p[path.len - 1] == '/')
        path.len--;
    td_buffer_init(&location);
    td_buffer_append(&location, path.p, path.len);
    td_buffer_printf(&location, "/%s%s", algorithm, hex);
    if (!location.failed)
        td_response_add_header_text(call->response, "Location", td_buffer_text(&location));
    td_buffer_fini(&location);
}

void td_end_blob_post(struct td_call *call, const struct td_publish_path *path)
{
    struct td_publish_name name;
    struct td_publish_sum sum;
    struct td_repr_digest digest;
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name) ||
        !td_repr_digest_read(call->request, &digest, call->response) ||
        !td_publish_sink_end_whole(call, digest.has_sha256 ? digest.sha256 : NULL, &sum))
        return;
    struct td_publish_blob blob = {.size_bytes = sum.size_bytes, .is_complete = true};
    memcpy(blob.sha256, sum.sha256, sizeof blob.sha256);
    answer_blob(call, &blob, 201);
    if (call->response->status == 201)
        add_location(call, sum.sha256);
}
