/* A shared thread must not wait. It tries to make the answer in a section in which waiting is forbidden
 * (core/waiting.h); if that is refused, a job makes it from the beginning, and libmicrohttpd calls again. A request may
 * also wait for a change (server/serving/waiters.h). It is then tried again from the beginning, by the waker, by a job
 * or, in a thread of its own, by that. */
#include "server/mhd/answering.h"

#include "core/clock.h"
#include "core/waiting.h"
#include "server/mhd/sink_body.h"
#include "server/mhd/stream_body.h"
#include "server/mhd/suspending.h"
#include "server/net/tcp_socket.h"

#include <stddef.h>
#include <string.h>

/* Returns the length of the request's header, from its request line to the empty line. */
static uint64_t request_header_bytes(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info == NULL ? 0 : info->header_size;
}

/* Adds the request's id, and makes libmicrohttpd's response, which the exchange then owns. On a thread that may wait it
 * does not fail, except for lack of memory. */
static void make_response(struct td_session *session, const struct td_request *request, struct td_response *response,
                          bool head)
{
    struct td_exchange *exchange = &session->exchange;
    if (response->sent_status != 0)
        response->status = response->sent_status;
    if (exchange->is_last || atomic_load(&session->serving->api->draining))
        response->close = true;
    td_response_add_request_id(response, request);
    memcpy(exchange->request_id, response->request_id, sizeof exchange->request_id);
    /* The framing of a chunked body is not counted: later requests on the connection then prove nothing. */
    exchange->received_bytes =
        session->received_bytes + request_header_bytes(session->link.mhd) + exchange->content_bytes;
    td_read_proof_expect(&session->link.connection->proof, exchange->received_bytes);
    memcpy(exchange->token, response->token, sizeof exchange->token);
    exchange->mhd_response = response->stream != NULL
                                 ? td_stream_body_create(session, response, head)
                                 : td_transfer_create(response, &session->link, head, &exchange->transfer);
    exchange->status = response->status;
    exchange->route = response->route;
    exchange->changed = response->changed;
    if (exchange->is_http_1_0 && !response->close)
        exchange->transfer.header_bytes += strlen("Connection: Keep-Alive\r\n"); /* by libmicrohttpd */
}

/* Queues the response in libmicrohttpd. Returns MHD_NO, which drops the connection, when memory is short. */
static enum MHD_Result queue(struct td_session *session)
{
    struct td_exchange *exchange = &session->exchange;
    struct td_connection *connection = session->link.connection;
    struct MHD_Response *mhd_response = exchange->mhd_response;
    if (mhd_response == NULL)
        return MHD_NO;
    exchange->mhd_response = NULL;
    session->received_bytes = exchange->received_bytes;
    exchange->stage = TD_STAGE_QUEUED;
    if (connection->is_tls && exchange->transfer.is_long)
        exchange->given_bytes = td_socket_given_bytes(connection->fd);
    td_deadline_enter(&connection->deadline, td_stream_body_is_on(session) ? TD_PHASE_STREAM : TD_PHASE_SENDING);
    enum MHD_Result result = MHD_queue_response(session->link.mhd, (unsigned int)exchange->status, mhd_response);
    td_transfer_release(mhd_response, &exchange->transfer);
    return result;
}

enum MHD_Result td_answer_refuse(struct td_session *session, bool head, int status, const char *message)
{
    struct td_request request = td_session_request(session);
    struct td_response response;
    td_response_init_for(&response, &request);
    td_response_fail(&response, status, NULL, "%s", message);
    response.close = true;
    make_response(session, &request, &response, head);
    td_response_fini(&response);
    return queue(session);
}

/* Adds a header field with the time that the answer took since the request was complete, if that was long. */
static void add_timing(struct td_session *session, struct td_response *response)
{
    uint64_t handling_ns = td_deadline_handling_ns(&session->link.connection->deadline);
    if (handling_ns >= TD_TIMED_NS)
        td_response_add_timing(response, handling_ns);
}

/* Returns whether the request is an upload without a body, whose sink is made when it is answered. */
static bool opens_empty_upload(const struct td_session *session)
{
    return session->exchange.wants_sink && session->exchange.sink == NULL && session->exchange.content_bytes == 0;
}

/* Frees what the request's body takes, after it was handled and before the answer is sent, which may take long. */
static void drop_body(struct td_session *session)
{
    td_session_drop_upload(session);
    td_sink_body_close(session);
}

/* Answers a request whose body was dropped, because there was no room for it. */
static void refuse_body(enum td_upload_verdict cause, const struct td_request *request, struct td_response *response)
{
    td_response_init_for(response, request);
    td_response_fail(response, cause == TD_UPLOAD_TOO_LONG ? 413 : 503, NULL, "%s", td_upload_refusal_text(cause));
}

/* Makes the response to the request. On a thread that must not wait, making or sending the answer may be refused; then
 * no response is made. Returns true, without a response, when the request has to wait for a change. */
static bool make_answer(struct td_session *session, bool close)
{
    struct td_request request = td_session_request(session);
    struct td_response response;
    bool waits = false;
    session->waiter.retry = td_answer_retry;
    session->waiter.seen = td_waiters_published(session->serving->waiters);
    if (opens_empty_upload(session) && !td_sink_body_open(session, &response)) {
        session->exchange.wants_sink = false; /* answered */
    } else if (session->exchange.upload.failed) {
        refuse_body(session->exchange.no_room_for, &request, &response);
    } else {
        request = td_session_request(session); /* with the sink of an empty upload */
        td_api_handle(session->serving->api, &request, &response);
    }
    bool head = td_text_equals(request.method, "HEAD");
    bool is_stream = response.stream != NULL && !head && !td_waiting_was_refused();
    if (response.wait_until_ns != 0 || is_stream) {
        bool may_wait = td_session_enter_wait(session, response.wait_until_ns);
        if (!may_wait)
            td_response_fail_as(&response, 503, "RESOURCE_EXHAUSTED",
                                "as many requests wait for a change as --max-waiters allows; try again");
        waits = may_wait && !is_stream;
        is_stream = may_wait && is_stream;
    }
    response.close = response.close || close;
    if (!waits && !td_waiting_was_refused()) {
        if (!is_stream)
            td_session_leave_wait(session);
        add_timing(session, &response);
        make_response(session, &request, &response, head);
    }
    td_response_fini(&response);
    return waits;
}

/* Gives the piece of the body that was kept for a job to the sink. */
static void take_piece(struct td_session *session)
{
    struct td_buffer *piece = &session->exchange.piece;
    if (piece->len > 0)
        td_sink_body_write(session, piece->data, piece->len);
    td_buffer_clear(piece);
}

static void run_answer(struct td_job *job)
{
    struct td_session *session = (struct td_session *)(void *)job;
    take_piece(session);
    if (make_answer(session, session->job_closes))
        session->exchange.stage = TD_STAGE_WAIT_WANTED; /* keeps the body, which a later try may need */
    else
        drop_body(session);
}

static struct td_session *waiting_session(struct td_waiter *waiter)
{
    return (struct td_session *)(void *)((char *)waiter - offsetof(struct td_session, waiter));
}

enum td_retry td_answer_retry(struct td_waiter *waiter, bool may_wait)
{
    struct td_session *session = waiting_session(waiter);
    if (td_stream_body_is_on(session))
        return TD_RETRY_ANSWERED; /* libmicrohttpd asks the stream again */
    if (may_wait) {
        atomic_fetch_add_explicit(&session->serving->api->metrics.jobs, 1, memory_order_relaxed);
    } else {
        td_session_end_waiting(session);
        td_waiting_forbid();
    }
    bool waits = make_answer(session, session->job_closes);
    bool was_refused = td_waiting_allow();
    if (!was_refused && !waits)
        drop_body(session);
    return was_refused ? TD_RETRY_REFUSED : waits ? TD_RETRY_WAITS : TD_RETRY_ANSWERED;
}

/* Suspends the connection until the answer is made, by the waker or by a job. */
static enum MHD_Result park(struct td_session *session)
{
    session->exchange.stage = TD_STAGE_JOB_BEGUN;
    return td_waiters_park(session->serving->waiters, &session->waiter, &td_mhd_suspending, session->link.mhd) ? MHD_YES
                                                                                                               : MHD_NO;
}

/* Waits on the connection's own thread, and answers. */
static enum MHD_Result wait_here(struct td_session *session)
{
    bool waits = true;
    while (waits) {
        if (!td_waiters_sleep(session->serving->waiters, &session->waiter))
            return MHD_NO;
        td_session_end_waiting(session);
        waits = make_answer(session, session->job_closes);
    }
    drop_body(session);
    return queue(session);
}

/* Has a job make the answer. If no thread is free for it and none can be started, answers 503, since the busy threads
 * may wait for a disk forever. */
static enum MHD_Result begin_job(struct td_session *session)
{
    if (td_jobs_are_stuck(session->link.jobs)) {
        td_session_drop_upload(session);
        td_sink_body_drop(session);
        return td_answer_refuse(session, strcmp(session->exchange.method, "HEAD") == 0, 503,
                                "no thread is free, and no further one can be started; try again");
    }
    session->exchange.stage = TD_STAGE_JOB_BEGUN;
    session->job.run = run_answer;
    atomic_fetch_add_explicit(&session->serving->api->metrics.jobs, 1, memory_order_relaxed);
    return td_jobs_run(session->link.jobs, &td_mhd_suspending, session->link.mhd, &session->job) ? MHD_YES : MHD_NO;
}

enum MHD_Result td_answer_begin(struct td_session *session, bool close)
{
    bool is_shared = session->link.jobs != NULL;
    session->job_closes = close;
    if (is_shared && session->exchange.wants_sink) { /* the handler of an upload may wait for a disk */
        session->exchange.stage = TD_STAGE_JOB_WANTED;
        return MHD_YES;
    }
    if (is_shared)
        td_waiting_forbid();
    bool waits = make_answer(session, close);
    bool was_refused = td_waiting_allow();
    if (!was_refused && !waits)
        drop_body(session);
    if (!was_refused && !waits)
        return queue(session);
    if (waits && !is_shared)
        return wait_here(session);
    session->exchange.stage = waits ? TD_STAGE_WAIT_WANTED : TD_STAGE_JOB_WANTED;
    /* If the connection were suspended here, libmicrohttpd would read from the socket before it asks for the answer,
     * and drop a client that has closed its side. When this call gives no answer, libmicrohttpd calls again, and then
     * asks for the answer first. In the first call of on_request it would read the body instead. */
    return !close ? MHD_YES : waits ? park(session) : begin_job(session);
}

/* Makes the sink, or the answer instead of it. On a thread that may wait. */
static void open_sink(struct td_session *session)
{
    struct td_response response;
    if (!td_sink_body_open(session, &response)) {
        struct td_request request = td_session_request(session);
        response.close = true;
        session->exchange.is_cut_short = true;
        make_response(session, &request, &response, false);
        td_response_fini(&response);
    }
}

static void run_open(struct td_job *job)
{
    open_sink((struct td_session *)(void *)job);
}

enum MHD_Result td_answer_opened(struct td_session *session)
{
    if (session->exchange.sink == NULL)
        return queue(session);
    session->exchange.stage = TD_STAGE_JUDGED;
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_UPLOAD);
    return MHD_YES;
}

/* Suspends the connection until the job has run. Returns MHD_NO when the server ends. */
static enum MHD_Result run_here(struct td_session *session, void (*run)(struct td_job *job))
{
    session->job.run = run;
    atomic_fetch_add_explicit(&session->serving->api->metrics.jobs, 1, memory_order_relaxed);
    return td_jobs_run(session->link.jobs, &td_mhd_suspending, session->link.mhd, &session->job) ? MHD_YES : MHD_NO;
}

enum MHD_Result td_answer_open(struct td_session *session)
{
    session->exchange.stage = TD_STAGE_OPENING;
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HANDLING);
    if (session->link.jobs != NULL)
        return run_here(session, run_open);
    open_sink(session);
    return td_answer_opened(session);
}

static void run_take(struct td_job *job)
{
    take_piece((struct td_session *)(void *)job);
}

/* For a job the piece is copied: while the connection is suspended, libmicrohttpd moves the bytes in its buffer. It
 * would also pass the next chunk at once, so the piece counts as taken only when it is passed again, after the job.
 * After a suspension it drops a client that has closed its side, as one may do after its last byte: so the last piece,
 * if it is known to be the last one, waits for the job that makes the answer. */
enum MHD_Result td_answer_take(struct td_session *session, const char *bytes, size_t *len)
{
    struct td_exchange *exchange = &session->exchange;
    if (session->link.jobs == NULL) {
        td_sink_body_write(session, bytes, *len);
        *len = 0;
        return MHD_YES;
    }
    if (exchange->taken_bytes > 0) {
        *len -= exchange->taken_bytes;
        exchange->taken_bytes = 0;
        return MHD_YES;
    }
    td_buffer_append(&exchange->piece, bytes, *len);
    if (exchange->piece.failed)
        return MHD_NO;
    bool is_last = exchange->content_bytes + exchange->piece.len == exchange->body_bytes;
    if (!is_last) {
        exchange->taken_bytes = *len;
        return run_here(session, run_take);
    }
    *len = 0;
    return MHD_YES;
}

enum MHD_Result td_answer_resume(struct td_session *session)
{
    if (session->exchange.stage == TD_STAGE_WAIT_WANTED)
        return park(session);
    if (session->exchange.stage == TD_STAGE_JOB_WANTED)
        return begin_job(session);
    return queue(session);
}
