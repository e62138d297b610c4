/* Bytes of a body are fetched by jobs, when libnghttp2 asks for them: it does so only while the client's windows are
 * open. A large piece is fetched only where the windows take all of it at once. */
#include "server/h2/h2_answer.h"

#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE_PIECES = 8 }; /* of a connection at once */

/* Notes that the stream has no large piece any more. */
static void drop_large(struct td_h2_stream *stream)
{
    stream->session->large_pieces -= stream->is_large ? 1 : 0;
    stream->is_large = false;
}

static void free_piece(struct td_h2_stream *stream)
{
    drop_large(stream);
    free(stream->piece);
    stream->piece = NULL;
    stream->piece_len = stream->piece_at = 0;
}

/* Copies bytes of the answer that are at hand to `out`, and returns their number. */
static size_t copy_bytes(struct td_h2_stream *stream, uint8_t *out, size_t most)
{
    size_t left = stream->piece_len - stream->piece_at;
    size_t n = left < most ? left : most;
    if (stream->piece != NULL) {
        memcpy(out, stream->piece + stream->piece_at, n);
        stream->piece_at += n;
        if (stream->piece_at == stream->piece_len)
            free_piece(stream);
        return n;
    }
    const uint64_t rest = stream->body.total_bytes - stream->body_done;
    n = rest < most ? (size_t)rest : most;
    if (!stream->is_in_memory || n == 0 || !td_body_read(&stream->body, &stream->cursor, out, n, NULL))
        return 0;
    stream->body_done += n;
    return n;
}

bool td_h2_answer_is_exhausted(const struct td_h2_stream *stream)
{
    return stream->piece == NULL && stream->body_done == stream->body.total_bytes;
}

/* Returns the length of the complete frames of messages at the beginning of the upload (gRPC over HTTP/2, "Length-
 * Prefixed-Message"): a byte of flags, the length of the message in four bytes, and the message. */
static size_t complete_frames(const struct td_h2_stream *stream)
{
    enum { HEAD = 5 };
    const uint8_t *bytes = (const uint8_t *)stream->upload.data;
    size_t at = 0;
    while (stream->upload.len - at >= HEAD) {
        const uint8_t *head = bytes + at;
        const size_t len = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | (size_t)head[4];
        if (len > stream->upload.len - at - HEAD)
            break;
        at += HEAD + len;
    }
    return at;
}

/* Gives the first bytes of the upload to the work as the request's body. */
static void hand_over(struct td_h2_stream *stream, size_t len)
{
    struct td_buffer rest;
    td_buffer_init(&rest);
    if (len < stream->upload.len)
        td_buffer_append(&rest, stream->upload.data + len, stream->upload.len - len);
    if (rest.failed)
        stream->no_room_for = TD_UPLOAD_NO_MEMORY;
    stream->upload.len = len;
    td_buffer_fini(&stream->request_body);
    stream->request_body = stream->upload;
    stream->upload = rest;
}

void td_h2_answer_begin(struct td_h2_stream *stream)
{
    stream->task = TD_H2_TASK_ANSWER;
    stream->handling_ns = td_clock_ns();
    stream->refused_for = stream->no_room_for;
    td_h2_crew_add(&stream->session->crew, stream);
}

bool td_h2_answer_messages(struct td_h2_stream *stream)
{
    size_t len = stream->no_room_for == TD_UPLOAD_FITS ? complete_frames(stream) : 0;
    const bool is_last = stream->has_input_ended && (stream->upload.len > 0 || !stream->has_answer);
    if (stream->is_at_work || (len == 0 && !is_last && stream->no_room_for == TD_UPLOAD_FITS))
        return false;
    if (len == 0)
        len = stream->upload.len; /* the answer refuses a message that is not complete */
    if (len > 0)
        hand_over(stream, len);
    td_h2_answer_begin(stream);
    return true;
}

void td_h2_answer_whole(struct td_h2_stream *stream)
{
    hand_over(stream, stream->upload.len);
    stream->drops_input = true;
    td_h2_answer_begin(stream);
}

void td_h2_answer_resume(struct td_h2_stream *stream)
{
    if (!stream->is_starved)
        return;
    stream->is_starved = false;
    (void)nghttp2_session_resume_data(stream->session->nghttp2, stream->id);
}

/* Has the next bytes of the answer fetched, if there may be any. Returns false at its end. */
static bool fetch_more(struct td_h2_stream *stream)
{
    struct td_h2_session *session = stream->session;
    if (stream->is_at_work)
        return true;
    if (stream->body_done < stream->body.total_bytes) {
        const int32_t window = nghttp2_session_get_stream_remote_window_size(session->nghttp2, stream->id);
        const int32_t shared = nghttp2_session_get_remote_window_size(session->nghttp2);
        const bool is_large = window >= TD_H2_LARGE_BYTES && shared >= TD_H2_LARGE_BYTES &&
                              session->large_pieces < LARGE_PIECES &&
                              stream->body.total_bytes - stream->body_done > TD_H2_SMALL_BYTES;
        stream->wanted_bytes = is_large ? TD_H2_LARGE_BYTES : TD_H2_SMALL_BYTES;
        stream->is_large = is_large;
        session->large_pieces += is_large ? 1 : 0;
        stream->task = TD_H2_TASK_PIECE;
        td_h2_crew_add(&session->crew, stream);
        return true;
    }
    if (stream->events != NULL) {
        stream->task = TD_H2_TASK_EVENTS;
        td_h2_crew_add(&session->crew, stream);
        return true;
    }
    if (!stream->answers_each || stream->body.total_bytes == 0) /* an error, which has no body, ends the answer */
        return false;
    return td_h2_answer_messages(stream) || !stream->has_input_ended;
}

static nghttp2_nv field_of(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

/* Submits the trailers, which end the answer. */
static bool submit_trailers(struct td_h2_stream *stream)
{
    nghttp2_nv fields[TD_TRAILERS];
    const struct td_trailers *trailers = &stream->trailers;
    for (size_t i = 0; i < trailers->count; i++)
        fields[i] = field_of(trailers->fields[i].name, trailers->fields[i].value);
    return nghttp2_submit_trailer(stream->session->nghttp2, stream->id, fields, trailers->count) == 0;
}

/* Gives libnghttp2 bytes of the body. A function of its kind nghttp2_data_source_read_callback. */
static ssize_t give_bytes(nghttp2_session *nghttp2, int32_t id, uint8_t *out, size_t most, uint32_t *flags,
                          nghttp2_data_source *source, void *context)
{
    struct td_h2_stream *stream = source->ptr;
    (void)nghttp2, (void)id, (void)context;
    size_t n = 0;
    if (!stream->is_at_work)
        n = copy_bytes(stream, out, most);
    stream->sent_bytes += n;
    if (stream->is_at_work || !td_h2_answer_is_exhausted(stream) || fetch_more(stream)) {
        if (n == 0 && !stream->is_at_work && !td_h2_answer_is_exhausted(stream) && stream->is_in_memory)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        if (n == 0 && !stream->is_at_work && !td_h2_answer_is_exhausted(stream))
            (void)fetch_more(stream);
        stream->is_starved = n == 0;
        return n > 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream->trailers.count > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (!submit_trailers(stream))
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

enum { STATUS_BYTES = 16, NAMES_BYTES = 1024 };

/* Copies the name of a field in lower case (RFC 9113 section 8.2.1) to `names`, where `used` bytes are taken.
 * Returns the copy, or NULL when there is no room. */
static const char *lower_name(const char *name, char names[NAMES_BYTES], size_t *used)
{
    const size_t len = strlen(name);
    char *copy = names + *used;
    if (len >= NAMES_BYTES - *used)
        return NULL;
    for (size_t i = 0; i <= len; i++)
        copy[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    *used += len + 1;
    return copy;
}

/* Submits the header of the answer, and drops the response. Returns false when memory is short. */
static bool submit_header(struct td_h2_stream *stream)
{
    char date[TD_RESPONSE_DATE_BYTES];
    char status[STATUS_BYTES];
    char names[NAMES_BYTES];
    size_t used = 0;
    struct td_response_field fields[TD_RESPONSE_FIELDS];
    nghttp2_nv all[TD_RESPONSE_FIELDS + 1];
    struct td_response *response = stream->response;
    const size_t count = td_response_list_fields(response, date, fields);
    bool ok = true;
    (void)snprintf(status, sizeof status, "%d", response->status);
    all[0] = field_of(":status", status);
    for (size_t i = 0; i < count && ok; i++) {
        const char *name = lower_name(fields[i].name, names, &used);
        ok = name != NULL;
        if (ok)
            all[i + 1] = field_of(name, fields[i].value);
    }
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = give_bytes};
    stream->is_of_events = stream->events != NULL;
    const bool has_body = stream->is_of_events || !td_h2_answer_is_exhausted(stream) || stream->trailers.count > 0;
    ok = ok && nghttp2_submit_response(stream->session->nghttp2, stream->id, all, count + 1,
                                       has_body ? &provider : NULL) == 0;
    td_response_fini(response);
    free(response);
    stream->response = NULL;
    stream->has_answer = true;
    stream->progress_ns = stream->window_ns = td_clock_ns();
    return ok;
}

void td_h2_answer_break_off(struct td_h2_stream *stream, enum td_cut cut)
{
    stream->cut = cut;
    td_h2_session_reset(stream, cut == TD_CUT_STALLED || cut == TD_CUT_SLOW ? NGHTTP2_CANCEL : NGHTTP2_INTERNAL_ERROR);
}

void td_h2_answer_continue(struct td_h2_stream *stream)
{
    const bool was_answer = stream->task == TD_H2_TASK_ANSWER;
    stream->progress_ns = td_clock_ns();
    if (was_answer)
        td_h2_stream_drop_answered(stream);
    if (stream->has_failed) {
        td_h2_answer_break_off(stream, stream->failed_cut);
    } else if (!stream->has_answer && stream->response != NULL) {
        if (!submit_header(stream))
            td_h2_answer_break_off(stream, TD_CUT_BUSY);
    } else if (stream->has_answer) {
        td_h2_answer_resume(stream);
    }
}

void td_h2_answer_end_conversation(struct td_h2_stream *stream)
{
    static const char unavailable[] = "14";
    struct td_buffer value;
    td_buffer_init(&value);
    td_buffer_puts(&value, unavailable);
    td_trailers_fini(&stream->trailers);
    (void)td_trailers_add(&stream->trailers, "grpc-status", &value);
    td_buffer_fini(&value);
    stream->answers_each = false;
    stream->drops_input = true;
    td_h2_answer_resume(stream);
}
