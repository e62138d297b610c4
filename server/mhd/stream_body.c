#include "server/mhd/stream_body.h"

#include "core/clock.h"
#include "core/waiting.h"
#include "server/mhd/suspending.h"

#include <string.h>

/* The memory for the bytes that libmicrohttpd asks for at a time, in a connection without chunked encoding. */
enum { BLOCK_BYTES = 4096 };

/* Passes on bytes of the piece that the stream has given last. */
static ssize_t pass_bytes(struct td_exchange *exchange, char *out, size_t max)
{
    struct td_stream_body *body = &exchange->stream;
    size_t left = body->piece.len - body->passed_bytes;
    size_t n = left < max ? left : max;
    memcpy(out, body->piece.data + body->passed_bytes, n);
    body->passed_bytes += n;
    exchange->transfer.body_bytes += n;
    if (body->passed_bytes == body->piece.len) { /* a stream mostly waits, and should take no memory then */
        td_buffer_fini(&body->piece);
        body->passed_bytes = 0;
    }
    return (ssize_t)n;
}

/* Has a stream that can do so end by itself, once. Returns whether it is to be read again. */
static bool stop(struct td_stream_body *body)
{
    const struct td_stream_class *class = body->stream->class;
    if (class->stop == NULL || body->is_stopped)
        return false;
    class->stop(body->stream);
    body->is_stopped = true;
    return true;
}

/* Ends a stream: adds its trailers to the response. */
static ssize_t end_stream(struct td_stream_body *body)
{
    struct td_trailers trailers = {.count = 0};
    if (body->stream->class->add_trailers != NULL)
        body->stream->class->add_trailers(body->stream, &trailers);
    bool ok = td_answer_trailers_add(body->mhd_response, &trailers);
    td_trailers_fini(&trailers);
    return ok ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* Waits until the stream may have something to send. Returns false when the answer is to end. Sets *is_suspended when
 * the connection was suspended: the caller returns to libmicrohttpd, which asks again later. */
static bool wait_for_bytes(struct td_session *session, uint64_t until_ns, bool *is_suspended)
{
    const struct td_serving *serving = session->serving;
    session->waiter.until_ns = until_ns;
    if (atomic_load(&serving->api->draining) || td_cancel_is_asked(session->waiter.cancel))
        return false;
    *is_suspended = session->link.jobs != NULL;
    return *is_suspended ? td_waiters_park(serving->waiters, &session->waiter, &td_mhd_suspending, session->link.mhd)
                         : td_waiters_sleep(serving->waiters, &session->waiter);
}

/* Reads from the stream. */
static void read_once(struct td_stream_body *body)
{
    body->until_ns = UINT64_MAX;
    body->state = body->stream->class->read(body->stream, &body->piece, &body->until_ns);
}

static void run_read(struct td_job *job)
{
    struct td_stream_body *body = &((struct td_session *)(void *)job)->exchange.stream;
    read_once(body);
    body->was_read = true;
}

/* Has a job read, while the connection is suspended. Returns false when the server ends. */
static bool read_by_job(struct td_session *session)
{
    td_buffer_fini(&session->exchange.stream.piece);
    session->job.run = run_read;
    atomic_fetch_add_explicit(&session->serving->api->metrics.jobs, 1, memory_order_relaxed);
    return td_jobs_run(session->link.jobs, &td_mhd_suspending, session->link.mhd, &session->job);
}

/* Sets the result of the next read. Returns false when a job has to read first: a shared thread must not wait. */
static bool read_next(struct td_session *session)
{
    struct td_stream_body *body = &session->exchange.stream;
    if (body->was_read) {
        body->was_read = false;
        return true;
    }
    session->waiter.seen = td_waiters_published(session->serving->waiters);
    if (session->link.jobs != NULL)
        td_waiting_forbid();
    read_once(body);
    return session->link.jobs == NULL || !td_waiting_allow();
}

/* Gives libmicrohttpd the next bytes of the stream; 0: it asks again when the connection is resumed. */
static ssize_t read_stream(void *cls, uint64_t pos, char *out, size_t max)
{
    struct td_session *session = cls;
    struct td_exchange *exchange = &session->exchange;
    struct td_stream_body *body = &exchange->stream;
    (void)pos;
    for (;;) {
        bool is_suspended = false;
        if (body->piece.len > 0 && !body->was_read)
            return pass_bytes(exchange, out, max);
        if (!read_next(session))
            return read_by_job(session) ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
        switch (body->state) {
        case TD_STREAM_ENDS:
            return end_stream(body);
        case TD_STREAM_HAS_BYTES:
            if (body->piece.failed)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            break;
        case TD_STREAM_WAITS:
            if (!wait_for_bytes(session, body->until_ns, &is_suspended)) {
                if (!stop(body))
                    return MHD_CONTENT_READER_END_OF_STREAM;
            } else if (is_suspended) {
                return 0;
            }
            break;
        }
    }
}

static ssize_t read_nothing(void *cls, uint64_t pos, char *out, size_t max)
{
    (void)cls, (void)pos, (void)out, (void)max;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

struct MHD_Response *td_stream_body_create(struct td_session *session, struct td_response *response, bool head)
{
    struct td_exchange *exchange = &session->exchange;
    response->close = true; /* so that the bytes of the framing, which nobody counts, are followed by no other answer */
    exchange->transfer = (struct td_transfer){
        .way = TD_WAY_NONE, .header_bytes = td_answer_header_bytes(response, TD_BODY_LENGTH_UNKNOWN), .is_long = !head};
    struct MHD_Response *mhd_response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, head ? read_nothing : read_stream, session, NULL);
    if (mhd_response != NULL && !td_answer_header_add(mhd_response, response)) {
        MHD_destroy_response(mhd_response);
        return NULL;
    }
    if (mhd_response == NULL || head)
        return mhd_response;
    td_read_proof_hold(&session->link.connection->proof, session->link.connection->fd);
    session->link.stream.more_follows = false;
    exchange->stream = (struct td_stream_body){.stream = response->stream, .mhd_response = mhd_response};
    response->stream = NULL;
    td_buffer_init(&exchange->stream.piece);
    return mhd_response;
}

bool td_stream_body_is_on(const struct td_session *session)
{
    return session->exchange.stream.stream != NULL;
}

void td_stream_body_end(struct td_session *session)
{
    struct td_stream_body *body = &session->exchange.stream;
    if (body->stream == NULL)
        return;
    td_stream_destroy(body->stream);
    td_buffer_fini(&body->piece);
    *body = (struct td_stream_body){.stream = NULL};
}
