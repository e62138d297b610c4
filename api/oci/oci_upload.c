#include "api/oci/oci_upload.h"

#include "api/call/publish_sink.h"
#include "api/call/publishing.h"
#include "api/oci/oci_pushed.h"
#include "catalog/names/oci_name.h"
#include "catalog/publish/publish_session.h"
#include "catalog/publish/pushed_manifest.h"
#include "core/digits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sessions ------------------------------------------------------------------------------------------ */

/* The body of a request of a session. */
struct session_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    struct td_publish_session *session;
    uint64_t turn;
    uint64_t bytes; /* that have arrived */
    struct td_error err;
};

static struct session_sink *of(struct td_body_sink *sink)
{
    return (struct session_sink *)(void *)sink;
}

static bool write_session(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct session_sink *self = of(sink);
    self->bytes += len;
    return td_publish_session_write(self->session, self->turn, bytes, len, &self->err);
}

static void release_session(struct td_body_sink *sink)
{
    struct session_sink *self = of(sink);
    td_publish_session_drop(self->session, self->turn); /* unless it counts */
    td_publish_session_unref(self->session);
    free(self);
}

static const struct td_body_sink_ops session_ops = {.write = write_session, .release = release_session};

static void fail_unknown(const struct td_oci_write *write)
{
    (void)td_oci_fail(
        &write->oci, 404, "BLOB_UPLOAD_UNKNOWN",
        "no upload \"%.*s\": it has ended, or it expired, or the machine was started since; begin another",
        TD_SHOW(write->oci.path.reference, 64));
}

/* Returns the session that the path names, with a reference, or NULL after it answered 404. */
static struct td_publish_session *find_session(const struct td_oci_write *write)
{
    struct td_publish_session *session =
        td_publish_session_find(write->oci.call->api->publish, &write->name, write->oci.path.reference);
    if (session == NULL)
        fail_unknown(write);
    return session;
}

/* Answers how far a session is. */
static void answer_session(const struct td_oci_write *write, const char *id, uint64_t bytes, int status)
{
    struct td_response *response = write->oci.call->response;
    char path[TD_PUBLISH_SESSION_ID_BYTES + 32];
    (void)snprintf(path, sizeof path, "blobs/uploads/%s", id);
    if (status < 300)
        td_oci_write_done(write, status);
    td_oci_add_location(&write->oci, path);
    td_response_add_header(response, "Range", "0-%" PRIu64, bytes > 0 ? bytes - 1 : 0);
    td_response_add_header(response, "Docker-Upload-UUID", "%s", id);
}

/* ---- parameters and fields ----------------------------------------------------------------------------- */

/* Reads the parameter `digest`. Returns false after it answered 400. */
static bool read_digest(const struct td_oci_write *write, uint8_t sha256[TD_SHA256_BYTES])
{
    const struct td_text *digest = td_uri_parameter(write->oci.call->uri, "digest");
    if (digest == NULL)
        return td_oci_fail(&write->oci, 400, "DIGEST_INVALID", "the parameter \"digest\" is missing");
    if (td_pushed_digest_read(*digest, sha256))
        return true;
    return td_oci_fail(&write->oci, 400, "DIGEST_INVALID",
                       "\"%.*s\" is no digest that this registry takes: sha256: and 64 lower-case hexadecimal digits",
                       TD_SHOW(*digest, 160));
}

/* The bytes that a chunk is, by its Content-Range. */
struct span {
    bool is_known;
    uint64_t first, last;
};

/* Reads Content-Range, "FIRST-LAST" without a unit. Returns false after it answered 400. */
static bool read_span(const struct td_oci_write *write, struct span *span)
{
    const struct td_request *request = write->oci.call->request;
    const struct td_header *field = td_request_single_header(request, "Content-Range");
    *span = (struct span){.is_known = field != NULL};
    if (!td_request_has_header(request, "Content-Range"))
        return true;
    struct td_text last = field == NULL ? TD_TEXT("") : field->value;
    struct td_text first = td_text_take_until(&last, '-');
    return (td_number_read(first, INT64_MAX, &span->first) && td_number_read(last, INT64_MAX, &span->last) &&
            span->first <= span->last) ||
           td_oci_fail(&write->oci, 400, "BLOB_UPLOAD_INVALID", "Content-Range of a chunk is FIRST-LAST, in bytes");
}

/* Checks that a chunk has as many bytes as its Content-Range says. Returns false after it answered 400. */
static bool check_length(const struct td_oci_write *write, const struct span *span, uint64_t bytes)
{
    return !span->is_known || bytes == span->last - span->first + 1 ||
           td_oci_fail(&write->oci, 400, "SIZE_INVALID", "Content-Range has %" PRIu64 " bytes, and the body %" PRIu64,
                       span->last - span->first + 1, bytes);
}

/* Checks that a chunk begins where the bytes that count end. Without Content-Range it does. Returns false after it
 * answered: 400, or 416 with how far the session is. */
static bool check_range(const struct td_oci_write *write, struct td_publish_session *session)
{
    struct span span;
    uint64_t announced = write->oci.call->request->body_bytes;
    uint64_t bytes = td_publish_session_bytes(session);
    if (!read_span(write, &span))
        return false;
    if (span.is_known && span.first != bytes) {
        (void)td_oci_fail(&write->oci, 416, "BLOB_UPLOAD_INVALID",
                          "the chunk begins at byte %" PRIu64 ", and %" PRIu64 " bytes are here", span.first, bytes);
        answer_session(write, td_publish_session_id(session), bytes, 416);
        return false;
    }
    return announced == TD_BODY_LENGTH_UNKNOWN || check_length(write, &span, announced);
}

/* Returns whether the repository has this blob. */
static bool has_blob(const struct td_oci_write *write, const uint8_t sha256[TD_SHA256_BYTES])
{
    return td_publish_has_blob(write->oci.call->api->publish, &write->name, sha256);
}

/* ---- mounts -------------------------------------------------------------------------------------------- */

#define MOUNT_MAX_BYTES (UINT64_C(1) << 30) /* longer blobs would be copied for longer than clients wait */

/* Copies a blob of another repository, if the caller may see that, into this one. A hard link would change the time of
 * a file that is served. Returns false when that cannot be done. */
static bool mount_blob(const struct td_oci_write *write, struct td_text from, const uint8_t sha256[TD_SHA256_BYTES])
{
    const struct td_call *call = write->oci.call;
    struct td_oci_call source = {.call = call, .path = {.name = from}, .pushed = {.fd = -1}};
    struct td_blob *blob = NULL;
    struct td_publish_sum sum;
    char hex[TD_SHA256_TEXT_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, hex);
    if (call->snapshot == NULL)
        return false;
    source.repo = td_oci_name_find(call->snapshot, from);
    bool ok = td_oci_look_at_pushed(&source) && td_oci_pushed_map_blob(&source, td_text_of(hex), &blob, NULL) &&
              blob->len_bytes <= MOUNT_MAX_BYTES &&
              td_publish_stream_copy(call->api->publish, &write->name, blob, sha256, &sum, NULL);
    td_blob_unref(blob);
    td_publish_repo_look_end(&source.pushed);
    return ok;
}

/* Mounts the blob that the parameter `mount` names. Returns false, without an answer, when that cannot be done. */
static bool answer_mount(const struct td_oci_write *write)
{
    const struct td_text *mount = td_uri_parameter(write->oci.call->uri, "mount");
    const struct td_text *from = td_uri_parameter(write->oci.call->uri, "from");
    uint8_t sha256[TD_SHA256_BYTES];
    if (mount == NULL || !td_pushed_digest_read(*mount, sha256))
        return false;
    bool ok = has_blob(write, sha256) || (from != NULL && mount_blob(write, *from, sha256));
    if (ok)
        td_oci_write_made_blob(write, sha256);
    return ok;
}

/* ---- POST ---------------------------------------------------------------------------------------------- */

/* Begins a blob that comes in this request. */
static struct td_body_sink *begin_whole(const struct td_oci_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_call *call = write->oci.call;
    struct td_publish_stream *stream;
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes = call->request->body_bytes;
    if (!read_digest(write, sha256))
        return NULL;
    if (has_blob(write, sha256)) {
        td_oci_write_made_blob(write, sha256);
        return NULL;
    }
    if (size_bytes == TD_BODY_LENGTH_UNKNOWN)
        size_bytes = TD_FETCH_SIZE_UNKNOWN;
    if (td_publish_stream_begin(call->api->publish, &write->name, size_bytes, &stream, &err))
        return td_publish_sink_stream(call, stream);
    td_oci_write_fail(write, &err, "BLOB_UPLOAD_INVALID");
    return NULL;
}

struct td_body_sink *td_oci_upload_begin_post(struct td_oci_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_call *call = write->oci.call;
    struct td_publish_session *session;
    const struct td_text *algorithm = td_uri_parameter(call->uri, "digest-algorithm");
    if (algorithm != NULL && !td_text_equals(*algorithm, "sha256")) {
        (void)td_oci_fail(&write->oci, 400, "DIGEST_INVALID", "this registry names blobs by sha256 alone");
        return NULL;
    }
    if (answer_mount(write))
        return NULL;
    if (td_uri_parameter(call->uri, "digest") != NULL)
        return begin_whole(write);
    if (td_publish_session_begin(call->api->publish, &write->name, call->response->token, &session, &err)) {
        answer_session(write, td_publish_session_id(session), 0, 202);
        td_publish_session_unref(session);
    } else {
        td_oci_write_fail(write, &err, "BLOB_UPLOAD_INVALID");
    }
    return NULL;
}

void td_oci_upload_end_post(struct td_oci_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_call *call = write->oci.call;
    struct td_publish_sum sum;
    uint8_t sha256[TD_SHA256_BYTES];
    if (!read_digest(write, sha256))
        return;
    struct td_publish_sink *sink = td_publish_sink_of(call);
    struct td_publish_stream *stream = sink->stream;
    if (!call->request->is_whole) {
        td_oci_write_fail(write, &sink->err, "SIZE_INVALID");
        return;
    }
    sink->stream = NULL;
    if (td_publish_stream_end(stream, sha256, &sum, &err))
        td_oci_write_made_blob(write, sha256);
    else
        td_oci_write_fail(write, &err, "DIGEST_INVALID");
}

/* ---- PATCH and PUT ------------------------------------------------------------------------------------- */

/* Returns a sink for the body of a session, which it takes over; NULL after it answered. */
static struct td_body_sink *make_sink(const struct td_oci_write *write, struct td_publish_session *session)
{
    struct session_sink *self = NULL;
    if (check_range(write, session)) {
        self = calloc(1, sizeof *self);
        if (self == NULL)
            (void)td_call_no_memory(write->oci.call);
    }
    uint64_t turn = self == NULL ? 0 : td_publish_session_turn(session);
    if (turn > 0) {
        *self = (struct session_sink){
            .sink = {.ops = &session_ops}, .session = session, .turn = turn, .err = TD_ERROR_INIT};
        return &self->sink;
    }
    if (self != NULL)
        fail_unknown(write);
    free(self);
    td_publish_session_unref(session);
    return NULL;
}

struct td_body_sink *td_oci_upload_begin_patch(struct td_oci_write *write)
{
    struct td_publish_session *session = find_session(write);
    return session == NULL ? NULL : make_sink(write, session);
}

struct td_body_sink *td_oci_upload_begin_put(struct td_oci_write *write)
{
    uint8_t sha256[TD_SHA256_BYTES];
    if (!read_digest(write, sha256))
        return NULL;
    struct td_publish_session *session =
        td_publish_session_find(write->oci.call->api->publish, &write->name, write->oci.path.reference);
    if (session != NULL)
        return make_sink(write, session);
    if (has_blob(write, sha256)) /* a client asks again whose first answer was lost */
        td_oci_write_made_blob(write, sha256);
    else
        fail_unknown(write);
    return NULL;
}

/* Answers that a body could not be taken. */
static void fail_body(const struct td_oci_write *write, const struct td_error *err)
{
    if (err->code == TD_CONFLICT)
        (void)td_oci_fail(&write->oci, 409, "BLOB_UPLOAD_INVALID", "%s", err->message);
    else
        td_oci_write_fail(write, err, "BLOB_UPLOAD_INVALID");
}

/* Returns whether the body has arrived whole, with the bytes that its Content-Range says. Else answers. */
static bool check_body(const struct td_oci_write *write, const struct session_sink *sink)
{
    struct span span;
    if (write->oci.call->request->is_whole)
        return read_span(write, &span) && check_length(write, &span, sink->bytes);
    fail_body(write, &sink->err);
    return false;
}

void td_oci_upload_end_patch(struct td_oci_write *write)
{
    uint64_t bytes;
    struct session_sink *sink = of(write->oci.call->request->sink);
    if (!check_body(write, sink))
        return;
    if (td_publish_session_keep(sink->session, sink->turn, &bytes, &sink->err))
        answer_session(write, td_publish_session_id(sink->session), bytes, 202);
    else
        fail_body(write, &sink->err);
}

void td_oci_upload_end_put(struct td_oci_write *write)
{
    struct td_publish_sum sum;
    uint8_t sha256[TD_SHA256_BYTES];
    struct session_sink *sink = of(write->oci.call->request->sink);
    if (!read_digest(write, sha256) || !check_body(write, sink))
        return;
    if (td_publish_session_end(sink->session, sink->turn, sha256, &sum, &sink->err))
        td_oci_write_made_blob(write, sha256);
    else if (sink->err.code == TD_FAILED_PRECONDITION)
        (void)td_oci_fail(&write->oci, 400, "DIGEST_INVALID", "%s", sink->err.message);
    else
        fail_body(write, &sink->err);
}

/* ---- others -------------------------------------------------------------------------------------------- */

void td_oci_upload_look(struct td_oci_write *write)
{
    struct td_publish_session *session = find_session(write);
    if (session == NULL)
        return;
    answer_session(write, td_publish_session_id(session), td_publish_session_bytes(session), 204);
    td_publish_session_unref(session);
}

void td_oci_upload_cancel(struct td_oci_write *write)
{
    struct td_publish_session *session = find_session(write);
    if (session == NULL)
        return;
    td_publish_session_cancel(session);
    td_publish_session_unref(session);
    td_oci_write_done(write, 204);
}

void td_oci_upload_delete_blob(struct td_oci_write *write)
{
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_text hex;
    if (!td_oci_read_digest(&write->oci, &hex))
        return;
    if (!td_hex_read_bytes(hex, sha256, sizeof sha256) || !has_blob(write, sha256)) {
        (void)td_oci_fail(&write->oci, 404, "BLOB_UNKNOWN", "no such blob was pushed");
        return;
    }
    (void)td_oci_fail(&write->oci, 405, "UNSUPPORTED",
                      "a blob goes by itself when no manifest and no commit names it (--upload-expires)");
    td_response_add_header_text(write->oci.call->response, "Allow", TD_TEXT("GET, HEAD"));
}
