#include "server/mhd/session.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "server/config/listen_address.h"
#include "server/net/linger.h"
#include "server/net/tcp_socket.h"

#include <stdlib.h>
#include <string.h>

enum { TARGET_KEPT_BYTES = 1024 }; /* a buffer for targets that is longer is freed after each request */

/* ---- bodies of requests -------------------------------------------------------------------------------- */

const struct in6_addr *td_session_address(const struct td_session *session)
{
    static const struct in6_addr unknown;
    return session->link.connection != NULL ? &session->link.connection->address : &unknown;
}

bool td_session_add_upload(struct td_session *session, const char *bytes, size_t len)
{
    struct td_exchange *exchange = &session->exchange;
    struct td_uploads *uploads = &session->serving->uploads;
    exchange->content_bytes += len;
    if (exchange->upload.failed)
        return exchange->content_bytes <= uploads->longest_bytes + TD_LINGER_BYTES;
    exchange->no_room_for = td_uploads_add(uploads, td_session_address(session), &exchange->counted, len);
    if (exchange->no_room_for == TD_UPLOAD_FITS) {
        td_buffer_append(&exchange->upload, bytes, len);
    } else {
        td_buffer_fini(&exchange->upload);
        exchange->upload.failed = true;
    }
    return true;
}

void td_session_drop_upload(struct td_session *session)
{
    struct td_exchange *exchange = &session->exchange;
    if (!exchange->has_upload && exchange->counted.bytes == 0)
        return; /* nearly every request: the shared counter is not touched */
    td_buffer_fini(&exchange->upload);
    td_uploads_remove(&session->serving->uploads, td_session_address(session), &exchange->counted);
    exchange->has_upload = false;
}

/* ---- requests that wait for a change ------------------------------------------------------------------- */

bool td_session_enter_wait(struct td_session *session, uint64_t until_ns)
{
    struct td_exchange *exchange = &session->exchange;
    session->waiter.until_ns = until_ns;
    session->waiter.cancel = &session->link.connection->ends_wait;
    if (exchange->waits)
        return true;
    if (!td_waiters_enter(session->serving->waiters))
        return false;
    atomic_fetch_sub_explicit(&session->serving->api->metrics.in_flight, 1, memory_order_relaxed);
    exchange->waits = true;
    exchange->wait_since_ns = exchange->wait_end_ns = td_clock_ns();
    return true;
}

void td_session_leave_wait(struct td_session *session)
{
    if (!session->exchange.waits)
        return;
    session->exchange.waits = false;
    td_waiters_leave(session->serving->waiters);
    atomic_fetch_add_explicit(&session->serving->api->metrics.in_flight, 1, memory_order_relaxed);
}

void td_session_end_waiting(struct td_session *session)
{
    session->exchange.wait_end_ns = td_clock_ns();
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HANDLING);
}

/* ---- connections --------------------------------------------------------------------------------------- */

/* Returns the acceptor's entry of this connection, or NULL. */
static struct td_connection *registered_as(struct td_registry *registry, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info == NULL ? NULL : td_registry_find(registry, info->connect_fd);
}

/* Prepares a shared thread, once: libmicrohttpd starts it. */
static void prepare_worker(void)
{
    static _Thread_local bool is_prepared;
    if (!is_prepared)
        td_thread_run_soon();
    is_prepared = true;
}

/* Gives the connection's credentials to its session of GnuTLS, which libmicrohttpd has just made. Without memory the
 * handshake fails. */
static void begin_tls(struct td_session *session, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info != NULL)
        session->credentials =
            td_tls_begin(session->serving->tls, info->tls_session, "http/1.1", &session->link.stream);
}

struct td_session *td_session_begin(struct td_serving *serving, struct MHD_Connection *mhd)
{
    struct td_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->serving = serving;
    struct td_connection *connection = registered_as(serving->registry, mhd);
    session->link = (struct td_link){.connection = connection, .mhd = mhd};
    if (connection == NULL)
        return session;
    td_upload_room_init(&session->room, &serving->uploads, &connection->address, &session->exchange.unpacked);
    session->link.stream.fd = connection->fd;
    if (connection->is_shared) {
        session->link.jobs = serving->jobs;
        prepare_worker();
    }
    if (connection->is_tls)
        begin_tls(session, mhd);
    if (td_access_log_is_on(serving->log))
        td_access_lines_init(&session->access_lines, &connection->address, td_log_get_form());
    return session;
}

void td_session_end(const struct td_serving *serving, struct td_session *session, struct MHD_Connection *mhd)
{
    if (session == NULL) {
        struct td_connection *entry = registered_as(serving->registry, mhd);
        if (entry != NULL)
            td_connection_close(entry);
        return;
    }
    td_session_leave_wait(session);
    td_transfer_release(session->exchange.mhd_response, &session->exchange.transfer); /* it uses the connection */
    td_session_drop_upload(session);
    td_buffer_fini(&session->exchange.piece);
    if (session->link.connection != NULL)
        td_connection_close(session->link.connection);
    td_kept_response_destroy(session->link.kept);
    td_access_lines_fini(&session->access_lines);
    td_tls_credentials_unref(session->credentials); /* GnuTLS does not use them to end a session */
    free(session->target);
    free(session);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

struct td_request td_session_request(const struct td_session *session)
{
    const struct td_exchange *exchange = &session->exchange;
    return (struct td_request){
        .facade = exchange->facade,
        .cors = session->link.connection->facade == td_main_port ? session->serving->api->cors : NULL,
        .is_local = td_address_is_loopback(&session->link.connection->address),
        .is_tls = session->link.connection->is_tls,
        .client = session->link.connection->client,
        .method = {.p = exchange->method, .len = strlen(exchange->method)},
        .target = {.p = session->target, .len = session->target_len},
        .headers = exchange->headers,
        .header_count = exchange->header_count,
        .body = {.p = exchange->upload.data, .len = exchange->upload.len},
        .room = &session->room.room,
        .sink = exchange->sink,
        .is_whole = exchange->sink != NULL && !exchange->sink_failed,
        .body_bytes = exchange->body_bytes,
        .cancel = &session->link.connection->cancel,
        .ends_wait = &session->link.connection->ends_wait,
        .since_ns = exchange->start_ns,
    };
}

/* Cuts the query off libmicrohttpd's copy of the target. Otherwise libmicrohttpd would keep a node in its pool for
 * every parameter, which this server does not use, and a few hundred would fill the pool, so that it closes the
 * connection without an answer. */
static void hide_query(const char *target)
{
    char *query = strchr(target, '?');
    if (query != NULL)
        memset(query, '\0', strlen(query));
}

bool td_session_begin_request(struct td_session *session, const char *target)
{
    struct td_exchange *exchange = &session->exchange;
    size_t len = strlen(target);
    if (session->link.connection == NULL)
        return false;
    td_read_proof_confirm(&session->link.connection->proof);
    exchange->stage = TD_STAGE_NONE;
    exchange->content_bytes = 0;
    if (!td_array_reserve(&session->target, &session->target_capacity, len + 1, 1, NULL, NULL))
        return false;
    memcpy(session->target, target, len + 1);
    session->target_len = len;
    hide_query(target);
    exchange->stage = TD_STAGE_LINE;
    exchange->start_ns = td_clock_ns();
    exchange->wait_since_ns = exchange->wait_end_ns = 0;
    exchange->wants_sink = exchange->has_sink = exchange->sink_failed = exchange->is_cut_short = false;
    exchange->body_bytes = 0;
    exchange->taken_bytes = 0;
    exchange->facade = td_api_facade(session->link.connection->facade, td_text_n(session->target, len));
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HEADER);
    return true;
}

/* Returns the bytes of the answer, header and body, that the client has acknowledged; with TLS some fewer. */
static uint64_t acknowledged_bytes(const struct td_session *session)
{
    const struct td_connection *connection = session->link.connection;
    uint64_t bytes = td_socket_facts_of(connection->fd).acknowledged_bytes;
    uint64_t before = connection->is_tls ? session->exchange.given_bytes : session->sent_bytes;
    bytes = bytes > before ? bytes - before : 0;
    return connection->is_tls ? td_tls_plain_bytes(bytes) : bytes;
}

/* Returns the number of body bytes sent: all of a complete answer, or the acknowledged ones of a cut answer. A small
 * answer is sent in one piece or, when the client is gone, not at all. */
static uint64_t sent_body_bytes(const struct td_session *session, bool complete)
{
    const struct td_exchange *exchange = &session->exchange;
    uint64_t body_bytes = exchange->transfer.body_bytes;
    if (exchange->stage != TD_STAGE_QUEUED) /* a job made the answer, and the client had gone */
        return 0;
    if (complete || !exchange->transfer.is_long)
        return complete ? body_bytes : 0;
    uint64_t sent = acknowledged_bytes(session);
    uint64_t header_bytes = exchange->transfer.header_bytes;
    sent = sent > header_bytes ? sent - header_bytes : 0;
    return sent < body_bytes ? sent : body_bytes;
}

static enum td_cut cut_reason(const struct td_session *session, enum MHD_RequestTerminationCode code)
{
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        return TD_CUT_NONE;
    enum td_cut cut = td_connection_cut_reason(session->link.connection);
    if (cut != TD_CUT_NONE)
        return cut;
    if (code == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN)
        return TD_CUT_SHUTDOWN;
    return TD_CUT_CLIENT;
}

/* Reports the answer of the exchange, if it has one, complete or broken off, or an upload that ended before it was
 * answered. */
static void report_answer(struct td_session *session, enum MHD_RequestTerminationCode code)
{
    struct td_exchange *exchange = &session->exchange;
    const bool has_answer = exchange->stage == TD_STAGE_QUEUED || exchange->mhd_response != NULL;
    const enum td_cut cut = cut_reason(session, code);
    struct td_report report = {.cut = cut,
                               .is_upload = exchange->wants_sink,
                               .length_bytes = exchange->transfer.body_bytes,
                               .received_bytes = exchange->content_bytes,
                               .token = exchange->token,
                               .request_id = exchange->request_id};
    if (!has_answer && !exchange->has_sink) /* its header may not be complete */
        return;
    const struct td_request request = td_session_request(session);
    if (exchange->stream.stream != NULL)
        exchange->wait_end_ns = td_clock_ns(); /* all its time is a wait */
    report.waited_ns = exchange->wait_end_ns - exchange->wait_since_ns;
    report.took_ns = td_clock_ns() - exchange->start_ns - report.waited_ns;
    report.route = exchange->route;
    if (has_answer) {
        report.status = exchange->status;
        report.changed = exchange->changed;
        report.sent_bytes = sent_body_bytes(session, cut == TD_CUT_NONE);
        td_connection_end_answer(session->link.connection, cut == TD_CUT_NONE);
        session->sent_bytes += exchange->transfer.header_bytes + exchange->transfer.framing_bytes + report.sent_bytes;
    }
    if (exchange->stage == TD_STAGE_QUEUED)
        td_metrics_way(&session->serving->api->metrics, exchange->transfer.way);
    td_serving_report(session->serving, &session->access_lines, &request, &report);
}

void td_session_end_request(struct td_session *session, enum MHD_RequestTerminationCode code)
{
    struct td_exchange *exchange = &session->exchange;
    report_answer(session, code);
    td_transfer_release(exchange->mhd_response, &exchange->transfer);
    exchange->mhd_response = NULL;
    td_session_leave_wait(session);
    if (exchange->stage >= TD_STAGE_JUDGED)
        atomic_fetch_sub_explicit(&session->serving->api->metrics.in_flight, 1, memory_order_relaxed);
    exchange->stage = TD_STAGE_NONE;
    td_session_drop_upload(session);
    td_buffer_fini(&exchange->piece);
    if (session->target_capacity > TARGET_KEPT_BYTES) {
        free(session->target);
        session->target = NULL;
        session->target_capacity = 0;
    }
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_IDLE);
}
