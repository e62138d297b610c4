#include "server/mhd/sent_report.h"

#include "core/clock.h"
#include "http/auth/signed_url.h"
#include "server/net/socket_facts.h"

static void write_access_log(struct td_session *session, uint64_t sent_bytes, uint64_t took_ns, uint64_t waited_ns,
                             enum td_cut cut)
{
    const struct td_exchange *exchange = &session->exchange;
    struct td_request request = td_session_request(session);
    size_t range_at = 0, agent_at = 0;
    struct td_trace_context trace;
    const struct td_header *traceparent = td_request_single_header(&request, "traceparent");
    const struct td_header *range = td_request_next_header(&request, "Range", &range_at);
    const struct td_header *agent = td_request_next_header(&request, "User-Agent", &agent_at);
    struct td_access_event event = {
        .end = td_wall_now(),
        .method = request.method,
        .target = td_signed_url_without_secret(request.target),
        .status = exchange->status,
        .sent_bytes = sent_bytes,
        .length_bytes = exchange->transfer.body_bytes,
        .took_ns = took_ns,
        .waited_ns = waited_ns,
        .route = td_route_name(exchange->route),
        .cut = cut == TD_CUT_NONE ? NULL : td_cut_name(cut),
        .range = range == NULL ? NULL : &range->value,
        .agent = agent == NULL ? NULL : &agent->value,
        .token = exchange->token,
        .request_id = exchange->request_id,
        .trace = traceparent != NULL && td_trace_context_read(traceparent->value, &trace) ? &trace : NULL,
    };
    struct td_text line = td_access_lines_write(&session->access_lines, &event);
    if (line.len > 0)
        td_access_log_write(session->serving->log, line.p, line.len);
}

/* Returns the bytes of the answer, header and body, that the client has acknowledged; with TLS some fewer. */
static uint64_t acknowledged_bytes(const struct td_session *session)
{
    const struct td_connection *connection = session->link.connection;
    uint64_t bytes = td_socket_acknowledged_bytes(connection->fd);
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

void td_sent_report(struct td_session *session, enum MHD_RequestTerminationCode code)
{
    const struct td_serving *serving = session->serving;
    struct td_exchange *exchange = &session->exchange;
    if (exchange->stage != TD_STAGE_QUEUED && exchange->mhd_response == NULL)
        return;
    struct td_metrics *metrics = &serving->api->metrics;
    uint64_t waited_ns = exchange->wait_end_ns - exchange->wait_since_ns;
    uint64_t took_ns = td_clock_ns() - exchange->start_ns - waited_ns;
    enum td_cut cut = cut_reason(session, code);
    uint64_t sent_bytes = sent_body_bytes(session, cut == TD_CUT_NONE);
    td_connection_end_answer(session->link.connection, cut == TD_CUT_NONE);
    session->sent_bytes += exchange->transfer.header_bytes + sent_bytes;
    td_metrics_request(metrics, exchange->route, exchange->status, sent_bytes, took_ns);
    if (exchange->stage == TD_STAGE_QUEUED)
        td_metrics_way(metrics, exchange->transfer.way);
    td_metrics_cut(metrics, cut);
    if (exchange->changed || cut == TD_CUT_CHANGED) /* before the answer began, or while it was sent */
        td_catalog_request_scan(serving->api->catalog);
    if (td_access_log_is_on(serving->log))
        write_access_log(session, sent_bytes, took_ns, waited_ns, cut);
}
