/* libmicrohttpd calls back, on the connection's thread, which it may share with others: on_connection at the start and
 * end of a connection (server/mhd/session), on_request_line for each request, on_request once with the header, then
 * with the parts of a body, then without any (server/mhd/answering), and on_completed when the answer was sent or
 * broken off. What is hard:
 *   - The raw target exists only in on_request_line. libmicrohttpd decodes it in place afterwards, but ids may hold
 *     %2F.
 *   - In the first call of on_request an answer closes the connection; in the last one it does not. A good request
 *     without a body is therefore answered in the second call.
 *   - A body cannot be answered before it has come in whole, so one that exceeds the shared memory, or in chunks is too
 *     long, is dropped as it arrives, and answered 503 or 413 at its end. If the end does not come in time or within
 *     TD_LINGER_BYTES, the connection is closed without an answer.
 *   - libmicrohttpd closes connections without an answer when its pool of memory is full (hide_query of session.c,
 *     POOL_OTHER_BYTES). */
#include "server/mhd/http_server.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "server/mhd/answering.h"
#include "server/mhd/session.h"
#include "server/mhd/sink_body.h"
#include "server/mhd/stream_body.h"

#include <gnutls/abstract.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A connection's pool holds, beside the request's header, 64 bytes for each field, a vector of TD_IOVEC_RUNS and the
 * answer's header. It is no larger, because libmicrohttpd clears all of it after every request. */
enum { POOL_OTHER_BYTES = 12 * 1024 };
enum { POOL_CORS_BYTES = 1024 }; /* what the fields of CORS may add to the answer's header */

/* libmicrohttpd passes a body on in pieces of half the pool. Over TLS a piece is at most one record, of 16 KiB. */
enum { UPLOAD_POOL_BYTES = 512 * 1024, TLS_UPLOAD_POOL_BYTES = 64 * 1024 };

struct td_http_server {
    struct MHD_Daemon *daemon;        /* a thread for each connection */
    struct MHD_Daemon *tls_daemon;    /* the same with TLS; NULL: there is no TLS */
    struct MHD_Daemon *upload_daemon; /* the same for uploads; NULL: none are taken */
    struct MHD_Daemon **workers;      /* each a thread for many connections */
    size_t worker_count;
    _Atomic size_t next_worker; /* for the next connection; counts on */
    struct td_serving *serving; /* borrowed */
    _Atomic uint64_t warned_ns; /* when the lack of threads was last reported */
};

/* ---- callbacks ----------------------------------------------------------------------------------------- */

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct td_http_server *server = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = td_session_begin(server->serving, mhd);
    } else {
        if (*context != NULL) {
            td_sink_body_drop(*context);
            td_stream_body_end(*context);
        }
        td_session_end(server->serving, *context, mhd);
        *context = NULL;
    }
}

static struct td_session *session_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

static void *on_request_line(void *cls, const char *target, struct MHD_Connection *mhd)
{
    (void)cls;
    struct td_session *session = session_of(mhd);
    return session != NULL && td_session_begin_request(session, target) ? session : NULL;
}

static enum MHD_Result collect_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                      const char *value, size_t value_len)
{
    struct td_exchange *exchange = cls;
    (void)kind;
    if (exchange->header_count == TD_MAX_HEADER_FIELDS) {
        exchange->too_many = true;
        return MHD_NO;
    }
    struct td_header *header = &exchange->headers[exchange->header_count++];
    header->name = td_text_n(name, name_len);
    header->value = td_text_trim(td_text_n(value == NULL ? "" : value, value == NULL ? 0 : value_len), " \t");
    return MHD_YES;
}

/* Returns whether a field of this name has the token in its list, in any case. */
static bool has_token(const struct td_exchange *exchange, const char *name, const char *token)
{
    for (size_t i = 0; i < exchange->header_count; i++) {
        struct td_text list = exchange->headers[i].value;
        while (td_text_equals_ignore_case(exchange->headers[i].name, name) && list.len > 0)
            if (td_text_equals_ignore_case(td_text_trim(td_text_take_until(&list, ','), " \t"), token))
                return true;
    }
    return false;
}

/* Prepares for the request's body. If no handler would read the body, or the client is not authorized, answers at once
 * and closes the connection, so that clients without a token cannot use memory. */
static enum MHD_Result expect_upload(struct td_session *session, const struct td_request *request)
{
    if (!td_api_takes_body(request) || !td_api_admits(session->serving->api, request))
        return td_answer_begin(session, true);
    session->exchange.has_upload = true;
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_BODY);
    return MHD_YES;
}

/* Answers before the body is read, and closes the connection when the client has had time to read the answer. */
static enum MHD_Result answer_unread(struct td_session *session)
{
    session->exchange.is_cut_short = true;
    return td_answer_begin(session, true);
}

/* Prepares for the body of a request that may have one, where uploads are taken. An upload without a body is answered
 * in the second call. */
static enum MHD_Result expect_body(struct td_session *session, const struct td_request *request,
                                   struct td_guard_verdict verdict, const struct td_guard_limits *limits)
{
    struct td_exchange *exchange = &session->exchange;
    enum td_body_place place = td_api_body_place(session->serving->api, request);
    exchange->body_bytes = verdict.body_bytes;
    exchange->wants_sink = place == TD_BODY_SINK;
    if (verdict.body_bytes == 0) {
        td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HANDLING);
        return MHD_YES;
    }
    if (place == TD_BODY_SINK)
        return td_answer_open(session);
    if (place == TD_BODY_NOWHERE)
        return answer_unread(session);
    verdict = td_guard_memory_body(verdict, limits);
    if (verdict.status != 0) {
        exchange->is_cut_short = true;
        atomic_fetch_add(&session->serving->api->metrics.malformed, 1);
        return td_answer_refuse(session, false, verdict.status, verdict.message);
    }
    if (!td_api_admits(session->serving->api, request))
        return answer_unread(session);
    exchange->has_upload = true;
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_BODY);
    return MHD_YES;
}

/* Judges a request with a complete header, in libmicrohttpd's first call for it: it is refused, answered at once, or
 * answered after its body has arrived. Returns MHD_NO to drop the connection. */
static enum MHD_Result judge_request(struct MHD_Connection *mhd, struct td_session *session, const char *method,
                                     const char *version)
{
    const struct td_serving *serving = session->serving;
    struct td_exchange *exchange = &session->exchange;
    exchange->stage = TD_STAGE_JUDGED;
    exchange->method = method;
    exchange->header_count = 0;
    exchange->too_many = false;
    atomic_fetch_add_explicit(&serving->api->metrics.in_flight, 1, memory_order_relaxed);
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, collect_header, exchange);
    struct td_request request = td_session_request(session);
    bool head = strcmp(method, "HEAD") == 0;
    exchange->is_http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    exchange->is_last = exchange->is_http_1_0 ? !has_token(exchange, "Connection", "keep-alive")
                                              : has_token(exchange, "Connection", "close");
    struct td_guard_limits limits = {.max_header_bytes = (size_t)serving->config->max_header_bytes,
                                     .max_body_bytes = serving->config->max_body_bytes,
                                     .takes_uploads = td_api_takes_uploads(serving->api, exchange->facade)};
    struct td_guard_verdict verdict = td_request_guard(&request, version, exchange->too_many, &limits);
    if (verdict.status != 0 && !td_api_refuses_body(serving->api, &request)) {
        exchange->is_cut_short = limits.takes_uploads && td_guard_is_write(request.method);
        atomic_fetch_add(&serving->api->metrics.malformed, 1);
        return td_answer_refuse(session, head, verdict.status, verdict.message);
    }
    if (session->link.connection->over == TD_OVER_TOTAL && !td_api_is_probe(&request)) {
        exchange->is_cut_short = limits.takes_uploads && td_guard_is_write(request.method);
        atomic_fetch_add(&serving->api->metrics.refused_total, 1);
        return td_answer_refuse(session, head, 503, "all connections are in use (--max-connections); try again");
    }
    if (verdict.has_unread_body)
        return td_answer_begin(session, true);
    if (limits.takes_uploads && td_guard_is_write(request.method))
        return expect_body(session, &request, verdict, &limits);
    if (verdict.body_bytes > 0 || verdict.status != 0)
        return expect_upload(session, &request);
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HANDLING);
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_len, void **context)
{
    (void)cls;
    (void)url;
    struct td_session *session = *context;
    if (session == NULL)
        return MHD_NO;
    struct td_exchange *exchange = &session->exchange;
    if (exchange->stage >= TD_STAGE_WAIT_WANTED && exchange->stage <= TD_STAGE_JOB_BEGUN)
        return td_answer_resume(session);
    if (exchange->stage == TD_STAGE_OPENING)
        return td_answer_opened(session);
    if (exchange->stage < TD_STAGE_JUDGED)
        return judge_request(mhd, session, method, version);
    if (*upload_len != 0 && exchange->wants_sink)
        return td_answer_take(session, upload, upload_len);
    if (*upload_len != 0) {
        bool goes_on = td_session_add_upload(session, upload, *upload_len);
        *upload_len = 0;
        return goes_on ? MHD_YES : MHD_NO;
    }
    if (exchange->stage == TD_STAGE_QUEUED)
        return MHD_YES;
    if (exchange->has_upload || exchange->wants_sink)
        td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HANDLING);
    return td_answer_begin(session, false);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)mhd;
    struct td_session *session = *context;
    *context = NULL;
    if (session == NULL || session->exchange.stage == TD_STAGE_NONE)
        return;
    bool lingers = session->exchange.is_cut_short && code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    td_sink_body_drop(session); /* of a body that was cut */
    td_session_end_request(session, code);
    td_stream_body_end(session);
    if (lingers)
        td_sink_body_linger(session);
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

/* Counts a connection that was closed because no thread could be started for it, and logs that once a minute. No
 * callback reports it; only libmicrohttpd's log does. */
static void note_no_thread(struct td_http_server *server)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t last_ns = atomic_load(&server->warned_ns);
    atomic_fetch_add(&server->serving->api->metrics.refused_threads, 1);
    if ((last_ns == 0 || now_ns - last_ns > UINT64_C(60000000000)) &&
        atomic_compare_exchange_strong(&server->warned_ns, &last_ns, now_ns))
        td_log(TD_LOG_ERROR, "a connection was closed because no thread could be started for it; raise the limit on "
                             "processes (ulimit -u, or the container's pids limit)");
}

__attribute__((format(printf, 2, 0))) static void on_mhd_log(void *cls, const char *format, va_list args)
{
    struct td_http_server *server = cls;
    char message[512];
    (void)vsnprintf(message, sizeof message, format, args);
    message[strcspn(message, "\n")] = '\0';
    if (strncmp(message, "Failed to create a", 18) == 0 && strstr(message, "thread") != NULL)
        note_no_thread(server);
    td_log(TD_LOG_DEBUG, "libmicrohttpd: %s", message);
}

/* Leaves paths raw; http/uri decodes them. */
static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls;
    (void)connection;
    return strlen(text);
}

/* Each session is given its credentials when its connection begins (begin_tls of server/mhd/session.c); without them
 * there is no handshake. */
static int no_credentials(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                          const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **chain,
                          unsigned int *chain_length, gnutls_privkey_t *key)
{
    (void)session, (void)authorities, (void)authority_count, (void)algorithms, (void)algorithm_count, (void)chain,
        (void)chain_length, (void)key;
    return -1;
}

/* Starts a daemon of libmicrohttpd without a listening socket; NULL on failure. upload_bytes: the least memory of a
 * connection. */
static struct MHD_Daemon *start_daemon(struct td_http_server *server, unsigned int how, size_t upload_bytes)
{
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TD_TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)no_credentials},
        {MHD_OPTION_END, 0, NULL},
    };
    bool has_tls = (how & MHD_USE_TLS) != 0;
    const struct td_config *config = server->serving->config;
    size_t pool_bytes = (size_t)config->max_header_bytes + POOL_OTHER_BYTES;
    if (server->serving->api->cors != NULL)
        pool_bytes += POOL_CORS_BYTES;
    if (pool_bytes < upload_bytes)
        pool_bytes = upload_bytes;
    size_t stack_bytes = TD_SMALL_STACK_BYTES; /* of every thread that it starts; a handshake takes 28 KiB of it */
    unsigned int limit = (unsigned int)config->max_connections + TD_RESERVED_CONNECTIONS + 8;
    /* MHD_OPTION_STRICT_FOR_CLIENT is not set: it answers a missing Host with two status lines, and the guard refuses
     * it anyway. MHD_OPTION_CONNECTION_TIMEOUT is not set: it would end silent bodies and stalled answers too, and
     * server/net/connection has all deadlines. */
    return MHD_start_daemon(how | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
                            server,                                               //
                            MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, server,       //
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,  //
                            MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,    //
                            MHD_OPTION_URI_LOG_CALLBACK, on_request_line, server, //
                            MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,     //
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, pool_bytes,       //
                            MHD_OPTION_THREAD_STACK_SIZE, stack_bytes,            //
                            MHD_OPTION_CONNECTION_LIMIT, limit,                   //
                            MHD_OPTION_ARRAY, has_tls ? tls : &tls[2],            //
                            MHD_OPTION_END);
}

/* Starts the daemons that have a thread for each connection. */
static bool start_daemons(struct td_http_server *server, struct td_error *err)
{
    static const unsigned int how = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL;
    bool has_tls = server->serving->tls != NULL;
    bool takes_uploads = server->serving->api->takes_uploads;
    server->daemon = start_daemon(server, how, 0);
    if (server->daemon != NULL && takes_uploads)
        server->upload_daemon = start_daemon(server, how, UPLOAD_POOL_BYTES);
    if (server->daemon != NULL && has_tls)
        server->tls_daemon = start_daemon(server, how | MHD_USE_TLS, takes_uploads ? TLS_UPLOAD_POOL_BYTES : 0);
    if (server->daemon != NULL && (!has_tls || server->tls_daemon != NULL) &&
        (!takes_uploads || server->upload_daemon != NULL))
        return true;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED, "libmicrohttpd did not start%s; --log-level debug may say why",
                        server->daemon == NULL ? "" : " with TLS");
}

/* Starts the workers. */
static bool start_workers(struct td_http_server *server, struct td_error *err)
{
    size_t count = server->serving->config->workers;
    if (count == 0)
        return true;
    server->workers = calloc(count, sizeof *server->workers);
    if (server->workers == NULL)
        return td_error_no_memory(err);
    while (server->worker_count < count) {
        struct MHD_Daemon *worker = start_daemon(server, MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0);
        if (worker == NULL)
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "only %zu of %zu --workers could be started",
                                server->worker_count, count);
        server->workers[server->worker_count++] = worker;
    }
    return true;
}

bool td_http_server_create(struct td_serving *serving, struct td_http_server **out, struct td_error *err)
{
    struct td_http_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return td_error_no_memory(err);
    server->serving = serving;
    if (start_daemons(server, err) && start_workers(server, err)) {
        *out = server;
        return true;
    }
    td_http_server_destroy(server);
    return false;
}

void td_http_server_destroy(struct td_http_server *server)
{
    if (server == NULL)
        return;
    for (size_t i = 0; i < server->worker_count; i++)
        MHD_stop_daemon(server->workers[i]);
    if (server->tls_daemon != NULL)
        MHD_stop_daemon(server->tls_daemon);
    if (server->upload_daemon != NULL)
        MHD_stop_daemon(server->upload_daemon);
    if (server->daemon != NULL)
        MHD_stop_daemon(server->daemon);
    free(server->workers);
    free(server);
}

/* A function of td_taker's kind. */
static bool take_connection(void *context, struct td_connection *connection, enum td_lane lane,
                            const struct sockaddr *address, unsigned int address_len)
{
    struct td_http_server *server = context;
    struct MHD_Daemon *daemon = lane == TD_LANE_TLS ? server->tls_daemon : server->daemon;
    if (lane == TD_LANE_UPLOAD && server->upload_daemon != NULL)
        daemon = server->upload_daemon;
    if (lane == TD_LANE_SHARED && server->worker_count > 0) {
        daemon = server->workers[atomic_fetch_add(&server->next_worker, 1) % server->worker_count];
        connection->is_shared = true;
    }
    return MHD_add_connection(daemon, connection->fd, address, address_len) == MHD_YES;
}

const char *td_http_server_library(void)
{
    return MHD_get_version();
}

struct td_taker td_http_server_taker(struct td_http_server *server)
{
    return (struct td_taker){.take = take_connection, .context = server};
}
