/* libmicrohttpd calls back, on the connection's thread, which it may share with others: on_connection at the start and
 * end of a connection (a session), on_request_line for each request, on_request once with the header, then with the
 * parts of a body, then without any, and on_completed when the answer was sent or broken off. What is hard:
 *   - The raw target exists only in on_request_line. libmicrohttpd decodes it in place afterwards, but ids may hold
 * %2F.
 *   - In the first call of on_request an answer closes the connection; in the last one it does not. A good request
 *     without a body is therefore answered in the second call.
 *   - A body cannot be answered before it has come in whole, so one that exceeds the shared memory is dropped as it
 *     arrives, and answered 503 at its end.
 *   - A shared thread must not wait. It tries to make the answer in a section in which waiting is forbidden
 *     (core/waiting.h); if that is refused, a job makes it from the beginning, and on_request is called again.
 *   - A request may wait for a change (server/waiters.h). It is then tried again from the beginning, by the waker, by a
 *     job or, in a thread of its own, by that.
 *   - libmicrohttpd closes connections without an answer when its pool of memory is full (hide_query,
 * POOL_OTHER_BYTES).
 */
#include "server/http_server.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/scheduling.h"
#include "core/small_thread.h"
#include "core/waiting.h"
#include "http/auth/signed_url.h"
#include "server/access_line.h"
#include "server/jobs.h"
#include "server/listen_address.h"
#include "server/request_guard.h"
#include "server/transfer.h"
#include "server/uploads.h"
#include "server/waiters.h"

#include <gnutls/abstract.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* POOL_OTHER_BYTES: a connection's pool holds, beside the request's header, 64 bytes for each field, a vector of
 * TD_IOVEC_RUNS and the answer's header. It is no larger, because libmicrohttpd clears all of it after every request.
 * TARGET_KEPT_BYTES: a buffer for targets that is longer is freed after each request. */
enum { POOL_OTHER_BYTES = 12 * 1024, TARGET_KEPT_BYTES = 1024 };

struct td_http_server {
    struct MHD_Daemon *daemon;     /* a thread for each connection */
    struct MHD_Daemon *tls_daemon; /* the same with TLS; NULL: there is no TLS */
    struct MHD_Daemon **workers;   /* each a thread for many connections */
    size_t worker_count;
    _Atomic size_t next_worker; /* for the next connection; counts on */
    struct td_jobs *jobs;       /* of the workers */
    struct td_waiters *waiters; /* requests that wait for a change */
    const struct td_config *config;
    struct td_api *api;
    struct td_registry *registry;
    struct td_access_log *log;
    struct td_tls *tls;
    struct td_uploads uploads;  /* all request bodies that are being read or handled */
    _Atomic uint64_t warned_ns; /* when the lack of threads was last reported */
};

/* How far a request has come, in this order. */
enum stage {
    STAGE_NONE,        /* there is no request */
    STAGE_LINE,        /* its request line was read */
    STAGE_JUDGED,      /* the guard has seen it */
    STAGE_WAIT_WANTED, /* the connection is to be suspended until something changes */
    STAGE_JOB_WANTED,  /* a job is to make the answer */
    STAGE_JOB_BEGUN,   /* the connection is suspended, or was: the job has made the answer */
    STAGE_QUEUED,      /* libmicrohttpd has the response */
};

/* One request, from its request line to its last byte. */
struct exchange {
    enum stage stage;
    uint64_t start_ns;
    const struct td_facade *facade; /* decided by the port and the path */
    struct td_header headers[TD_MAX_HEADER_FIELDS];
    size_t header_count;
    bool too_many;
    const char *method;                 /* belongs to libmicrohttpd, like the headers, until the request is completed */
    struct td_buffer upload;            /* the part of the request's body that has arrived; freed once it is handled */
    struct td_upload counted;           /* the same in the server's uploads */
    enum td_upload_verdict no_room_for; /* what the body was too long for; TD_UPLOAD_FITS: nothing */
    uint64_t content_bytes;             /* length of the request's body, as far as it has arrived */
    bool has_upload;
    bool is_http_1_0;
    bool is_last;                        /* the client wants the connection closed after the answer */
    bool waits;                          /* it counts as one that waits for a change */
    uint64_t wait_since_ns, wait_end_ns; /* when it began to wait, and was last tried again; 0: it never waited */
    /* of the answer */
    int status;
    enum td_route route;
    bool changed; /* it is an error, because a file has changed */
    char request_id[TD_REQUEST_ID_BYTES];
    char token[TD_RESPONSE_TOKEN_BYTES]; /* the name of the token that asked */
    struct td_transfer transfer;
    struct MHD_Response *made; /* owned until it is queued; NULL: no memory */
    uint64_t given_bytes;      /* with TLS, to the socket before a long answer */
};

/* The state of one connection; used by its thread alone or, while it is suspended, by the job or the waker alone. */
struct session {
    struct td_job job; /* first: on the way back a job is a session */
    struct td_waiter waiter;
    bool job_closes; /* the job's answer ends the connection */
    struct td_http_server *server;
    struct td_connection *connection;
    struct td_tls_credentials *credentials; /* one reference; NULL: without TLS */
    uint64_t received_bytes;                /* of all requests, with their headers */
    uint64_t sent_bytes;                    /* of all answers that have ended, with their headers */
    char *target;                           /* raw; kept between requests while small */
    size_t target_len, target_capacity;
    struct exchange exchange;
    struct td_access_lines access_lines; /* all zero when the log is off */
};

static struct session *session_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

/* ---- bodies of requests -------------------------------------------------------------------------------- */

/* Returns the address of the client: all zero where libmicrohttpd does not tell the connection. */
static const struct in6_addr *address_of(const struct session *session)
{
    static const struct in6_addr unknown;
    return session->connection != NULL ? &session->connection->address : &unknown;
}

/* Appends a part of the request's body. Beyond the limits of uploads the body is dropped and marked as failed, for the
 * answer that follows its end; what comes after that takes no memory, and is not counted. */
static void add_upload(struct session *session, const char *bytes, size_t len)
{
    struct exchange *exchange = &session->exchange;
    exchange->content_bytes += len;
    if (exchange->upload.failed)
        return;
    exchange->no_room_for = td_uploads_add(&session->server->uploads, address_of(session), &exchange->counted, len);
    if (exchange->no_room_for == TD_UPLOAD_FITS) {
        td_buffer_append(&exchange->upload, bytes, len);
    } else {
        td_buffer_fini(&exchange->upload);
        exchange->upload.failed = true;
    }
}

/* Frees the request's body and subtracts it from the server's sum. */
static void drop_upload(struct session *session)
{
    struct exchange *exchange = &session->exchange;
    if (!exchange->has_upload && exchange->counted.bytes == 0)
        return; /* nearly every request: the shared counter is not touched */
    td_buffer_fini(&exchange->upload);
    td_uploads_remove(&session->server->uploads, address_of(session), &exchange->counted);
    exchange->has_upload = false;
}

/* ---- requests that wait for a change ------------------------------------------------------------------- */

/* Counts the request as one that waits, and no longer as one that is being answered. Returns false when too many wait
 * already. */
static bool enter_wait(struct session *session, uint64_t until_ns)
{
    struct exchange *exchange = &session->exchange;
    session->waiter.until_ns = until_ns;
    session->waiter.cancel = &session->connection->cancel;
    if (exchange->waits)
        return true;
    if (!td_waiters_enter(session->server->waiters))
        return false;
    atomic_fetch_sub_explicit(&session->server->api->metrics.in_flight, 1, memory_order_relaxed);
    exchange->waits = true;
    exchange->wait_since_ns = exchange->wait_end_ns = td_clock_ns();
    return true;
}

/* Ends what enter_wait began, if it did. */
static void leave_wait(struct session *session)
{
    if (!session->exchange.waits)
        return;
    session->exchange.waits = false;
    td_waiters_leave(session->server->waiters);
    atomic_fetch_add_explicit(&session->server->api->metrics.in_flight, 1, memory_order_relaxed);
}

/* Marks the beginning of another try. The time of the answer counts from here on. */
static void end_waiting(struct session *session)
{
    session->exchange.wait_end_ns = td_clock_ns();
    td_connection_set_phase(session->connection, TD_PHASE_HANDLING);
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
static void begin_tls(struct session *session, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info != NULL)
        session->credentials = td_tls_begin(session->server->tls, info->tls_session, session->connection);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct td_http_server *server = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct session *session = calloc(1, sizeof *session);
        if (session != NULL) {
            session->server = server;
            session->connection = registered_as(server->registry, connection);
            if (session->connection != NULL) {
                session->connection->mhd = connection;
                if (session->connection->jobs != NULL)
                    prepare_worker();
                if (session->connection->is_tls)
                    begin_tls(session, connection);
                if (td_access_log_is_on(server->log))
                    td_access_lines_init(&session->access_lines, &session->connection->address, td_log_get_form());
            }
        }
        *context = session; /* NULL when out of memory: every request is then refused */
        return;
    }
    struct session *session = *context;
    if (session == NULL) {
        struct td_connection *entry = registered_as(server->registry, connection);
        if (entry != NULL)
            td_connection_close(entry);
        return;
    }
    leave_wait(session);
    td_transfer_release(session->exchange.made, &session->exchange.transfer); /* it uses the connection */
    drop_upload(session);
    if (session->connection != NULL)
        td_connection_close(session->connection);
    td_access_lines_fini(&session->access_lines);
    td_tls_credentials_unref(session->credentials); /* GnuTLS does not use them to end a session */
    free(session->target);
    free(session);
    *context = NULL;
}

/* Cuts the query off libmicrohttpd's copy of the target. It would keep a node in its pool for every parameter, which
 * nobody asks it for, and close the connection without an answer when a few hundred had filled the pool. */
static void hide_query(const char *target)
{
    char *query = strchr(target, '?');
    if (query != NULL)
        memset(query, '\0', strlen(query));
}

/* Begins an exchange: keeps the raw target before libmicrohttpd decodes it, and decides on the facade. */
static void *on_request_line(void *cls, const char *target, struct MHD_Connection *mhd)
{
    (void)cls;
    struct session *session = session_of(mhd);
    if (session == NULL || session->connection == NULL)
        return NULL;
    struct exchange *exchange = &session->exchange;
    td_connection_prove(session->connection);
    exchange->stage = STAGE_NONE;
    exchange->content_bytes = 0;
    size_t len = strlen(target);
    if (!td_array_reserve(&session->target, &session->target_capacity, len + 1, 1, NULL, NULL))
        return NULL;
    memcpy(session->target, target, len + 1);
    session->target_len = len;
    hide_query(target);
    exchange->stage = STAGE_LINE;
    exchange->start_ns = td_clock_ns();
    exchange->wait_since_ns = exchange->wait_end_ns = 0;
    exchange->facade = td_api_facade(session->connection->facade, td_text_n(session->target, len));
    td_connection_set_phase(session->connection, TD_PHASE_HEADER);
    return session;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

/* Returns the text without blanks and tabs at its ends. */
static struct td_text trimmed(struct td_text p)
{
    while (p.len > 0 && (p.p[0] == ' ' || p.p[0] == '\t')) {
        p.p++;
        p.len--;
    }
    while (p.len > 0 && (p.p[p.len - 1] == ' ' || p.p[p.len - 1] == '\t'))
        p.len--;
    return p;
}

static enum MHD_Result collect_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                      const char *value, size_t value_len)
{
    struct exchange *exchange = cls;
    (void)kind;
    if (exchange->header_count == TD_MAX_HEADER_FIELDS) {
        exchange->too_many = true;
        return MHD_NO;
    }
    struct td_header *header = &exchange->headers[exchange->header_count++];
    header->name = td_text_n(name, name_len);
    header->value = trimmed(td_text_n(value == NULL ? "" : value, value == NULL ? 0 : value_len));
    return MHD_YES;
}

/* Returns whether a field of this name has the token in its list, in any case. */
static bool has_token(const struct exchange *exchange, const char *name, const char *token)
{
    for (size_t i = 0; i < exchange->header_count; i++) {
        struct td_text list = exchange->headers[i].value;
        while (td_text_equals_ignore_case(exchange->headers[i].name, name) && list.len > 0)
            if (td_text_equals_ignore_case(trimmed(td_text_take_until(&list, ',')), token))
                return true;
    }
    return false;
}

/* Returns the length of the request's header, from its request line to the empty line. */
static uint64_t request_header_bytes(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info == NULL ? 0 : info->header_size;
}

/* Adds the request's id, and makes libmicrohttpd's response, which the exchange then owns. On a thread that may wait it
 * does not fail, except for lack of memory. */
static void make(struct session *session, const struct td_request *request, struct td_response *response, bool head)
{
    struct exchange *exchange = &session->exchange;
    struct td_connection *connection = session->connection;
    if (exchange->is_last || atomic_load(&session->server->api->draining))
        response->close = true;
    td_response_add_request_id(response, request);
    memcpy(exchange->request_id, response->request_id, sizeof exchange->request_id);
    connection->received_bytes =
        session->received_bytes + request_header_bytes(connection->mhd) + exchange->content_bytes;
    memcpy(exchange->token, response->token, sizeof exchange->token);
    exchange->made = td_transfer_create(response, connection, head, &exchange->transfer);
    exchange->status = response->status;
    exchange->route = response->route;
    exchange->changed = response->changed;
    if (exchange->is_http_1_0 && !response->close)
        exchange->transfer.header_bytes += strlen("Connection: Keep-Alive\r\n"); /* by libmicrohttpd */
}

/* Hands the response that was made to libmicrohttpd. MHD_NO drops the connection: for lack of memory there is nothing
 * else left to do. */
static enum MHD_Result queue(struct session *session)
{
    struct exchange *exchange = &session->exchange;
    struct td_connection *connection = session->connection;
    struct MHD_Response *made = exchange->made;
    if (made == NULL)
        return MHD_NO;
    exchange->made = NULL;
    session->received_bytes = connection->received_bytes;
    exchange->stage = STAGE_QUEUED;
    if (connection->is_tls && exchange->transfer.is_long)
        exchange->given_bytes = td_socket_given_bytes(connection->fd);
    td_connection_set_phase(connection, TD_PHASE_SENDING);
    enum MHD_Result result = MHD_queue_response(connection->mhd, (unsigned int)exchange->status, made);
    td_transfer_release(made, &exchange->transfer);
    return result;
}

static struct td_request request_of(const struct session *session)
{
    const struct exchange *exchange = &session->exchange;
    return (struct td_request){
        .facade = exchange->facade,
        .is_local = td_address_is_loopback(&session->connection->address),
        .is_tls = session->connection->is_tls,
        .client = session->connection->client,
        .method = {.p = exchange->method, .len = strlen(exchange->method)},
        .target = {.p = session->target, .len = session->target_len},
        .headers = exchange->headers,
        .header_count = exchange->header_count,
        .body = {.p = exchange->upload.data, .len = exchange->upload.len},
        .cancel = &session->connection->cancel,
        .since_ns = exchange->start_ns,
    };
}

/* Refuses the request, and closes the connection. */
static enum MHD_Result refuse(struct session *session, bool head, int status, const char *message)
{
    struct td_request request = request_of(session);
    struct td_response response;
    td_response_init_for(&response, &request);
    td_response_fail(&response, status, NULL, "%s", message);
    response.close = true;
    make(session, &request, &response, head);
    td_response_fini(&response);
    return queue(session);
}

/* Tells the client how long the answer took from the whole request on, if that is long. */
static void tell_time(struct session *session, struct td_response *response)
{
    struct td_connection *connection = session->connection;
    uint64_t since_ns = atomic_load(&connection->phase_since_ns);
    uint64_t now_ns = td_clock_ns();
    if (atomic_load(&connection->phase) == TD_PHASE_HANDLING && now_ns - since_ns >= TD_TIMED_NS)
        td_response_add_timing(response, now_ns - since_ns);
}

/* Makes the response to the request. A thread that must not wait may be refused the answer, or its sending: nothing is
 * made then. Returns true, with nothing made, when the request has to wait for a change. */
static bool make_answer(struct session *session, bool close)
{
    struct td_request request = request_of(session);
    struct td_response response;
    bool waits = false;
    session->waiter.seen = td_waiters_published(session->server->waiters);
    if (session->exchange.upload.failed) {
        td_response_init_for(&response, &request);
        td_response_fail(&response, 503, NULL, "%s",
                         session->exchange.no_room_for == TD_UPLOAD_NO_SHARE
                             ? "the bodies of your address's other requests take half of the memory set aside for "
                               "bodies, its share; try again"
                             : "the bodies of other requests take all the memory set aside for bodies; try again");
    } else {
        td_api_handle(session->server->api, &request, &response);
    }
    if (response.wait_until_ns != 0) {
        waits = enter_wait(session, response.wait_until_ns);
        if (!waits)
            td_response_fail(&response, 503, NULL,
                             "as many requests wait for a change as --max-waiters allows; try again");
    }
    response.close = response.close || close;
    if (!waits && !td_waiting_was_refused()) {
        leave_wait(session);
        tell_time(session, &response);
        make(session, &request, &response, td_text_equals(request.method, "HEAD"));
    }
    td_response_fini(&response);
    return waits;
}

static void run_answer(struct td_job *job)
{
    struct session *session = (struct session *)(void *)job;
    if (make_answer(session, session->job_closes))
        session->exchange.stage = STAGE_WAIT_WANTED;
    drop_upload(session);
}

static struct session *waiting_session(struct td_waiter *waiter)
{
    return (struct session *)(void *)((char *)waiter - offsetof(struct session, waiter));
}

/* Tries a request that waits again. may_wait: on a job's thread, else on the waker. */
static enum td_retry retry_waiter(struct td_waiter *waiter, bool may_wait)
{
    struct session *session = waiting_session(waiter);
    if (may_wait) {
        atomic_fetch_add_explicit(&session->server->api->metrics.jobs, 1, memory_order_relaxed);
    } else {
        end_waiting(session);
        td_waiting_forbid();
    }
    bool waits = make_answer(session, session->job_closes);
    return td_waiting_allow() ? TD_RETRY_REFUSED : waits ? TD_RETRY_WAITS : TD_RETRY_MADE;
}

/* Suspends the connection until the answer is made, by the waker or by a job. */
static enum MHD_Result park(struct session *session)
{
    session->exchange.stage = STAGE_JOB_BEGUN;
    return td_waiters_park(session->server->waiters, &session->waiter, session->connection->mhd) ? MHD_YES : MHD_NO;
}

/* Waits on the connection's own thread, and answers. */
static enum MHD_Result wait_here(struct session *session)
{
    bool waits = true;
    while (waits) {
        if (!td_waiters_sleep(session->server->waiters, &session->waiter))
            return MHD_NO;
        end_waiting(session);
        waits = make_answer(session, session->job_closes);
    }
    return queue(session);
}

/* Has a job make the answer. Without a thread for it, answers 503: those there are may wait for a disk without end. */
static enum MHD_Result begin_job(struct session *session)
{
    if (td_jobs_are_stuck(session->connection->jobs)) {
        drop_upload(session);
        return refuse(session, strcmp(session->exchange.method, "HEAD") == 0, 503,
                      "no thread is free, and no further one can be started; try again");
    }
    session->exchange.stage = STAGE_JOB_BEGUN;
    session->job.run = run_answer;
    atomic_fetch_add_explicit(&session->server->api->metrics.jobs, 1, memory_order_relaxed);
    return td_jobs_run(session->connection->jobs, session->connection->mhd, &session->job) ? MHD_YES : MHD_NO;
}

/* Answers, now or by a job. close: this is the first call of on_request, and the connection ends with the answer. */
static enum MHD_Result answer(struct session *session, bool close)
{
    bool is_shared = session->connection->jobs != NULL;
    if (is_shared)
        td_waiting_forbid();
    bool waits = make_answer(session, close);
    bool was_refused = td_waiting_allow();
    session->job_closes = close;
    if (!was_refused)
        drop_upload(session); /* before sending, which may take long */
    if (!was_refused && !waits)
        return queue(session);
    if (waits && !is_shared)
        return wait_here(session);
    session->exchange.stage = waits ? STAGE_WAIT_WANTED : STAGE_JOB_WANTED;
    /* Suspended at once, libmicrohttpd would read from the socket before it asks for the answer, and drop a client that
     * has closed its side. Without an answer it comes again, and then asks for the answer first. In the first call of
     * on_request it would go on to the body instead. */
    return !close ? MHD_YES : waits ? park(session) : begin_job(session);
}

/* Prepares for the request's body, or answers at once and closes the connection when no handler would read the body, or
 * the client may not have it read: whoever has no token takes no memory. */
static enum MHD_Result expect_upload(struct session *session, const struct td_request *request)
{
    if (!td_api_takes_body(request) || !td_api_admits(session->server->api, request))
        return answer(session, true);
    session->exchange.has_upload = true;
    td_connection_set_phase(session->connection, TD_PHASE_BODY);
    return MHD_YES;
}

/* Judges a request whose header is complete, in the first call of on_request. */
static enum MHD_Result judge(struct MHD_Connection *mhd, struct session *session, const char *method,
                             const char *version)
{
    struct td_http_server *server = session->server;
    struct exchange *exchange = &session->exchange;
    exchange->stage = STAGE_JUDGED;
    exchange->method = method;
    exchange->header_count = 0;
    exchange->too_many = false;
    atomic_fetch_add_explicit(&server->api->metrics.in_flight, 1, memory_order_relaxed);
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, collect_header, exchange);
    struct td_request request = request_of(session);
    bool head = strcmp(method, "HEAD") == 0;
    exchange->is_http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    exchange->is_last = exchange->is_http_1_0 ? !has_token(exchange, "Connection", "keep-alive")
                                              : has_token(exchange, "Connection", "close");
    struct td_guard_limits limits = {.max_header_bytes = (size_t)server->config->max_header_bytes,
                                     .max_body_bytes = server->config->max_body_bytes};
    struct td_guard_verdict verdict = td_request_guard(&request, version, exchange->too_many, &limits);
    if (verdict.status != 0 && !td_api_refuses_body(&request)) {
        atomic_fetch_add(&server->api->metrics.malformed, 1);
        return refuse(session, head, verdict.status, verdict.message);
    }
    if (session->connection->over == TD_OVER_TOTAL && !td_api_is_probe(&request)) {
        atomic_fetch_add(&server->api->metrics.refused_total, 1);
        return refuse(session, head, 503, "all connections are in use (--max-connections); try again");
    }
    if (verdict.has_unread_body)
        return answer(session, true);
    if (verdict.body_bytes > 0 || verdict.status != 0)
        return expect_upload(session, &request);
    td_connection_set_phase(session->connection, TD_PHASE_HANDLING);
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_len, void **context)
{
    (void)cls;
    (void)url;
    struct session *session = *context;
    if (session == NULL)
        return MHD_NO;
    struct exchange *exchange = &session->exchange;
    if (exchange->stage == STAGE_WAIT_WANTED)
        return park(session);
    if (exchange->stage == STAGE_JOB_WANTED)
        return begin_job(session);
    if (exchange->stage == STAGE_JOB_BEGUN)
        return queue(session);
    if (exchange->stage < STAGE_JUDGED)
        return judge(mhd, session, method, version);
    if (*upload_len != 0) {
        add_upload(session, upload, *upload_len);
        *upload_len = 0;
        return MHD_YES;
    }
    if (exchange->stage == STAGE_QUEUED)
        return MHD_YES;
    if (exchange->has_upload)
        td_connection_set_phase(session->connection, TD_PHASE_HANDLING);
    return answer(session, false);
}

/* ---- what was sent ------------------------------------------------------------------------------------- */

static void write_access_log(struct session *session, uint64_t sent_bytes, uint64_t took_ns, uint64_t waited_ns,
                             enum td_cut cut)
{
    const struct exchange *exchange = &session->exchange;
    struct td_request request = request_of(session);
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
        td_access_log_write(session->server->log, line.p, line.len);
}

/* Returns the bytes of the answer, header and body, that the client has acknowledged; with TLS some fewer. */
static uint64_t acknowledged_bytes(const struct session *session)
{
    const struct td_connection *connection = session->connection;
    uint64_t bytes = td_socket_acknowledged_bytes(connection->fd);
    uint64_t before = connection->is_tls ? session->exchange.given_bytes : session->sent_bytes;
    bytes = bytes > before ? bytes - before : 0;
    return connection->is_tls ? td_tls_plain_bytes(bytes) : bytes;
}

/* Returns the body bytes sent: all of a complete answer; of a cut one those that the client has acknowledged. A small
 * answer is sent in one piece or, when the client is gone, not at all. */
static uint64_t sent_body_bytes(const struct session *session, bool complete)
{
    const struct exchange *exchange = &session->exchange;
    uint64_t body_bytes = exchange->transfer.body_bytes;
    if (exchange->stage != STAGE_QUEUED) /* a job made the answer, and the client had gone */
        return 0;
    if (complete || !exchange->transfer.is_long)
        return complete ? body_bytes : 0;
    uint64_t sent = acknowledged_bytes(session);
    uint64_t header_bytes = exchange->transfer.header_bytes;
    sent = sent > header_bytes ? sent - header_bytes : 0;
    return sent < body_bytes ? sent : body_bytes;
}

static enum td_cut cut_reason(const struct session *session, enum MHD_RequestTerminationCode code)
{
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        return TD_CUT_NONE;
    enum td_cut cut = (enum td_cut)atomic_load(&session->connection->cut);
    if (cut != TD_CUT_NONE)
        return cut;
    if (code == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN)
        return TD_CUT_SHUTDOWN;
    return TD_CUT_CLIENT;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    (void)mhd;
    struct td_http_server *server = cls;
    struct session *session = *context;
    *context = NULL;
    if (session == NULL || session->exchange.stage == STAGE_NONE)
        return;
    struct exchange *exchange = &session->exchange;
    if (exchange->stage == STAGE_QUEUED || exchange->made != NULL) {
        struct td_metrics *metrics = &server->api->metrics;
        uint64_t waited_ns = exchange->wait_end_ns - exchange->wait_since_ns;
        uint64_t took_ns = td_clock_ns() - exchange->start_ns - waited_ns;
        enum td_cut cut = cut_reason(session, code);
        uint64_t sent_bytes = sent_body_bytes(session, cut == TD_CUT_NONE);
        td_connection_end_answer(session->connection, cut == TD_CUT_NONE);
        session->sent_bytes += exchange->transfer.header_bytes + sent_bytes;
        td_metrics_request(metrics, exchange->route, exchange->status, sent_bytes, took_ns);
        if (exchange->stage == STAGE_QUEUED)
            td_metrics_way(metrics, exchange->transfer.way);
        td_metrics_cut(metrics, cut);
        if (exchange->changed || cut == TD_CUT_CHANGED) /* before the answer began, or while it was sent */
            td_catalog_request_scan(server->api->catalog);
        if (td_access_log_is_on(server->log))
            write_access_log(session, sent_bytes, took_ns, waited_ns, cut);
    }
    td_transfer_release(exchange->made, &exchange->transfer);
    exchange->made = NULL;
    leave_wait(session);
    if (exchange->stage >= STAGE_JUDGED)
        atomic_fetch_sub_explicit(&server->api->metrics.in_flight, 1, memory_order_relaxed);
    exchange->stage = STAGE_NONE;
    drop_upload(session);
    if (session->target_capacity > TARGET_KEPT_BYTES) {
        free(session->target);
        session->target = NULL;
        session->target_capacity = 0;
    }
    td_connection_set_phase(session->connection, TD_PHASE_IDLE);
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

/* Counts a connection that was closed because no thread could be started for it, and logs that once a minute. No
 * callback reports it; only libmicrohttpd's log does. */
static void note_no_thread(struct td_http_server *server)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t last_ns = atomic_load(&server->warned_ns);
    atomic_fetch_add(&server->api->metrics.refused_threads, 1);
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

/* Each session is given its credentials when its connection begins (begin_tls); without them there is no handshake. */
static int no_credentials(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                          const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **chain,
                          unsigned int *chain_length, gnutls_privkey_t *key)
{
    (void)session;
    (void)authorities;
    (void)authority_count;
    (void)algorithms;
    (void)algorithm_count;
    (void)chain;
    (void)chain_length;
    (void)key;
    return -1;
}

/* Starts a daemon of libmicrohttpd without a listening socket; NULL on failure. */
static struct MHD_Daemon *start_daemon(struct td_http_server *server, unsigned int how)
{
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TD_TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)no_credentials},
        {MHD_OPTION_END, 0, NULL},
    };
    bool has_tls = (how & MHD_USE_TLS) != 0;
    const struct td_config *config = server->config;
    size_t pool_bytes = (size_t)config->max_header_bytes + POOL_OTHER_BYTES;
    size_t stack_bytes = TD_SMALL_STACK_BYTES; /* of every thread that it starts; a handshake takes 28 KiB of it */
    unsigned int limit = (unsigned int)config->max_connections + TD_RESERVED_CONNECTIONS + 8;
    /* MHD_OPTION_STRICT_FOR_CLIENT is not set: it answers a missing Host with two status lines, and the guard refuses
     * it anyway. MHD_OPTION_CONNECTION_TIMEOUT is not set: it would end silent bodies and stalled answers too, and
     * server/connection has all deadlines. */
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
    server->daemon = start_daemon(server, how);
    if (server->daemon != NULL && server->tls != NULL)
        server->tls_daemon = start_daemon(server, how | MHD_USE_TLS);
    if (server->daemon != NULL && (server->tls == NULL || server->tls_daemon != NULL))
        return true;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED, "libmicrohttpd did not start%s; --log-level debug may say why",
                        server->daemon == NULL ? "" : " with TLS");
}

/* Starts the workers and what runs their jobs. */
static bool start_workers(struct td_http_server *server, struct td_error *err)
{
    size_t count = server->config->workers;
    if (count == 0)
        return true;
    server->workers = calloc(count, sizeof *server->workers);
    if (server->workers == NULL)
        return td_error_no_memory(err);
    if (!td_jobs_create((size_t)server->config->max_connections + TD_RESERVED_CONNECTIONS, &server->jobs, err))
        return false;
    while (server->worker_count < count) {
        struct MHD_Daemon *worker = start_daemon(server, MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME);
        if (worker == NULL)
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "only %zu of %zu --workers could be started",
                                server->worker_count, count);
        server->workers[server->worker_count++] = worker;
    }
    return true;
}

static void on_publish(void *context)
{
    td_waiters_publish(context);
}

static bool start_waiters(struct td_http_server *server, struct td_error *err)
{
    const struct td_waiters_config config = {.max = (size_t)server->config->max_waiters,
                                             .count = &server->api->metrics.waiters,
                                             .jobs = server->jobs,
                                             .retry = retry_waiter};
    if (!td_waiters_create(&config, &server->waiters, err))
        return false;
    td_catalog_on_publish(server->api->catalog, on_publish, server->waiters);
    return true;
}

bool td_http_server_create(const struct td_config *config, struct td_api *api, struct td_registry *registry,
                           struct td_access_log *log, struct td_tls *tls, struct td_http_server **out,
                           struct td_error *err)
{
    struct td_http_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return td_error_no_memory(err);
    if (!td_uploads_init(&server->uploads, config->max_body_bytes, err)) {
        free(server);
        return false;
    }
    server->config = config;
    server->api = api;
    server->registry = registry;
    server->log = log;
    server->tls = tls;
    if (start_daemons(server, err) && start_workers(server, err) && start_waiters(server, err)) {
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
    td_catalog_on_publish(server->api->catalog, NULL, NULL);
    atomic_store(&server->api->draining, true); /* so that no request waits for a change any more */
    /* libmicrohttpd must not be stopped while a connection is suspended. */
    if (server->waiters != NULL)
        td_waiters_close(server->waiters);
    if (server->jobs != NULL)
        td_jobs_close(server->jobs);
    for (size_t i = 0; i < server->worker_count; i++)
        MHD_stop_daemon(server->workers[i]);
    if (server->tls_daemon != NULL)
        MHD_stop_daemon(server->tls_daemon);
    if (server->daemon != NULL)
        MHD_stop_daemon(server->daemon);
    td_jobs_destroy(server->jobs);
    td_waiters_destroy(server->waiters);
    free(server->workers);
    td_uploads_fini(&server->uploads);
    free(server);
}

void td_http_server_end_waits(struct td_http_server *server)
{
    td_waiters_publish(server->waiters);
}

bool td_http_server_add(struct td_http_server *server, struct td_connection *connection, enum td_lane lane,
                        const struct sockaddr *address, unsigned int address_len)
{
    struct MHD_Daemon *daemon = lane == TD_LANE_TLS ? server->tls_daemon : server->daemon;
    if (lane == TD_LANE_SHARED && server->worker_count > 0) {
        daemon = server->workers[atomic_fetch_add(&server->next_worker, 1) % server->worker_count];
        connection->jobs = server->jobs;
    }
    return MHD_add_connection(daemon, connection->fd, address, address_len) == MHD_YES;
}
