#include "server/h2/h2_requests.h"

#include "core/clock.h"
#include "server/h2/h2_answer.h"

#include <stdlib.h>
#include <string.h>

enum {
    OBJECTS = 2 * TD_H2_STREAMS, /* streams, with those that the client has reset and a thread still works for */
    /* Resets by the client, for libnghttp2: twice as many as h2_frames.h allows. libnghttp2 alone would still handle
     * the bytes that it has, and could then send a second GOAWAY with a later stream, which RFC 9113 section 6.8
     * forbids. */
    RESETS_AT_ONCE = 1000,
    RESETS_PER_S = 100,
    ACKNOWLEDGEMENTS = 200,    /* of SETTINGS and PING that wait to be sent */
    CONTINUATIONS = 8,         /* of a header block */
    LINGER_BYTES = 256 * 1024, /* of a request that are still read after an early answer (h2_deadlines.h) */
};

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
    td_h2_answer_continue(stream);
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
            td_h2_answer_begin(stream);
        }
    }
    td_buffer_fini(&header->text);
    free(header);
    return 0;
}

/* Continues a request after more of its bytes have arrived. Its facade answers each message by itself
 * (`answers_each`). */
static void continue_conversation(struct td_h2_stream *stream)
{
    if (!stream->has_answer)
        (void)td_h2_answer_messages(stream);
    else if (!stream->is_at_work)
        td_h2_answer_resume(stream); /* libnghttp2 then asks for the answer to the next ones */
}

/* Continues when the request's body is complete. */
static void end_request(struct td_h2_stream *stream)
{
    stream->has_input_ended = true;
    if (stream->drops_input)
        return;
    if (stream->answers_each) {
        continue_conversation(stream);
        return;
    }
    td_h2_answer_whole(stream);
}

/* ---- callbacks of libnghttp2 --------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *context)
{
    struct td_h2_session *session = context;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (session->stream_count >= OBJECTS) /* the client resets streams faster than their work ends */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    struct td_h2_stream *stream = td_h2_session_add(session, frame->hd.stream_id);
    if (stream == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    (void)nghttp2_session_set_stream_user_data(nghttp2, frame->hd.stream_id, stream);
    return 0;
}

static struct td_h2_stream *find_stream(nghttp2_session *nghttp2, int32_t id)
{
    return nghttp2_session_get_stream_user_data(nghttp2, id);
}

static int on_header(nghttp2_session *nghttp2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *context)
{
    struct td_h2_session *session = context;
    struct td_h2_stream *stream = find_stream(nghttp2, frame->hd.stream_id);
    (void)flags;
    if (stream == NULL || td_h2_stream_add_field(stream, td_text_n((const char *)name, name_len),
                                                 td_text_n((const char *)value, value_len)))
        return 0;
    session->is_flooded = true;
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *context)
{
    struct td_h2_session *session = context;
    struct td_h2_stream *stream = frame->hd.stream_id == 0 ? NULL : find_stream(nghttp2, frame->hd.stream_id);
    const bool has_ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    session->active_ns = td_clock_ns();
    if (frame->hd.type == NGHTTP2_SETTINGS && !session->has_settings) {
        session->has_settings = true;
        td_deadline_enter(&session->entry->deadline, TD_PHASE_STREAMS);
    }
    if (stream == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        return begin_request(stream, has_ended);
    if (has_ended && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS))
        end_request(stream);
    return 0;
}

static int on_data(nghttp2_session *nghttp2, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *context)
{
    struct td_h2_stream *stream = find_stream(nghttp2, id);
    (void)flags, (void)context;
    if (stream == NULL)
        return 0;
    if (stream->drops_input) {
        stream->dropped_bytes += len;
        if (stream->is_complete && stream->dropped_bytes > LINGER_BYTES)
            td_h2_session_reset(stream,
                                NGHTTP2_NO_ERROR); /* the client need not send the rest (RFC 9113 section 8.1) */
        return 0;
    }
    if (!td_h2_stream_add_upload(stream, bytes, len)) {
        stream->drops_input = true;
        if (!stream->answers_each)
            td_h2_answer_begin(stream); /* which refuses it */
    }
    if (stream->answers_each)
        continue_conversation(stream);
    return 0;
}

static int on_sent(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *context)
{
    struct td_h2_session *session = context;
    struct td_h2_stream *stream = frame->hd.stream_id == 0 ? NULL : find_stream(nghttp2, frame->hd.stream_id);
    if (stream == NULL || (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    td_h2_frames_earn(&session->frames);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    stream->is_complete = true;
    stream->completed_ns = td_clock_ns();
    return 0;
}

static int on_stream_close(nghttp2_session *nghttp2, int32_t id, uint32_t code, void *context)
{
    struct td_h2_session *session = context;
    struct td_h2_stream *stream = find_stream(nghttp2, id);
    if (stream == NULL)
        return 0;
    if (code != NGHTTP2_NO_ERROR && stream->cut == TD_CUT_NONE && !stream->is_complete)
        atomic_fetch_add(&session->serving->api->metrics.grpc_resets, 1);
    td_h2_session_leave(stream);
    return 0;
}

static int on_invalid_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame, int code, void *context)
{
    struct td_h2_session *session = context;
    (void)nghttp2, (void)frame, (void)code;
    atomic_fetch_add(&session->serving->api->metrics.malformed, 1);
    return 0;
}

bool td_h2_requests_open(struct td_h2_session *session)
{
    const struct td_config *config = session->serving->config;
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
        ok = nghttp2_session_server_new2(&session->nghttp2, callbacks, session, option) == 0;
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return ok && nghttp2_submit_settings(session->nghttp2, NGHTTP2_FLAG_NONE, settings,
                                         sizeof settings / sizeof *settings) == 0;
}
