/* Two things are hard on a thread that serves other connections. A sink that is released because the body was cut may
 * wait for a disk, and the session is gone by then; so its job is allocated with the sink. A connection that reads on
 * after its answer is closed by libmicrohttpd at once; so a job reads from a second descriptor of the socket. */
#include "server/mhd/sink_body.h"

#include "server/net/linger.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Releases a sink in a job. */
struct td_late_release {
    struct td_job job; /* first: on the way back a job is one of these */
    struct td_body_sink *sink;
};

/* Answers a request for whose upload there is no room, and counts it. */
static void refuse_for_limit(struct td_session *session, const struct td_request *request, bool is_share,
                             struct td_response *response)
{
    enum td_upload_refusal cause = is_share ? TD_UPLOAD_OVER_ADDRESS : TD_UPLOAD_OVER_TOTAL;
    atomic_fetch_add(&session->serving->api->metrics.uploads_refused[cause], 1);
    td_response_init_for(response, request);
    td_response_fail(response, 503, NULL,
                     is_share ? "your address has as many uploads in progress as one may have; try again"
                              : "as many uploads are in progress as may be; try again");
}

/* Keeps what the access log reports of an upload that is cut before its answer. */
static void note_for_log(struct td_exchange *exchange, const struct td_request *request, struct td_response *response)
{
    td_response_add_request_id(response, request);
    memcpy(exchange->request_id, response->request_id, sizeof exchange->request_id);
    memcpy(exchange->token, response->token, sizeof exchange->token);
    exchange->route = response->route;
}

bool td_sink_body_open(struct td_session *session, struct td_response *response)
{
    struct td_exchange *exchange = &session->exchange;
    struct td_uploads *uploads = &session->serving->uploads;
    struct td_metrics *metrics = &session->serving->api->metrics;
    const struct in6_addr *address = td_session_address(session);
    struct td_request request = td_session_request(session);
    bool is_shared = session->link.jobs != NULL;
    enum td_upload_verdict verdict = td_uploads_enter(uploads, address);
    if (verdict != TD_UPLOAD_FITS) {
        refuse_for_limit(session, &request, verdict == TD_UPLOAD_NO_SHARE, response);
        return false;
    }
    exchange->late_release = is_shared ? calloc(1, sizeof *exchange->late_release) : NULL;
    if (is_shared && exchange->late_release == NULL)
        refuse_for_limit(session, &request, false, response);
    else
        exchange->sink = td_api_begin_upload(session->serving->api, &request, response);
    if (exchange->sink != NULL) {
        exchange->has_sink = true;
        note_for_log(exchange, &request, response);
        atomic_fetch_add(&metrics->uploads, 1);
        td_response_fini(response);
        return true;
    }
    free(exchange->late_release);
    exchange->late_release = NULL;
    td_uploads_leave(uploads, address);
    if (response->status >= 400)
        atomic_fetch_add(&metrics->uploads_refused[TD_UPLOAD_BY_HANDLER], 1);
    return false;
}

void td_sink_body_write(struct td_session *session, const char *bytes, size_t len)
{
    struct td_exchange *exchange = &session->exchange;
    struct td_deadline *deadline = &session->link.connection->deadline;
    struct td_metrics *metrics = &session->serving->api->metrics;
    exchange->content_bytes += len;
    if (exchange->sink == NULL || exchange->sink_failed)
        return;
    atomic_store(&deadline->is_taking, true);
    exchange->sink_failed = !exchange->sink->ops->write(exchange->sink, bytes, len);
    atomic_store(&deadline->is_taking, false);
    if (exchange->sink_failed)
        atomic_fetch_add(&metrics->uploads_refused[TD_UPLOAD_BY_SINK], 1);
    else
        atomic_fetch_add_explicit(&metrics->upload_bytes, len, memory_order_relaxed);
}

/* Takes the sink off the exchange, and counts one upload less. */
static struct td_body_sink *take_sink(struct td_session *session)
{
    struct td_body_sink *sink = session->exchange.sink;
    session->exchange.sink = NULL;
    atomic_fetch_sub(&session->serving->api->metrics.uploads, 1);
    td_uploads_leave(&session->serving->uploads, td_session_address(session));
    return sink;
}

void td_sink_body_close(struct td_session *session)
{
    struct td_exchange *exchange = &session->exchange;
    if (exchange->sink == NULL)
        return;
    struct td_body_sink *sink = take_sink(session);
    sink->ops->release(sink);
    free(exchange->late_release);
    exchange->late_release = NULL;
}

static void run_late_release(struct td_job *job)
{
    struct td_late_release *late = (struct td_late_release *)(void *)job;
    late->sink->ops->release(late->sink);
    free(late);
}

void td_sink_body_drop(struct td_session *session)
{
    struct td_late_release *late = session->exchange.late_release;
    if (session->exchange.sink == NULL || late == NULL) {
        td_sink_body_close(session);
        return;
    }
    late->job.run = run_late_release;
    late->sink = take_sink(session);
    session->exchange.late_release = NULL;
    if (!td_jobs_run(session->link.jobs, NULL, NULL, &late->job))
        run_late_release(&late->job); /* the server ends */
}

/* ---- reading on after an answer ------------------------------------------------------------------------ */

enum { MOST_LATE_LINGERS = 64 }; /* beyond that, connections of shared threads are closed at once */

struct late_linger {
    struct td_job job; /* first: on the way back a job is one of these */
    int fd;
};

static _Atomic int late_lingers;

static void run_late_linger(struct td_job *job)
{
    struct late_linger *late = (struct late_linger *)(void *)job;
    td_linger(late->fd);
    (void)close(late->fd);
    free(late);
    atomic_fetch_sub(&late_lingers, 1);
}

static void linger_in_job(struct td_jobs *jobs, int fd)
{
    struct late_linger *late = NULL;
    if (atomic_fetch_add(&late_lingers, 1) < MOST_LATE_LINGERS)
        late = calloc(1, sizeof *late);
    if (late != NULL) {
        late->job.run = run_late_linger;
        late->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (late->fd >= 0 && td_jobs_run(jobs, NULL, NULL, &late->job))
            return;
        if (late->fd >= 0)
            (void)close(late->fd);
    }
    free(late);
    atomic_fetch_sub(&late_lingers, 1);
}

void td_sink_body_linger(struct td_session *session)
{
    struct td_connection *connection = session->link.connection;
    if (session->link.jobs != NULL) {
        linger_in_job(session->link.jobs, connection->fd);
        return;
    }
    td_deadline_enter(&connection->deadline, TD_PHASE_HANDLING); /* the time is limited here */
    td_linger(connection->fd);
}
