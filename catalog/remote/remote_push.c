#include "catalog/remote/remote_push.h"

#include "catalog/remote/remote_model.h"
#include "core/array.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/json/json.h"
#include "core/message/document.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_health.h"
#include "storage/fetch/fetch_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_REPLY_BYTES = 64 * 1024 * 1024, /* of an answer about a commit: 100,000 blobs may be missing */
    MAX_STATE_BYTES = 1024 * 1024,      /* of an answer about a blob */
    MAX_LACKS = 1000000,                /* blobs, and ranges, in one answer */
    MAX_SPANS = 1000,                   /* ranges of one blob, as a tensord lists at most */
    DIGEST_BYTES = sizeof "sha256:" - 1 + TD_SHA256_TEXT_BYTES,
};

static const char dataset_begin[] = "datasets/";

/* ---- ids and paths ------------------------------------------------------------------------------------- */

bool td_remote_push_id_check(struct td_text id, struct td_error *err)
{
    bool is_dataset = td_text_begins(id, TD_TEXT("datasets/"));
    return td_remote_id_check(is_dataset ? td_text_skip(id, sizeof dataset_begin - 1) : id, err);
}

/* Appends "/models/ID" or "/datasets/ID". */
static void append_id(struct td_buffer *out, const char *id)
{
    if (strncmp(id, dataset_begin, sizeof dataset_begin - 1) != 0)
        td_buffer_puts(out, "/models");
    td_buffer_putc(out, '/');
    td_fetch_url_append_path(out, td_text_of(id));
}

/* Writes the digest as the API names it. */
static void write_digest(const uint8_t sha256[TD_SHA256_BYTES], char out[DIGEST_BYTES])
{
    memcpy(out, "sha256:", sizeof "sha256:" - 1);
    td_hex_write(sha256, TD_SHA256_BYTES, out + sizeof "sha256:" - 1);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

void td_remote_lacks_fini(struct td_remote_lacks *lacks)
{
    free(lacks->items);
    free(lacks->spans);
    *lacks = (struct td_remote_lacks){0};
}

/* Reads [[first,last],...], whose first bracket comes next, and appends the ranges to those of the blob, which begin at
 * number `first`. They are in order, and do not overlap. */
static bool read_spans(struct td_json *json, struct td_remote_lacks *lacks, size_t first, struct td_error *err)
{
    enum td_json_token token;
    uint64_t least = lacks->span_count > first ? lacks->spans[lacks->span_count - 1].end : 0;
    if (!td_json_expect(json, TD_JSON_ARRAY_BEGIN, "a list of ranges"))
        return false;
    while ((token = td_json_next(json)) == TD_JSON_ARRAY_BEGIN) {
        struct td_remote_span span;
        uint64_t last = 0;
        if (!td_json_expect(json, TD_JSON_NUMBER, "a number") || !td_json_u64(json, &span.first) ||
            !td_json_expect(json, TD_JSON_NUMBER, "a number") || !td_json_u64(json, &last) ||
            !td_json_expect(json, TD_JSON_ARRAY_END, "the end of the range"))
            return false;
        if (last < span.first || last >= INT64_MAX)
            return td_json_fail(json, "the range is wrong");
        if (span.first < least)
            return td_json_fail(json, "the ranges are not in their order, or overlap");
        if (lacks->span_count == MAX_LACKS || lacks->span_count - first == MAX_SPANS)
            return td_json_fail(json, "there are too many ranges");
        least = span.end = last + 1;
        if (!TD_ARRAY_GROW(lacks->spans, lacks->span_count, lacks->span_capacity, err))
            return false;
        lacks->spans[lacks->span_count++] = span;
    }
    return token == TD_JSON_ARRAY_END || td_json_fail(json, "a range is an array");
}

/* Reads the digest that the reader's latest string is. */
static bool read_digest(struct td_json *json, uint8_t sha256[TD_SHA256_BYTES])
{
    struct td_text text = td_json_raw(json);
    return (td_text_begins(text, TD_TEXT("sha256:")) &&
            td_hex_read_bytes(td_text_skip(text, sizeof "sha256:" - 1), sha256, TD_SHA256_BYTES)) ||
           td_json_fail(json, "the digest is wrong");
}

/* Reads one missing blob; its object has begun. */
static bool read_lack(struct td_json *json, struct td_remote_lacks *lacks, struct td_error *err)
{
    enum td_json_token token;
    struct td_remote_lack lack = {.span_first = lacks->span_count};
    bool has_digest = false;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        bool ok = true;
        if (td_json_equals(json, "digest"))
            ok = has_digest = td_json_expect(json, TD_JSON_STRING, "a digest") && read_digest(json, lack.sha256);
        else if (td_json_equals(json, "missing"))
            ok = read_spans(json, lacks, lack.span_first, err);
        else
            ok = td_json_skip(json);
        if (!ok)
            return false;
    }
    lack.span_count = lacks->span_count - lack.span_first;
    if (token != TD_JSON_OBJECT_END || !has_digest || lacks->count == MAX_LACKS)
        return td_json_fail(json, "a missing blob has no digest, or there are too many");
    if (!TD_ARRAY_GROW(lacks->items, lacks->count, lacks->capacity, err))
        return false;
    lacks->items[lacks->count++] = lack;
    return true;
}

/* Moves the reader to the value of a key of the object that comes next. Returns false when there is none. */
static bool enter_member(struct td_json *json, const char *key)
{
    return td_json_next(json) == TD_JSON_OBJECT_BEGIN && td_json_seek(json, key);
}

bool td_remote_lacks_read(struct td_text body, struct td_remote_lacks *lacks, bool *has_lacks, struct td_error *err)
{
    struct td_json json;
    enum td_json_token token;
    struct td_error why = TD_ERROR_INIT;
    td_json_init(&json, body, 0, &why);
    *has_lacks = enter_member(&json, "error") && enter_member(&json, "details") && enter_member(&json, "missing");
    if (!*has_lacks)
        return true;
    if (!td_json_expect(&json, TD_JSON_ARRAY_BEGIN, "a list of blobs"))
        return td_error_copy(err, &why);
    while ((token = td_json_next(&json)) == TD_JSON_OBJECT_BEGIN)
        if (!read_lack(&json, lacks, &why))
            return td_error_copy(err, &why);
    return token == TD_JSON_ARRAY_END || td_error_copy(err, &why) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "a missing blob is an object");
}

/* Reads an answer about a blob: `missing`, which is empty for a complete one. */
static bool read_state(struct td_text body, struct td_remote_lacks *lacks, bool *is_complete, struct td_error *err)
{
    struct td_json json;
    bool has_complete = false;
    struct td_error why = TD_ERROR_INIT;
    td_json_init(&json, body, 0, &why);
    bool ok = td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object");
    enum td_json_token token = TD_JSON_ERROR;
    while (ok && (token = td_json_next(&json)) == TD_JSON_KEY) {
        if (td_json_equals(&json, "complete")) {
            token = td_json_next(&json);
            has_complete = token == TD_JSON_TRUE || token == TD_JSON_FALSE;
            *is_complete = token == TD_JSON_TRUE;
            ok = has_complete;
        } else if (td_json_equals(&json, "missing")) {
            ok = read_spans(&json, lacks, 0, &why);
        } else {
            ok = td_json_skip(&json);
        }
    }
    return (ok && token == TD_JSON_OBJECT_END && has_complete) || td_error_copy(err, &why) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "it does not say whether the blob is complete");
}

/* Returns what a person does about an answer, or NULL. */
static const char *advice_for(const struct td_fetch_client *client, unsigned status)
{
    switch (status) {
    case 401:
        return td_fetch_client_token_advice(client);
    case 403:
        return td_fetch_client_has_token(client)
                   ? "the token needs the right to write this model: tensord token new NAME --write --models GLOB"
                   : "this machine may not write there: see --publish and --tokens of the server";
    case 404:
        return "is the URL that of a tensord with --publish?";
    case 405:
        return "the server takes no uploads: its operator starts it with --publish";
    case 412:
        return "somebody else has changed it: look at the new state, and give its commit by --parent";
    case 413:
        return "it is more than the server takes";
    case 422:
        return "the file was changed while it was sent, or its bytes on the way";
    case 507:
        return "its operator makes room, or raises --publish-max-bytes";
    default:
        return NULL;
    }
}

/* Sets the error for an answer that is not the wanted one. Returns false. */
static bool refuse_answer(const struct td_fetch_session *session, size_t server, const struct td_fetch_answer *answer,
                          const char *shown, struct td_error *err)
{
    const struct td_fetch_client *client = td_fetch_session_client(session);
    struct td_error why = TD_ERROR_INIT;
    char what[320];
    (void)snprintf(what, sizeof what, "%.100s to %.160s", shown, td_fetch_client_url(client, server));
    (void)td_fetch_fault_of_answer(answer, advice_for(client, answer->status), what, &why);
    if (answer->status == 405)
        why.code = TD_PERMISSION_DENIED;
    if (answer->status == 422)
        why.code = TD_INVALID_ARGUMENT;
    return td_error_copy(err, &why);
}

/* Sets the error for an answer that no tensord gives. Returns false. */
static bool refuse_content(const struct td_fetch_session *session, size_t server, const char *shown,
                           const struct td_error *why, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "%.100s to %.160s: the answer is wrong: %s", shown,
                        td_fetch_client_url(td_fetch_session_client(session), server), why->message);
}

/* ---- commits ------------------------------------------------------------------------------------------- */

static void write_commit(const struct td_remote_commit *commit, struct td_buffer *out)
{
    struct td_document json;
    char digest[DIGEST_BYTES];
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "files");
    for (size_t i = 0; i < commit->count; i++) {
        const struct td_remote_commit_file *file = &commit->files[i];
        write_digest(file->blob.sha256, digest);
        td_document_begin_object(&json, NULL);
        td_document_add_string(&json, "path", file->path);
        td_document_add_string(&json, "digest", digest);
        td_document_add_u64(&json, "size", file->blob.size_bytes);
        td_document_end(&json);
    }
    td_document_end(&json);
    td_document_add_bool(&json, "keep", commit->keeps);
    td_document_add_string(&json, "revision", commit->revision);
    if (commit->parent != NULL)
        td_document_add_string(&json, "parent", commit->parent);
    if (commit->message != NULL)
        td_document_add_string(&json, "message", commit->message);
    if (commit->is_dry_run)
        td_document_add_bool(&json, "dry_run", true);
    td_document_end(&json);
}

/* Reads an answer of 200 or 201. */
static bool read_commit(struct td_text body, struct td_remote_commit_reply *reply, struct td_error *err)
{
    struct td_json json;
    size_t len = 0;
    struct td_error why = TD_ERROR_INIT;
    td_json_init(&json, body, 0, &why);
    bool ok = td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object");
    enum td_json_token token = TD_JSON_ERROR;
    while (ok && (token = td_json_next(&json)) == TD_JSON_KEY) {
        if (td_json_equals(&json, "commit"))
            ok = td_json_expect(&json, TD_JSON_STRING, "a commit") &&
                 td_json_string(&json, reply->commit, sizeof reply->commit, &len);
        else if (td_json_equals(&json, "changed"))
            reply->has_changed = td_json_next(&json) == TD_JSON_TRUE;
        else
            ok = td_json_skip(&json);
    }
    reply->is_made = ok && token == TD_JSON_OBJECT_END && len > 0 && td_hex_is_lower(td_text_of(reply->commit));
    return reply->is_made || td_error_copy(err, &why) || td_error_set(err, TD_INVALID_ARGUMENT, "it names no commit");
}

/* Reads the answer to a commit. */
static bool take_reply(const struct td_fetch_session *session, const struct td_remote_commit *commit,
                       const struct td_fetch_answer *answer, struct td_text body, struct td_remote_commit_reply *reply,
                       struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    bool has_lacks = false;
    if (answer->status == 200 || answer->status == 201)
        return read_commit(body, reply, &why) || refuse_content(session, commit->server, commit->id, &why, err);
    if (answer->status == 409 && !td_remote_lacks_read(body, &reply->lacks, &has_lacks, &why))
        return refuse_content(session, commit->server, commit->id, &why, err);
    return (has_lacks && reply->lacks.count > 0) || refuse_answer(session, commit->server, answer, commit->id, err);
}

bool td_remote_commit_ask(struct td_fetch_session *session, const struct td_remote_commit *commit,
                          struct td_remote_commit_reply *reply, struct td_error *err)
{
    struct td_fetch_answer answer;
    struct td_buffer path, text, body;
    *reply = (struct td_remote_commit_reply){0};
    td_buffer_init(&path);
    td_buffer_init(&text);
    td_buffer_init(&body);
    append_id(&path, commit->id);
    td_buffer_puts(&path, "/commits");
    write_commit(commit, &text);
    const struct td_fetch_request request = {.method = "POST",
                                             .path = td_buffer_terminate(&path),
                                             .fields = {"Content-Type: application/json"},
                                             .text = td_buffer_text(&text),
                                             .fd = -1};
    bool ok = (request.path != NULL && !text.failed) || td_error_no_memory(err);
    ok = ok && td_fetch_session_send(session, &request, MAX_REPLY_BYTES, true, commit->server, &answer, &body, err) &&
         take_reply(session, commit, &answer, td_buffer_text(&body), reply, err);
    td_buffer_fini(&body);
    td_buffer_fini(&text);
    td_buffer_fini(&path);
    return ok;
}

/* ---- blobs --------------------------------------------------------------------------------------------- */

/* A span of a blob on its way. */
struct way {
    struct td_fetch_session *session;
    const struct td_remote_sending *sending;
    struct td_buffer path, body;
    struct td_remote_lacks rest; /* what is to be sent, in its spans; the first of them is number `next` */
    size_t next;
    struct td_fetch_health health;
    struct td_fetch_answer answer;
    bool is_complete;
};

static void count_done(const struct way *way, uint64_t bytes)
{
    if (way->sending->done_bytes != NULL)
        atomic_fetch_add(way->sending->done_bytes, bytes);
}

/* Returns how many bytes are to be sent. */
static uint64_t rest_bytes(const struct way *way)
{
    uint64_t bytes = 0;
    for (size_t i = way->next; i < way->rest.span_count; i++)
        bytes += way->rest.spans[i].end - way->rest.spans[i].first;
    return bytes;
}

/* Sends one range of the file, once. */
static bool put_once(struct way *way, struct td_remote_span span, struct td_error *err)
{
    const struct td_remote_sending *sending = way->sending;
    const uint64_t size_bytes = sending->blob.size_bytes;
    struct td_error why = TD_ERROR_INIT;
    _Atomic uint64_t passed = 0;
    char range[96];
    struct td_fetch_request request = {.method = "PUT",
                                       .path = td_buffer_terminate(&way->path),
                                       .fields = {"Content-Type: application/octet-stream"},
                                       .fd = sending->fd,
                                       .off = span.first,
                                       .len = span.end - span.first,
                                       .sent = {sending->sent_bytes, &passed, sending->done_bytes}};
    if (request.path == NULL)
        return td_error_no_memory(err);
    if (span.first > 0 || span.end < size_bytes) {
        (void)snprintf(range, sizeof range, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, span.first,
                       span.end - 1, size_bytes);
        request.fields[1] = range;
    }
    bool ok = td_fetch_session_send(way->session, &request, MAX_STATE_BYTES, false, sending->server, &way->answer,
                                    &way->body, &why);
    unsigned status = way->answer.status;
    bool is_taken = ok && (status == 200 || status == 201 || status == 202);
    if (is_taken) /* bytes that were sent twice count once, and unsent ones count if the server has them */
        count_done(way, request.len - atomic_load(&passed));
    else
        count_done(way, (uint64_t)0 - atomic_load(&passed));
    if (!ok)
        return td_error_copy(err, &why);
    way->is_complete = status == 200 || status == 201;
    return is_taken || refuse_answer(way->session, sending->server, &way->answer, sending->shown, err);
}

/* Keeps of the rest what the server lacks, by its answer about the blob: at most MAX_SPANS ranges, as the answer. Both
 * lists are in order. */
static bool keep_lacking(struct way *way, const struct td_remote_lacks *lacks, struct td_error *err)
{
    struct td_remote_lacks kept = {0};
    size_t i = way->next;
    size_t j = 0;
    while (i < way->rest.span_count && j < lacks->span_count && kept.span_count < MAX_SPANS) {
        const struct td_remote_span *a = &way->rest.spans[i];
        const struct td_remote_span *b = &lacks->spans[j];
        struct td_remote_span both = {.first = a->first > b->first ? a->first : b->first,
                                      .end = a->end < b->end ? a->end : b->end};
        if (a->end < b->end)
            i++;
        else
            j++;
        if (both.first >= both.end)
            continue;
        if (!TD_ARRAY_GROW(kept.spans, kept.span_count, kept.span_capacity, err)) {
            td_remote_lacks_fini(&kept);
            return false;
        }
        kept.spans[kept.span_count++] = both;
    }
    td_remote_lacks_fini(&way->rest);
    way->rest = kept;
    way->next = 0;
    return true;
}

/* Asks the server what it lacks of the blob, and keeps only that of the rest. Nothing changes if it knows nothing. */
static bool look(struct way *way, struct td_error *err)
{
    struct td_remote_lacks lacks = {0};
    size_t server = way->sending->server;
    const char *path = td_buffer_terminate(&way->path);
    struct td_error why = TD_ERROR_INIT;
    if (!td_fetch_session_get(way->session, path, MAX_STATE_BYTES, true, &server, &way->answer, &way->body, err))
        return false;
    if (way->answer.status == 404)
        return true;
    if (way->answer.status != 200)
        return refuse_answer(way->session, server, &way->answer, way->sending->shown, err);
    bool ok = read_state(td_buffer_text(&way->body), &lacks, &way->is_complete, &why) ||
              refuse_content(way->session, server, way->sending->shown, &why, err);
    if (ok && way->is_complete)
        lacks.span_count = 0;
    ok = ok && keep_lacking(way, &lacks, err);
    td_remote_lacks_fini(&lacks);
    return ok;
}

/* Waits after a failure, and finds out what is still to be sent. */
static bool recover(struct way *way, const struct td_error *why, struct td_error *err)
{
    uint64_t before = rest_bytes(way);
    td_fetch_health_begin_patience(&way->health, way->sending->server, td_clock_ns());
    uint64_t wait_ns = td_fetch_health_failed(&way->health, way->sending->server, &way->answer, td_clock_ns(), why);
    if (td_fetch_health_is_over(&way->health, td_clock_ns(), err))
        return false;
    td_fetch_session_report_failure(way->session, why, wait_ns);
    if (!td_fetch_session_wait(way->session, td_clock_ns() + wait_ns))
        return td_error_set(err, TD_CONFLICT, "stopped while %.100s was to be sent again", way->sending->shown);
    if (!look(way, err))
        return false;
    uint64_t after = rest_bytes(way);
    count_done(way, before - after);
    if (after < before)
        td_fetch_health_progress(&way->health, way->sending->server, td_clock_ns());
    return true;
}

bool td_remote_blob_send(struct td_fetch_session *session, const struct td_remote_sending *sending,
                         struct td_remote_span span, bool *is_complete, struct td_error *err)
{
    char digest[DIGEST_BYTES];
    struct way way = {.session = session, .sending = sending};
    td_buffer_init(&way.path);
    td_buffer_init(&way.body);
    td_fetch_answer_init(&way.answer);
    td_fetch_health_init(&way.health, td_fetch_session_client(session), td_clock_ns());
    for (size_t i = 0; i < way.health.count; i++)
        if (i != sending->server)
            td_fetch_health_leave_out(&way.health, i);
    write_digest(sending->blob.sha256, digest);
    append_id(&way.path, sending->id);
    td_buffer_printf(&way.path, "/blobs/%s", digest);
    bool ok = TD_ARRAY_GROW(way.rest.spans, way.rest.span_count, way.rest.span_capacity, err);
    if (ok)
        way.rest.spans[way.rest.span_count++] = span;
    while (ok && way.next < way.rest.span_count && !way.is_complete) {
        struct td_error why = TD_ERROR_INIT;
        if (put_once(&way, way.rest.spans[way.next], &why)) {
            way.next++;
            td_fetch_health_progress(&way.health, sending->server, td_clock_ns());
        } else {
            ok = why.code == TD_UNAVAILABLE ? recover(&way, &why, err) : td_error_copy(err, &why);
        }
    }
    *is_complete = way.is_complete;
    td_remote_lacks_fini(&way.rest);
    td_buffer_fini(&way.body);
    td_buffer_fini(&way.path);
    return ok;
}
