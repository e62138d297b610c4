/* The answer of a request is made as for HTTP/1.1 (server/mhd/answering): in a job; or, after a wait for a change,
 * first on the waker, which must not wait, and then in a job. */
#include "server/h2/h2_work.h"

#include "core/clock.h"
#include "core/waiting.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- bodies -------------------------------------------------------------------------------------------- */

/* Returns whether all bytes are in memory that nobody changes. */
static bool is_in_memory(const struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++) {
        const struct td_blob *blob = body->extents[i].blob;
        if (blob->bytes == NULL || blob->class->pinned != NULL || blob->class->unchanged != NULL)
            return false;
    }
    return true;
}

/* Reads the next bytes of the body into a piece, at most `most`. Errors as td_body_read; TD_UNAVAILABLE when a file has
 * changed. */
static bool read_piece(struct td_h2_stream *stream, size_t most, struct td_error *err)
{
    const uint64_t left = stream->body.total_bytes - stream->body_done;
    const size_t n = left < most ? (size_t)left : most;
    char *bytes = malloc(n + 1);
    if (bytes == NULL)
        return td_error_no_memory(err);
    bool ok = td_body_read(&stream->body, &stream->cursor, bytes, n, err);
    if (ok && n == left && !td_body_unchanged(&stream->body)) /* a change can only break the answer off */
        ok = td_error_set(err, TD_UNAVAILABLE, "the file changed while it was read; it is being read again");
    if (!ok) {
        free(bytes);
        return false;
    }
    free(stream->piece);
    stream->piece = bytes;
    stream->piece_len = n;
    stream->piece_at = 0;
    stream->body_done += n;
    return true;
}

static void run_piece(struct td_h2_stream *stream)
{
    struct td_error err = TD_ERROR_INIT;
    if (read_piece(stream, stream->wanted_bytes, &err))
        return;
    stream->has_failed = true;
    stream->failed_cut = td_registry_cut_of(stream->entry->registry, &err);
}

/* Makes the response the stream's answer, and leaves it empty: all but its header's fields move to the stream. A short
 * body of files is copied, so that a change of a file can still become an error. */
static void take_response(struct td_h2_stream *stream, struct td_response *response)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_request request = td_h2_stream_request(stream);
    td_body_fini(&stream->body);
    stream->body = response->body;
    td_body_init(&response->body);
    stream->cursor = (struct td_body_cursor){0};
    stream->body_done = 0;
    stream->is_in_memory = is_in_memory(&stream->body);
    if (!stream->is_in_memory && stream->body.total_bytes <= TD_H2_SMALL_BYTES &&
        !read_piece(stream, TD_H2_SMALL_BYTES, &err)) {
        td_response_fail_error(response, &err);
        td_body_fini(&stream->body);
        stream->body = response->body;
        td_body_init(&response->body);
        stream->cursor = (struct td_body_cursor){0};
        stream->is_in_memory = true;
    }
    if (response->sent_status != 0)
        response->status = response->sent_status;
    td_response_add_request_id(response, &request);
    stream->length_bytes += stream->body.total_bytes;
    stream->status = response->status;
    stream->route = response->route;
    stream->changed = response->changed;
    memcpy(stream->request_id, response->request_id, sizeof stream->request_id);
    memcpy(stream->token, response->token, sizeof stream->token);
    td_trailers_fini(&stream->trailers);
    if (stream->body.total_bytes > 0 || stream->has_answer) { /* else they are in the header */
        stream->trailers = response->trailers;
        response->trailers = (struct td_trailers){.count = 0};
    }
    stream->events = response->stream;
    response->stream = NULL;
}

/* Keeps the response for its header. Without memory the answer is broken off. */
static void keep_response(struct td_h2_stream *stream, struct td_response *response)
{
    take_response(stream, response);
    if (!stream->has_answer) {
        stream->response = malloc(sizeof *stream->response);
        if (stream->response != NULL) {
            *stream->response = *response;
            return;
        }
        stream->has_failed = true;
        stream->failed_cut = TD_CUT_BUSY;
    }
    td_response_fini(response);
}

void td_h2_work_refuse(struct td_h2_stream *stream, int status, const char *message)
{
    const struct td_request request = td_h2_stream_request(stream);
    struct td_response response;
    td_response_init_for(&response, &request);
    td_response_fail(&response, status, NULL, "%s", message);
    keep_response(stream, &response);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

/* Counts the request as one that waits for a change, and no longer as one that is being answered. Returns false when
 * too many wait already. */
static bool enter_wait(struct td_h2_stream *stream)
{
    if (stream->waits)
        return true;
    if (!td_waiters_enter(stream->serving->waiters))
        return false;
    atomic_fetch_sub_explicit(&stream->serving->api->metrics.in_flight, 1, memory_order_relaxed);
    stream->waits = true;
    stream->wait_since_ns = stream->wait_end_ns = td_clock_ns();
    return true;
}

static void leave_wait(struct td_h2_stream *stream)
{
    if (!stream->waits)
        return;
    td_waiters_leave(stream->serving->waiters);
    atomic_fetch_add_explicit(&stream->serving->api->metrics.in_flight, 1, memory_order_relaxed);
    stream->waits = false;
}

/* Handles the request, whose response is initialised. */
static void handle(struct td_h2_stream *stream, const struct td_request *request, struct td_response *response)
{
    if (stream->refused_for == TD_UPLOAD_FITS) {
        td_api_handle(stream->serving->api, request, response);
        return;
    }
    td_response_init_for(response, request);
    td_response_fail(response, stream->refused_for == TD_UPLOAD_TOO_LONG ? 413 : 503, NULL, "%s",
                     td_upload_refusal_text(stream->refused_for));
}

/* Makes the answer. Returns true, without one, when the request has to wait for a change. On a thread that must not
 * wait, making it may be refused; then there is no answer. */
static bool make_answer(struct td_h2_stream *stream)
{
    const struct td_request request = td_h2_stream_request(stream);
    struct td_response response;
    stream->waiter.seen = td_waiters_published(stream->serving->waiters);
    handle(stream, &request, &response);
    const bool is_stream = response.stream != NULL;
    bool waits = response.wait_until_ns != 0;
    if ((waits || is_stream) && !td_waiting_was_refused()) {
        stream->waiter.until_ns = response.wait_until_ns;
        if (!enter_wait(stream)) {
            td_response_fail(&response, 503, NULL,
                             "as many requests wait for a change as --max-waiters allows; try again");
            waits = false;
        }
    }
    const bool must_read = !waits && !td_waiting_was_refused() && !is_in_memory(&response.body);
    if (waits || (must_read && td_waiting_is_forbidden() && !td_may_wait(NULL)) || td_waiting_was_refused()) {
        td_response_fini(&response);
        return waits && !td_waiting_was_refused();
    }
    if (response.stream == NULL)
        leave_wait(stream);
    const uint64_t took_ns = td_clock_ns() - stream->handling_ns;
    if (took_ns >= TD_TIMED_NS)
        td_response_add_timing(&response, took_ns);
    keep_response(stream, &response);
    return false;
}

/* ---- answers that are streams -------------------------------------------------------------------------- */

/* Ends an answer that is a stream. */
static void end_events(struct td_h2_stream *stream)
{
    if (stream->events->class->add_trailers != NULL)
        stream->events->class->add_trailers(stream->events, &stream->trailers);
    td_stream_destroy(stream->events);
    stream->events = NULL;
}

/* Has a stream that can do so end by itself, once. Returns whether it is to be read again. */
static bool stop_events(struct td_h2_stream *stream)
{
    const struct td_stream_class *class = stream->events->class;
    if (class->stop == NULL || stream->is_stopped)
        return false;
    class->stop(stream->events);
    stream->is_stopped = true;
    return true;
}

/* Reads the stream until it gives bytes or ends. Returns true when it has to wait. */
static bool read_events(struct td_h2_stream *stream)
{
    for (;;) {
        struct td_buffer piece;
        td_buffer_init(&piece);
        stream->waiter.seen = td_waiters_published(stream->serving->waiters);
        stream->waiter.until_ns = UINT64_MAX;
        switch (stream->events->class->read(stream->events, &piece, &stream->waiter.until_ns)) {
        case TD_STREAM_ENDS:
            td_buffer_fini(&piece);
            end_events(stream);
            return false;
        case TD_STREAM_HAS_BYTES:
            stream->has_failed = stream->has_failed || piece.failed;
            free(stream->piece);
            stream->piece = td_buffer_release(&piece, &stream->piece_len);
            stream->piece_at = 0;
            stream->length_bytes += stream->piece_len;
            td_buffer_fini(&piece);
            return false;
        case TD_STREAM_WAITS:
            td_buffer_fini(&piece);
            if (!atomic_load(&stream->serving->api->draining) && !td_cancel_is_asked(&stream->cancel))
                return true;
            if (!stop_events(stream)) {
                end_events(stream);
                return false;
            }
            break;
        }
    }
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static void come_back(void *context)
{
    struct td_h2_stream *stream = context;
    td_h2_mailbox_post(stream->mailbox, &stream->mail);
}

static const struct td_suspending suspending = {.suspend = NULL, .resume = come_back};

/* Does the task of a stream that has waited. Returns true when it has to wait again. */
static bool do_again(struct td_h2_stream *stream)
{
    if (td_cancel_is_asked(&stream->cancel))
        return false;
    return stream->task == TD_H2_TASK_EVENTS ? read_events(stream) : make_answer(stream);
}

static enum td_retry retry(struct td_waiter *waiter, bool may_wait)
{
    struct td_h2_stream *stream =
        (struct td_h2_stream *)(void *)((char *)waiter - offsetof(struct td_h2_stream, waiter));
    stream->wait_end_ns = stream->handling_ns = td_clock_ns();
    if (!may_wait && stream->task == TD_H2_TASK_EVENTS)
        return TD_RETRY_REFUSED; /* a job reads it: the waker has many streams to wake */
    if (!may_wait)
        td_waiting_forbid();
    const bool waits = do_again(stream);
    const bool was_refused = !may_wait && td_waiting_allow();
    return was_refused ? TD_RETRY_REFUSED : waits ? TD_RETRY_WAITS : TD_RETRY_ANSWERED;
}

/* Does the stream's task, and gives the stream back to the loop, or has it wait. */
static void run_task(struct td_h2_stream *stream)
{
    bool waits = false;
    stream->waiter.retry = retry;
    stream->waiter.cancel = &stream->cancel;
    if (stream->task == TD_H2_TASK_PIECE)
        run_piece(stream);
    else if (stream->task == TD_H2_TASK_EVENTS)
        waits = read_events(stream);
    else
        waits = make_answer(stream);
    if (waits && td_waiters_park(stream->serving->waiters, &stream->waiter, &suspending, stream))
        return;
    stream->has_failed = stream->has_failed || waits; /* the server ends */
    come_back(stream);
}

/* ---- runners ------------------------------------------------------------------------------------------- */

static struct td_h2_stream *take_stream(struct td_h2_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    struct td_h2_stream *stream = crew->first;
    if (stream != NULL)
        crew->first = stream->next_queued;
    if (crew->first == NULL)
        crew->last = NULL;
    pthread_mutex_unlock(&crew->lock);
    return stream;
}

static struct td_h2_runner *runner_of(struct td_job *job)
{
    return (struct td_h2_runner *)(void *)((char *)job - offsetof(struct td_h2_runner, job));
}

static void run_streams(struct td_job *job)
{
    struct td_h2_runner *runner = runner_of(job);
    struct td_h2_crew *crew = runner->crew;
    for (struct td_h2_stream *stream; (stream = take_stream(crew)) != NULL;)
        run_task(stream);
    td_h2_mailbox_post(crew->mailbox, &runner->mail);
}

/* Starts a runner that is not busy, if there is one and a stream waits for it. */
static void start_runner(struct td_h2_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    const bool is_wanted = crew->first != NULL;
    pthread_mutex_unlock(&crew->lock);
    for (size_t i = 0; is_wanted && i < TD_H2_RUNNERS; i++) {
        struct td_h2_runner *runner = &crew->runners[i];
        if (runner->is_busy)
            continue;
        runner->is_busy = true;
        atomic_fetch_add_explicit(&crew->serving->api->metrics.jobs, 1, memory_order_relaxed);
        (void)td_jobs_run(crew->serving->jobs, NULL, NULL, &runner->job); /* the jobs are closed after this server */
        return;
    }
}

static void runner_ended(struct td_h2_mail *mail)
{
    struct td_h2_runner *runner = (struct td_h2_runner *)(void *)mail;
    struct td_h2_crew *crew = runner->crew;
    runner->is_busy = false;
    start_runner(crew); /* for a stream that was added while it ended */
    if (!td_h2_crew_is_busy(crew))
        crew->on_idle(crew->connection);
}

void td_h2_crew_init(struct td_h2_crew *crew, struct td_serving *serving, struct td_h2_mailbox *mailbox,
                     void *connection, void (*on_idle)(void *connection))
{
    *crew = (struct td_h2_crew){.serving = serving, .mailbox = mailbox, .connection = connection, .on_idle = on_idle};
    (void)pthread_mutex_init(&crew->lock, NULL);
    for (size_t i = 0; i < TD_H2_RUNNERS; i++)
        crew->runners[i] = (struct td_h2_runner){.mail.receive = runner_ended, .job.run = run_streams, .crew = crew};
}

void td_h2_crew_fini(struct td_h2_crew *crew)
{
    (void)pthread_mutex_destroy(&crew->lock);
}

bool td_h2_crew_is_busy(const struct td_h2_crew *crew)
{
    for (size_t i = 0; i < TD_H2_RUNNERS; i++)
        if (crew->runners[i].is_busy)
            return true;
    return false;
}

void td_h2_crew_add(struct td_h2_crew *crew, struct td_h2_stream *stream)
{
    stream->is_at_work = true;
    stream->next_queued = NULL;
    pthread_mutex_lock(&crew->lock);
    *(crew->last != NULL ? &crew->last->next_queued : &crew->first) = stream;
    crew->last = stream;
    pthread_mutex_unlock(&crew->lock);
    start_runner(crew);
}

bool td_h2_crew_withdraw(struct td_h2_crew *crew, struct td_h2_stream *stream)
{
    struct td_h2_stream *before = NULL;
    pthread_mutex_lock(&crew->lock);
    struct td_h2_stream *at = crew->first;
    while (at != NULL && at != stream) {
        before = at;
        at = at->next_queued;
    }
    if (at != NULL) {
        *(before != NULL ? &before->next_queued : &crew->first) = at->next_queued;
        if (crew->last == at)
            crew->last = before;
        stream->is_at_work = false;
    }
    pthread_mutex_unlock(&crew->lock);
    return at != NULL;
}
