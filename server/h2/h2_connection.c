/* libnghttp2 is given the bytes that arrive, calls back for each event, and gives the bytes to be sent, a frame at a
 * time. What is hard:
 *   - A stream that the client has reset may still be worked for. It is then only marked (`is_gone`), and is freed when
 *     it comes back; the same holds for all streams of a connection that has ended, and for the connection itself.
 *   - Nothing is read while TD_H2_OUT_BYTES or more wait to be sent. A client that does not read its answers can
 *     therefore not make the server queue more of them.
 *   - Bytes of a body are fetched by jobs, when libnghttp2 asks for them: it does so only while the client's windows
 *     are open. A large piece is fetched only where the windows take all of it at once.
 *   - Deadlines are those of HTTP/1.1, but are judged here for each stream: one connection carries many. */
#include "server/h2/h2_connection.h"

#include "core/clock.h"
#include "server/h2/h2_frames.h"
#include "server/h2/h2_socket.h"
#include "server/h2/h2_work.h"
#include "server/net/tcp_socket.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OUT_BYTES = 64 * 1024,       /* waiting to be sent: more is not taken from libnghttp2, but for one frame */
    READ_BYTES = 16 * 1024,      /* read at a time */
    READS = 8,                   /* of a connection, before the others have their turn */
    LARGE_PIECES = 8,            /* of a connection at once */
    OBJECTS = 2 * TD_H2_STREAMS, /* streams, with those that the client has reset and a thread still works for */
    RESETS_AT_ONCE = 500,        /* by the client (CVE-2023-44487); then RESETS_PER_S */
    RESETS_PER_S = 50,
    ACKNOWLEDGEMENTS = 200, /* of SETTINGS and PING that wait to be sent */
    CONTINUATIONS = 8,      /* of a header block */
    NOTICE_NS = 200000000,  /* between the two GOAWAY of a server that drains (RFC 9113 section 6.8) */
    RATE_WINDOW_S = 30,     /* over which --min-rate is measured */
    /* After an early answer so much of the request is still read, for so long: some clients, such as curl 7.88, lose an
     * answer that a reset follows. */
    LINGER_BYTES = 256 * 1024,
    LINGER_NS = 1000000000,
};

struct td_h2_connection {
    struct td_h2_mail mail; /* first: on the way back mail is a connection */
    struct td_h2_owner *owner;
    struct td_serving *serving;
    struct td_connection *entry;
    struct td_h2_socket socket;
    nghttp2_session *session;
    struct td_h2_frames frames;
    struct td_h2_crew crew;
    struct td_access_lines access_lines;
    struct td_h2_stream *streams;
    size_t stream_count, large_pieces;
    struct td_buffer out;
    size_t out_at;
    uint32_t interest;           /* the events that epoll reports */
    bool has_settings;           /* the client's have come */
    bool is_flooded, is_closing; /* is_closing: it ends when all is sent */
    bool has_ended;
    uint64_t active_ns; /* when the last stream ended, or the last frame came */
    uint64_t notice_ns; /* when GOAWAY was first sent by a server that drains; 0: it was not */
    bool has_said_goaway;
    uint64_t acknowledged_bytes, acknowledged_ns; /* progress of what is being sent */
    struct td_h2_connection *next, *previous;     /* of the loop */
};

/* ---- the end ------------------------------------------------------------------------------------------- */

static void unlink_stream(struct td_h2_stream *stream)
{
    struct td_h2_connection *connection = stream->connection;
    *(stream->previous != NULL ? &stream->previous->next : &connection->streams) = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    connection->stream_count--;
    connection->active_ns = td_clock_ns();
}

/* Frees the connection if it has ended and no thread works for it. */
static void free_if_over(struct td_h2_connection *connection)
{
    if (!connection->has_ended || connection->streams != NULL || td_h2_crew_is_busy(&connection->crew))
        return;
    const int fd = connection->entry->fd;
    *(connection->previous != NULL ? &connection->previous->next : &connection->owner->first) = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    td_h2_socket_fini(&connection->socket);
    td_access_lines_fini(&connection->access_lines);
    td_buffer_fini(&connection->out);
    td_h2_crew_fini(&connection->crew);
    td_connection_close(connection->entry);
    (void)close(fd);
    free(connection);
}

static void on_idle(void *context)
{
    free_if_over(context);
}

/* Reports the answer of a stream that has ended, and frees the stream. */
static void end_stream(struct td_h2_stream *stream)
{
    stream->connection->large_pieces -= stream->is_large ? 1 : 0;
    td_h2_stream_report(stream, &stream->connection->access_lines);
    unlink_stream(stream);
    td_h2_stream_destroy(stream);
}

/* Reads some of what has arrived, and drops it: close() resets a connection with unread bytes, and the client may then
 * lose the end of what was sent. */
static void discard_received(int fd)
{
    char bytes[4096];
    for (int i = 0; i < READS; i++)
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            return;
}

/* Marks a stream as gone that libnghttp2 no longer has, and frees it unless a thread works for it. */
static void leave_stream(struct td_h2_stream *stream)
{
    stream->is_open = false;
    atomic_store(&stream->is_gone, true);
    if (!stream->is_at_work || td_h2_crew_withdraw(&stream->connection->crew, stream))
        end_stream(stream);
}

void td_h2_connection_end(struct td_h2_connection *connection)
{
    if (connection->has_ended)
        return;
    connection->has_ended = true;
    (void)epoll_ctl(connection->owner->epoll_fd, EPOLL_CTL_DEL, connection->entry->fd, NULL);
    td_h2_socket_say_end(&connection->socket);
    discard_received(connection->entry->fd);
    (void)td_sent_shut_down(connection->entry->fd, SHUT_RDWR);
    nghttp2_session_del(connection->session);
    connection->session = NULL;
    for (struct td_h2_stream *stream = connection->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        leave_stream(stream);
    }
    free_if_over(connection);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void reset_stream(struct td_h2_stream *stream, uint32_t code)
{
    if (stream->is_open)
        (void)nghttp2_submit_rst_stream(stream->connection->session, NGHTTP2_FLAG_NONE, stream->id, code);
}

/* Notes that the stream has no large piece any more. */
static void drop_large(struct td_h2_stream *stream)
{
    stream->connection->large_pieces -= stream->is_large ? 1 : 0;
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

/* Returns whether all bytes of the answer, as far as it is made, were sent. */
static bool is_exhausted(const struct td_h2_stream *stream)
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

/* Has the request handled. */
static void begin_answer(struct td_h2_stream *stream)
{
    stream->task = TD_H2_TASK_ANSWER;
    stream->handling_ns = td_clock_ns();
    stream->refused_for = stream->no_room_for;
    td_h2_crew_add(&stream->connection->crew, stream);
}

/* Has the messages answered that have come, of a request whose messages are answered by themselves. Returns whether
 * there are any, or the request's end has to be answered. */
static bool answer_messages(struct td_h2_stream *stream)
{
    size_t len = stream->no_room_for == TD_UPLOAD_FITS ? complete_frames(stream) : 0;
    const bool is_last = stream->has_input_ended && (stream->upload.len > 0 || !stream->has_answer);
    if (stream->is_at_work || (len == 0 && !is_last && stream->no_room_for == TD_UPLOAD_FITS))
        return false;
    if (len == 0)
        len = stream->upload.len; /* what is not complete is refused */
    if (len > 0)
        hand_over(stream, len);
    begin_answer(stream);
    return true;
}

/* Has the next bytes of the answer fetched, if there may be any. Returns false at its end. */
static bool fetch_more(struct td_h2_stream *stream)
{
    struct td_h2_connection *connection = stream->connection;
    if (stream->is_at_work)
        return true;
    if (stream->body_done < stream->body.total_bytes) {
        const int32_t window = nghttp2_session_get_stream_remote_window_size(connection->session, stream->id);
        const int32_t shared = nghttp2_session_get_remote_window_size(connection->session);
        const bool is_large = window >= TD_H2_LARGE_BYTES && shared >= TD_H2_LARGE_BYTES &&
                              connection->large_pieces < LARGE_PIECES &&
                              stream->body.total_bytes - stream->body_done > TD_H2_SMALL_BYTES;
        stream->wanted_bytes = is_large ? TD_H2_LARGE_BYTES : TD_H2_SMALL_BYTES;
        stream->is_large = is_large;
        connection->large_pieces += is_large ? 1 : 0;
        stream->task = TD_H2_TASK_PIECE;
        td_h2_crew_add(&connection->crew, stream);
        return true;
    }
    if (stream->events != NULL) {
        stream->task = TD_H2_TASK_EVENTS;
        td_h2_crew_add(&connection->crew, stream);
        return true;
    }
    if (!stream->answers_each || stream->body.total_bytes == 0) /* an error, which has no body, ends the answer */
        return false;
    return answer_messages(stream) || !stream->has_input_ended;
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
    return nghttp2_submit_trailer(stream->connection->session, stream->id, fields, trailers->count) == 0;
}

/* Gives libnghttp2 bytes of the body. A function of its kind nghttp2_data_source_read_callback. */
static ssize_t give_bytes(nghttp2_session *session, int32_t id, uint8_t *out, size_t most, uint32_t *flags,
                          nghttp2_data_source *source, void *context)
{
    struct td_h2_stream *stream = source->ptr;
    (void)session, (void)id, (void)context;
    size_t n = 0;
    if (!stream->is_at_work)
        n = copy_bytes(stream, out, most);
    stream->sent_bytes += n;
    if (stream->is_at_work || !is_exhausted(stream) || fetch_more(stream)) {
        if (n == 0 && !stream->is_at_work && !is_exhausted(stream) && stream->is_in_memory)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        if (n == 0 && !stream->is_at_work && !is_exhausted(stream))
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
    const bool has_body = stream->is_of_events || !is_exhausted(stream) || stream->trailers.count > 0;
    ok = ok && nghttp2_submit_response(stream->connection->session, stream->id, all, count + 1,
                                       has_body ? &provider : NULL) == 0;
    td_response_fini(response);
    free(response);
    stream->response = NULL;
    stream->has_answer = true;
    stream->progress_ns = stream->window_ns = td_clock_ns();
    return ok;
}

/* Breaks the answer off, for a reason of the server. */
static void break_off(struct td_h2_stream *stream, enum td_cut cut)
{
    stream->cut = cut;
    reset_stream(stream, cut == TD_CUT_STALLED || cut == TD_CUT_SLOW ? NGHTTP2_CANCEL : NGHTTP2_INTERNAL_ERROR);
}

/* Continues with a stream whose answer was begun or continued. */
static void continue_stream(struct td_h2_stream *stream)
{
    const bool was_answer = stream->task == TD_H2_TASK_ANSWER;
    stream->progress_ns = td_clock_ns();
    if (was_answer)
        td_h2_stream_drop_answered(stream);
    if (stream->has_failed) {
        break_off(stream, stream->failed_cut);
    } else if (!stream->has_answer && stream->response != NULL) {
        if (!submit_header(stream))
            break_off(stream, TD_CUT_BUSY);
    } else if (stream->has_answer && stream->is_starved) {
        stream->is_starved = false;
        (void)nghttp2_session_resume_data(stream->connection->session, stream->id);
    }
}

static void flush(struct td_h2_connection *connection);

/* Receives a stream that a thread has worked for. */
static void receive_stream(struct td_h2_mail *mail)
{
    struct td_h2_stream *stream = (struct td_h2_stream *)(void *)mail;
    struct td_h2_connection *connection = stream->connection;
    stream->is_at_work = false;
    if (!stream->is_open) {
        end_stream(stream);
        free_if_over(connection);
        return;
    }
    continue_stream(stream);
    flush(connection);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static bool is_grpc(const struct td_request *request)
{
    static const char type[] = "application/grpc";
    const struct td_header *header = td_request_single_header(request, "content-type");
    if (header == NULL || !td_text_begins_ignore_case(header->value, type))
        return false;
    struct td_text rest = td_text_skip(header->value, strlen(type));
    return rest.len == 0 || rest.p[0] == '+' || rest.p[0] == ';';
}

/* Answers the request with an error before it is handled; the rest of its body counts for nothing. */
static void refuse(struct td_h2_stream *stream, int status, const char *message)
{
    stream->drops_input = true;
    td_h2_work_refuse(stream, status, message);
    stream->task = TD_H2_TASK_ANSWER;
    continue_stream(stream);
}

/* Judges a request whose header is complete. Returns false after it was refused. */
static bool judge_request(struct td_h2_stream *stream, const struct td_request *request,
                          const struct td_h2_header *header)
{
    struct td_serving *serving = stream->serving;
    struct td_metrics *metrics = &serving->api->metrics;
    const struct td_guard_limits limits = {.max_header_bytes = (size_t)serving->config->max_header_bytes,
                                           .max_body_bytes = serving->config->max_body_bytes};
    struct td_guard_verdict verdict = td_request_guard(request, "HTTP/1.1", header->has_too_many, &limits);
    if (header->is_too_large)
        verdict = (struct td_guard_verdict){.status = 431, .message = "the header is too large"};
    if (verdict.status != 0) {
        atomic_fetch_add(&metrics->malformed, 1);
        refuse(stream, verdict.status, verdict.message);
    } else if (stream->entry->over == TD_OVER_TOTAL && !td_api_is_probe(request)) {
        atomic_fetch_add(&metrics->refused_total, 1);
        refuse(stream, 503, "all connections are in use (--max-connections); try again");
    } else if (!td_text_equals(request->method, "POST")) {
        stream->facade = td_grpc_port;
        refuse(stream, 405, "this port takes calls of gRPC alone, which are POST requests");
    } else if (!is_grpc(request)) {
        stream->facade = td_grpc_port;
        refuse(stream, 415, "this port takes calls of gRPC alone: the Content-Type must be application/grpc");
    } else if (td_jobs_are_stuck(serving->jobs)) {
        refuse(stream, 503, "no thread is free, and no further one can be started; try again");
    } else {
        return true;
    }
    return false;
}

/* Begins with a request whose header is complete. */
static int begin_request(struct td_h2_stream *stream, bool has_ended)
{
    struct td_h2_header *header = stream->header;
    stream->has_input_ended = has_ended;
    if (!td_h2_stream_end_header(stream))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    stream->facade = td_api_facade(td_grpc_port, stream->target);
    stream->judged_ns = td_clock_ns();
    stream->is_counted = true;
    atomic_fetch_add_explicit(&stream->serving->api->metrics.in_flight, 1, memory_order_relaxed);
    const struct td_request request = td_h2_stream_request(stream);
    stream->header = NULL;
    if (judge_request(stream, &request, header)) {
        stream->answers_each = td_api_answers_each(&request);
        stream->drops_input =
            has_ended || !td_api_takes_body(&request) || !td_api_admits(stream->serving->api, &request);
        if (stream->drops_input) {
            stream->answers_each = false;
            begin_answer(stream);
        }
    }
    td_buffer_fini(&header->text);
    free(header);
    return 0;
}

/* Continues when the request's body is complete. */
static void end_request(struct td_h2_stream *stream)
{
    stream->has_input_ended = true;
    if (stream->drops_input)
        return;
    if (stream->answers_each) {
        if (stream->has_answer && stream->is_starved && !stream->is_at_work) {
            stream->is_starved = false;
            (void)nghttp2_session_resume_data(stream->connection->session, stream->id);
        } else if (!stream->has_answer) {
            (void)answer_messages(stream);
        }
        return;
    }
    hand_over(stream, stream->upload.len);
    stream->drops_input = true;
    begin_answer(stream);
}

/* ---- callbacks of libnghttp2 --------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct td_h2_connection *connection = context;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (connection->stream_count >= OBJECTS) /* the client resets streams faster than their work ends */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    struct td_h2_stream *stream =
        td_h2_stream_create(connection->serving, connection->entry, connection->owner->mailbox, frame->hd.stream_id);
    if (stream == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    stream->mail.receive = receive_stream;
    stream->connection = connection;
    stream->next = connection->streams;
    if (stream->next != NULL)
        stream->next->previous = stream;
    connection->streams = stream;
    connection->stream_count++;
    (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    return 0;
}

static struct td_h2_stream *find_stream(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *context)
{
    struct td_h2_connection *connection = context;
    struct td_h2_stream *stream = find_stream(session, frame->hd.stream_id);
    (void)flags;
    if (stream == NULL || td_h2_stream_add_field(stream, td_text_n((const char *)name, name_len),
                                                 td_text_n((const char *)value, value_len)))
        return 0;
    connection->is_flooded = true;
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct td_h2_connection *connection = context;
    struct td_h2_stream *stream = frame->hd.stream_id == 0 ? NULL : find_stream(session, frame->hd.stream_id);
    const bool has_ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    connection->active_ns = td_clock_ns();
    if (frame->hd.type == NGHTTP2_SETTINGS && !connection->has_settings) {
        connection->has_settings = true;
        td_deadline_enter(&connection->entry->deadline, TD_PHASE_STREAMS);
    }
    if (stream == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        return begin_request(stream, has_ended);
    if (has_ended && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS))
        end_request(stream);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *context)
{
    struct td_h2_stream *stream = find_stream(session, id);
    (void)flags, (void)context;
    if (stream == NULL)
        return 0;
    if (stream->drops_input) {
        stream->dropped_bytes += len;
        if (stream->is_complete && stream->dropped_bytes > LINGER_BYTES)
            reset_stream(stream, NGHTTP2_NO_ERROR); /* the client need not send the rest (RFC 9113 section 8.1) */
        return 0;
    }
    if (!td_h2_stream_add_upload(stream, bytes, len)) {
        stream->drops_input = true;
        if (!stream->answers_each)
            begin_answer(stream); /* which refuses it */
    }
    if (stream->answers_each && !stream->has_answer) {
        (void)answer_messages(stream);
    } else if (stream->answers_each && stream->is_starved && !stream->is_at_work) {
        stream->is_starved = false;
        (void)nghttp2_session_resume_data(session, id);
    }
    return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct td_h2_connection *connection = context;
    struct td_h2_stream *stream = frame->hd.stream_id == 0 ? NULL : find_stream(session, frame->hd.stream_id);
    if (stream == NULL || (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    td_h2_frames_earn(&connection->frames);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    stream->is_complete = true;
    stream->completed_ns = td_clock_ns();
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    struct td_h2_connection *connection = context;
    struct td_h2_stream *stream = find_stream(session, id);
    if (stream == NULL)
        return 0;
    if (code != NGHTTP2_NO_ERROR && stream->cut == TD_CUT_NONE && !stream->is_complete)
        atomic_fetch_add(&connection->serving->api->metrics.grpc_resets, 1);
    leave_stream(stream);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *context)
{
    struct td_h2_connection *connection = context;
    (void)session, (void)frame, (void)code;
    atomic_fetch_add(&connection->serving->api->metrics.malformed, 1);
    return 0;
}

/* Makes the session of libnghttp2. Returns false without memory. */
static bool make_session(struct td_h2_connection *connection)
{
    const struct td_config *config = connection->serving->config;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, TD_H2_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)config->max_header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    bool ok = nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0;
    if (ok) {
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_outbound_ack(option, ACKNOWLEDGEMENTS);
        nghttp2_option_set_max_continuations(option, CONTINUATIONS);
        nghttp2_option_set_stream_reset_rate_limit(option, RESETS_AT_ONCE, RESETS_PER_S);
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
        ok = nghttp2_session_server_new2(&connection->session, callbacks, connection, option) == 0;
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return ok && nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings,
                                         sizeof settings / sizeof *settings) == 0;
}

/* ---- reading and sending ------------------------------------------------------------------------------- */

static size_t unsent_bytes(const struct td_h2_connection *connection)
{
    return connection->out.len - connection->out_at;
}

/* Takes bytes to be sent from libnghttp2. Returns false when memory is short or the session is broken. */
static bool fill_out(struct td_h2_connection *connection)
{
    if (connection->out_at == connection->out.len) {
        connection->out_at = 0;
        td_buffer_clear(&connection->out);
    }
    while (connection->out.len < OUT_BYTES) {
        const uint8_t *bytes = NULL;
        const ssize_t n = nghttp2_session_mem_send(connection->session, &bytes);
        if (n < 0)
            return false;
        if (n == 0)
            return true;
        td_buffer_append(&connection->out, bytes, (size_t)n);
        if (connection->out.failed)
            return false;
    }
    return true;
}

/* Sends what waits to be sent, as far as the socket takes it. Returns false when the connection has failed. */
static bool send_out(struct td_h2_connection *connection)
{
    for (;;) {
        if (unsent_bytes(connection) == 0 && !fill_out(connection))
            return false;
        if (unsent_bytes(connection) == 0)
            break;
        const ssize_t n = td_h2_socket_write(&connection->socket, connection->out.data + connection->out_at,
                                             unsent_bytes(connection));
        if (n == TD_H2_AGAIN)
            return true;
        if (n <= 0)
            return false;
        connection->out_at += (size_t)n;
    }
    if (connection->stream_count == 0) /* an idle connection takes no memory for it */
        td_buffer_fini(&connection->out);
    connection->out_at = connection->out.len;
    return true;
}

/* Has epoll report what the connection waits for. */
static void set_interest(struct td_h2_connection *connection)
{
    uint32_t wanted = EPOLLIN;
    const bool sends = unsent_bytes(connection) > 0;
    if (sends || (!connection->socket.has_begun && connection->socket.wants_write))
        wanted = sends ? EPOLLOUT : EPOLLOUT | EPOLLIN;
    if (wanted == connection->interest)
        return;
    struct epoll_event event = {.events = wanted, .data.ptr = connection};
    if (epoll_ctl(connection->owner->epoll_fd, EPOLL_CTL_MOD, connection->entry->fd, &event) == 0)
        connection->interest = wanted;
}

/* Sends GOAWAY for a client that exceeds a bound. The connection ends when that is sent. */
static void end_flood(struct td_h2_connection *connection)
{
    atomic_fetch_add(&connection->serving->api->metrics.grpc_floods, 1);
    (void)nghttp2_session_terminate_session(connection->session, NGHTTP2_ENHANCE_YOUR_CALM);
    connection->is_closing = true;
}

/* Passes bytes to libnghttp2. Returns false when the connection is to end at once. */
static bool take_bytes(struct td_h2_connection *connection, const uint8_t *bytes, size_t len)
{
    if (!td_h2_frames_take(&connection->frames, bytes, len, td_clock_ns())) {
        end_flood(connection);
        return true;
    }
    const ssize_t n = nghttp2_session_mem_recv(connection->session, bytes, len);
    if (n == NGHTTP2_ERR_FLOODED || connection->is_flooded) {
        end_flood(connection);
        return true;
    }
    return n >= 0;
}

/* Returns whether GnuTLS has bytes that epoll does not report. */
static bool has_unread_record(const struct td_h2_connection *connection)
{
    return connection->socket.tls != NULL && gnutls_record_check_pending(connection->socket.tls) > 0;
}

/* Reads and handles what has arrived. Returns false when the connection has ended. */
static bool read_in(struct td_h2_connection *connection)
{
    uint8_t bytes[READ_BYTES];
    for (int i = 0; i < READS || has_unread_record(connection); i++) {
        if (unsent_bytes(connection) > 0 || connection->is_closing)
            return true;
        const ssize_t n = td_h2_socket_read(&connection->socket, bytes, sizeof bytes);
        if (n == TD_H2_AGAIN)
            return true;
        if (n <= 0 || !take_bytes(connection, bytes, (size_t)n) || !send_out(connection))
            return false;
    }
    return true;
}

/* Sends what there is to be sent; ends the connection when it is over. The connection may be gone after that. */
static void flush(struct td_h2_connection *connection)
{
    if (connection->has_ended)
        return;
    const bool is_sent = send_out(connection) && (!has_unread_record(connection) || read_in(connection));
    const bool is_over = connection->is_closing || (nghttp2_session_want_read(connection->session) == 0 &&
                                                    nghttp2_session_want_write(connection->session) == 0);
    if (!is_sent || (is_over && unsent_bytes(connection) == 0))
        td_h2_connection_end(connection);
    else
        set_interest(connection);
}

void td_h2_connection_handle(struct td_h2_connection *connection, uint32_t events)
{
    (void)events;
    if (connection->has_ended)
        return;
    if (!connection->socket.has_begun) {
        const int result = td_h2_socket_shake_hands(&connection->socket);
        if (result == TD_H2_ENDED) {
            atomic_fetch_add(&connection->serving->api->metrics.malformed, 1);
            td_h2_connection_end(connection);
            return;
        }
        if (result == TD_H2_AGAIN) {
            set_interest(connection);
            return;
        }
    }
    if (!send_out(connection) || !read_in(connection)) {
        td_h2_connection_end(connection);
        return;
    }
    flush(connection);
}

/* ---- deadlines ----------------------------------------------------------------------------------------- */

/* Returns why the answer of a stream is to be broken off: the client takes none of it, or too slowly. A stream whose
 * next bytes the server has to fetch first is not late. */
static enum td_cut judge_answer(struct td_h2_stream *stream, const struct td_h2_round *round)
{
    const uint64_t window_ns = round->now_ns - stream->window_ns;
    const bool waits_for_server = stream->is_at_work || is_exhausted(stream);
    if (waits_for_server || stream->sent_bytes != stream->progress_bytes) {
        stream->progress_bytes = stream->sent_bytes;
        stream->progress_ns = round->now_ns;
    }
    if (round->now_ns - stream->progress_ns >= round->limits.send_timeout_ns)
        return TD_CUT_STALLED;
    if (waits_for_server && stream->is_of_events) { /* few bytes come, so the rate says nothing */
        stream->window_ns = round->now_ns;
        stream->window_bytes = stream->sent_bytes;
    }
    if (window_ns < RATE_WINDOW_S * (uint64_t)TD_NS_PER_S)
        return TD_CUT_NONE;
    const uint64_t wanted = round->limits.min_rate * (window_ns / 1000000) / 1000;
    const bool is_slow = !waits_for_server && stream->sent_bytes - stream->window_bytes < wanted;
    stream->window_ns = round->now_ns;
    stream->window_bytes = stream->sent_bytes;
    return is_slow ? TD_CUT_SLOW : TD_CUT_NONE;
}

/* Ends a stream whose messages are answered by themselves, while nothing is to be answered: the server drains, or the
 * client has been silent for too long. */
static void end_conversation(struct td_h2_stream *stream)
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
    stream->is_starved = false;
    (void)nghttp2_session_resume_data(stream->connection->session, stream->id);
}

/* Checks one stream. */
static void check_stream(struct td_h2_stream *stream, const struct td_h2_round *round)
{
    struct td_metrics *metrics = &stream->serving->api->metrics;
    if (!stream->is_open || stream->cut != TD_CUT_NONE || stream->judged_ns == 0)
        return;
    if (stream->is_complete) {
        if (round->now_ns > stream->completed_ns && round->now_ns - stream->completed_ns >= LINGER_NS)
            reset_stream(stream, NGHTTP2_NO_ERROR);
        return;
    }
    const bool is_silent = stream->answers_each && stream->is_starved && !stream->is_at_work;
    if (is_silent) {
        if (round->is_draining || round->now_ns - stream->progress_ns >= round->limits.idle_timeout_ns)
            end_conversation(stream);
    } else if (stream->has_answer) {
        const enum td_cut cut = judge_answer(stream, round);
        if (cut != TD_CUT_NONE)
            break_off(stream, cut);
    } else if (!stream->has_input_ended && !stream->is_at_work && !stream->drops_input &&
               round->now_ns - stream->judged_ns >= round->limits.body_timeout_ns) {
        td_metrics_cut(metrics, TD_CUT_DEADLINE);
        stream->cut = TD_CUT_DEADLINE;
        reset_stream(stream, NGHTTP2_CANCEL);
    }
}

/* Returns why the connection is to be cut as a whole; TD_CUT_NONE while it is good. */
static enum td_cut judge_connection(struct td_h2_connection *connection, const struct td_h2_round *round)
{
    const struct td_deadline_limits *limits = &round->limits;
    const uint64_t unfinished_ns = connection->frames.unfinished_ns;
    const uint64_t unfinished_most_ns =
        connection->frames.in_block ? limits->header_timeout_ns : limits->body_timeout_ns;
    const bool has_streams = connection->stream_count > 0;
    const bool sends =
        unsent_bytes(connection) > 0 || (has_streams && td_socket_unacknowledged_bytes(connection->entry->fd) > 0);
    const uint64_t acknowledged = sends ? td_socket_facts_of(connection->entry->fd).acknowledged_bytes : 0;
    if (!sends || acknowledged != connection->acknowledged_bytes) {
        connection->acknowledged_bytes = acknowledged;
        connection->acknowledged_ns = round->now_ns;
    }
    if (round->now_ns - connection->acknowledged_ns >= limits->send_timeout_ns)
        return TD_CUT_STALLED;
    if (unfinished_ns != 0 && round->now_ns > unfinished_ns && round->now_ns - unfinished_ns >= unfinished_most_ns)
        return TD_CUT_DEADLINE;
    return TD_CUT_NONE;
}

/* Announces the end to the client: first that no further stream should be begun, and after the time in which such a
 * stream may still be on its way, which streams are answered. Returns whether the connection is to end. */
static bool drain(struct td_h2_connection *connection, uint64_t now_ns)
{
    nghttp2_session *session = connection->session;
    if (connection->notice_ns == 0) {
        connection->notice_ns = now_ns;
        (void)nghttp2_submit_shutdown_notice(session);
    } else if (!connection->has_said_goaway && now_ns - connection->notice_ns >= NOTICE_NS) {
        connection->has_said_goaway = true;
        (void)nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session),
                                    NGHTTP2_NO_ERROR, NULL, 0);
    }
    return connection->has_said_goaway && connection->stream_count == 0;
}

void td_h2_connection_check(struct td_h2_connection *connection, const struct td_h2_round *round)
{
    int none = TD_CUT_NONE;
    if (connection->has_ended || !connection->has_settings) /* before that the reaper has the deadline */
        return;
    const enum td_cut cut = judge_connection(connection, round);
    if (cut != TD_CUT_NONE) {
        td_socket_reset_at_close(connection->entry->fd);
        (void)atomic_compare_exchange_strong(&connection->entry->cut, &none, (int)cut);
        td_h2_connection_end(connection);
        return;
    }
    for (struct td_h2_stream *stream = connection->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        check_stream(stream, round);
    }
    if (round->is_draining) {
        connection->is_closing = drain(connection, round->now_ns);
    } else if (connection->stream_count == 0 &&
               round->now_ns - connection->active_ns >= round->limits.idle_timeout_ns) {
        (void)nghttp2_session_terminate_session(connection->session, NGHTTP2_NO_ERROR);
        connection->is_closing = true;
    }
    flush(connection);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

/* Receives a connection that was accepted. */
static void begin(struct td_h2_mail *mail)
{
    struct td_h2_connection *connection = (struct td_h2_connection *)(void *)mail;
    struct td_h2_owner *owner = connection->owner;
    connection->next = owner->first;
    if (connection->next != NULL)
        connection->next->previous = connection;
    owner->first = connection;
    connection->interest = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(owner->epoll_fd, EPOLL_CTL_ADD, connection->entry->fd, &event) != 0)
        td_h2_connection_end(connection);
    else
        td_h2_connection_handle(connection, EPOLLIN);
}

struct td_h2_connection *td_h2_connection_create(struct td_h2_owner *owner, struct td_connection *entry)
{
    struct td_h2_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    const uint64_t now_ns = td_clock_ns();
    struct td_serving *serving = owner->serving;
    connection->mail.receive = begin;
    connection->owner = owner;
    connection->serving = serving;
    connection->entry = entry;
    connection->active_ns = connection->acknowledged_ns = now_ns;
    td_buffer_init(&connection->out);
    td_h2_frames_init(&connection->frames, now_ns);
    if (!td_h2_socket_begin(&connection->socket, entry->fd, entry->is_tls ? serving->tls : NULL) ||
        !make_session(connection)) {
        nghttp2_session_del(connection->session);
        td_h2_socket_fini(&connection->socket);
        free(connection);
        return NULL;
    }
    td_h2_crew_init(&connection->crew, serving, owner->mailbox, connection, on_idle);
    if (td_access_log_is_on(serving->log))
        td_access_lines_init(&connection->access_lines, &entry->address, td_log_get_form());
    return connection;
}

struct td_h2_mail *td_h2_connection_mail(struct td_h2_connection *connection)
{
    return &connection->mail;
}

struct td_h2_connection *td_h2_connection_next(const struct td_h2_connection *connection)
{
    return connection->next;
}
