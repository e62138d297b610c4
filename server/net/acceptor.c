/* An acceptor waits in epoll for connections, for the first bytes of those that it has accepted, and for its end (an
 * eventfd), so that it stops at once. The first bytes choose the lane of a connection; until they come it takes no
 * thread. What is hard:
 *   - At a limit the client must get an answer, but no thread and no memory may be spent: turn_away sends a ready-made
 *     answer without waiting and closes. Unread bytes would make close() reset the connection before the client has
 *     read the answer, so they are read first.
 *   - When descriptors run out, accept fails and poll reports the same connection again at once. The acceptor keeps one
 *     descriptor in reserve: it closes that to answer one client, then pauses for 50 ms.
 *   - libmicrohttpd closes the descriptor of a connection that it does not take, and another acceptor may get the same
 *     number at once. Both register and hand over under one lock (registry->handing), so that the entry is removed
 *     before the number is registered again.
 *   - A server that drains no longer listens, but a request may still be on its way in an open connection. So the
 *     acceptor continues to wait for first bytes, until the reaper has ended the last silent connection. */
#include "server/net/acceptor.h"

#include "api/api.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/socket_send.h"
#include "http/cors.h"
#include "http/facade.h"
#include "http/range.h"
#include "server/config/listen_address.h"
#include "server/net/tcp_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

/* A connection that has sent nothing yet. */
struct silent {
    struct td_connection *connection;
    struct sockaddr_storage from;
    socklen_t from_len;
    struct silent *next, *previous;
};

struct td_acceptor {
    int listen_fd;
    int epoll_fd;
    int wake_fd;                              /* eventfd: written first to end the listening, then to end the thread */
    int reserve_fd;                           /* closed for a moment when descriptors run out, to answer a client */
    bool running;                             /* the thread was started and not joined */
    bool stopped;                             /* td_acceptor_stop was called */
    sem_t deaf;                               /* posted when the thread has closed the listening socket */
    char far_congestion[TD_CONGESTION_BYTES]; /* for td_congestion_accept */
    const struct td_facade *facade;
    const struct td_cors *cors;
    bool has_tls;
    uint64_t warned_ns; /* when missing descriptors or memory were last logged; 0: never */
    pthread_t thread;
    struct td_taker taker;
    struct td_registry *registry;
    struct td_metrics *metrics;
    struct silent *silent; /* used by the thread alone */
};

/* ---- binding ------------------------------------------------------------------------------------------- */

static int bind_one(const struct addrinfo *info)
{
    int on = 1;
    int off = 0;
    int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int sys = errno;
    (void)close(fd);
    errno = sys;
    return -1;
}

static bool open_listener(const struct td_acceptor_config *config, const char *listen, int *fd, struct td_error *err)
{
    char address[TD_LISTEN_ADDRESS_BYTES];
    const char *port;
    if (!td_listen_address_split(listen, address, sizeof address, &port))
        return td_error_set(err, TD_INVALID_ARGUMENT, "\"%s\" is not ADDRESS:PORT", listen);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (address[0] == '\0')
        hints.ai_family = AF_INET6; /* accepts IPv4 too */
    int failed = getaddrinfo(address[0] == '\0' ? NULL : address, port, &hints, &found);
    if (failed != 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "%s %s: %s", config->option, listen, gai_strerror(failed));
    *fd = -1;
    for (const struct addrinfo *info = found; info != NULL && *fd < 0; info = info->ai_next)
        *fd = bind_one(info);
    int sys = errno;
    freeaddrinfo(found);
    if (*fd < 0 && address[0] == '\0') { /* a host without IPv6 */
        char any[32];
        (void)snprintf(any, sizeof any, "0.0.0.0:%s", port);
        return open_listener(config, any, fd, err);
    }
    if (*fd < 0) {
        const char *hint = sys == EADDRINUSE ? "that port is taken; choose another with "
                           : sys == EACCES ? "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another with "
                                           : NULL;
        return td_error_sys(err, TD_IO, sys, "cannot listen on %s%s%s%s%s", listen, hint == NULL ? "" : " (",
                            hint == NULL ? "" : hint, hint == NULL ? "" : config->option, hint == NULL ? "" : ")");
    }
    return true;
}

/* Writes the URL of a listening socket. */
static void write_url(int fd, bool has_tls, char *url, size_t capacity)
{
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    char host[INET6_ADDRSTRLEN + 16] = "?";
    char port[16] = "?";
    if (getsockname(fd, (struct sockaddr *)&name, &len) == 0)
        (void)getnameinfo((struct sockaddr *)&name, len, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    bool is_ipv6 = strchr(host, ':') != NULL;
    (void)snprintf(url, capacity, "http%s://%s%s%s:%s", has_tls ? "s" : "", is_ipv6 ? "[" : "", host,
                   is_ipv6 ? "]" : "", port);
}

/* ---- lanes --------------------------------------------------------------------------------------------- */

/* Just enough of a header is read to choose a lane. A wrong result only costs speed: libmicrohttpd reads the header
 * again, and the request guard judges it. */

/* Takes the next line, without its end. Returns false when the rest has no complete line. */
static bool take_line(struct td_text *rest, struct td_text *line)
{
    const char *end = rest->len == 0 ? NULL : memchr(rest->p, '\n', rest->len);
    if (end == NULL)
        return false;
    size_t len = (size_t)(end - rest->p);
    *line = td_text_n(rest->p, len > 0 && end[-1] == '\r' ? len - 1 : len);
    *rest = td_text_skip(*rest, len + 1);
    return true;
}

/* Returns the length of all ranges of a Range field; UINT64_MAX when it depends on the length of the representation, or
 * when the field has no range. */
static uint64_t length_of(struct td_text value)
{
    struct td_byte_range ranges[TD_MAX_RANGES];
    size_t count = 0;
    uint64_t sum = 0;
    while (value.len > 0 && (value.p[0] == ' ' || value.p[0] == '\t'))
        value = td_text_skip(value, 1);
    if (td_range_parse(value, UINT64_MAX / 2, ranges, &count) != TD_RANGE_PARTIAL)
        return UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        sum = ranges[i].len > UINT64_MAX - sum ? UINT64_MAX : sum + ranges[i].len;
    return sum;
}

/* Returns the value of the field in a line, without the blanks before it, if the line has this name; else an empty
 * text. `name` has its colon. */
static struct td_text value_of(struct td_text line, const char *name)
{
    return td_text_begins_ignore_case(line, name) ? td_text_trim(td_text_skip(line, strlen(name)), " \t") : TD_TEXT("");
}

/* Returns whether a line of a header announces a body that is chunked or long. */
static bool announces_upload(struct td_text line)
{
    enum { LONG_BYTES = 64 * 1024 };
    uint64_t length = 0;
    struct td_text value = value_of(line, "Content-Length:");
    if (value.len > 0)
        return td_number_read(value, UINT64_MAX, &length) && length >= LONG_BYTES;
    return td_text_equals_ignore_case(value_of(line, "Transfer-Encoding:"), "chunked");
}

/* Returns whether requests with this method may be uploads. */
static bool may_upload(struct td_text method)
{
    return td_text_equals(method, "PUT") || td_text_equals(method, "PATCH") || td_text_equals(method, "POST");
}

enum td_lane td_lane_of(const struct td_facade *port, struct td_text bytes)
{
    struct td_text line;
    bool is_upload = false;
    struct td_text range = TD_TEXT("");
    if (!take_line(&bytes, &line))
        return TD_LANE_OWN;
    struct td_text method = td_text_take_until(&line, ' ');
    struct td_text target = td_text_take_until(&line, ' ');
    while (take_line(&bytes, &line) && line.len > 0)
        if (td_text_begins_ignore_case(line, "Range:"))
            range = td_text_skip(line, strlen("Range:"));
        else
            is_upload = is_upload || announces_upload(line);
    if (line.len > 0) /* the header is not complete */
        return TD_LANE_OWN;
    if (td_text_equals(method, "HEAD"))
        return TD_LANE_SHARED;
    if (td_text_equals(method, "POST") && td_api_is_text(port, target, true))
        return TD_LANE_SHARED;
    if (!td_text_equals(method, "GET"))
        return is_upload && may_upload(method) ? TD_LANE_UPLOAD : TD_LANE_OWN;
    bool is_short = range.len > 0 ? length_of(range) <= TD_LANE_SHORT_BYTES : td_api_is_text(port, target, false);
    return is_short ? TD_LANE_SHARED : TD_LANE_OWN;
}

/* ---- accepting ----------------------------------------------------------------------------------------- */

/* Reads and drops at most 64 KiB of received bytes, so that a client that sends without end does not keep the
 * thread. */
static void discard_received(int fd)
{
    enum { MOST_PARTS = 32 };
    char part[2048];
    for (int i = 0; i < MOST_PARTS; i++)
        if (recv(fd, part, sizeof part, MSG_DONTWAIT) <= 0)
            return;
}

/* Answers with an error and closes the connection; allocates nothing and does not wait. `field`: a header field, or
 * empty. */
static void answer_and_close(const struct td_acceptor *acceptor, int fd, const char *status, const char *field,
                             const char *body)
{
    static const char format[] = "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s"
                                 "Cache-Control: no-store\r\nConnection: close\r\n\r\n";
    char answer[1024 + TD_CORS_LINES_BYTES];
    char lines[TD_CORS_LINES_BYTES];
    td_cors_write_lines(acceptor->cors, lines);
    int n = snprintf(answer, sizeof answer, format, status, acceptor->facade->error_type, strlen(body), field, lines);
    if (n > 0 && (size_t)n + strlen(body) < sizeof answer) {
        memcpy(answer + n, body, strlen(body));
        (void)td_socket_send(fd, answer, (size_t)n + strlen(body), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    (void)td_sent_shut_down(fd, SHUT_WR);
    discard_received(fd); /* close() resets the connection if received bytes are unread, and the answer may be lost */
    (void)close(fd);
}

static bool is_for_http2(const struct td_acceptor *acceptor)
{
    return acceptor->facade->not_http2 != NULL;
}

/* Sends GOAWAY with the code ENHANCE_YOUR_CALM and no stream (RFC 9113 section 6.8), after the SETTINGS that must come
 * first (section 3.4), and closes the connection. */
static void go_away_and_close(int fd)
{
    static const char frames[] = "\0\0\0\4\0\0\0\0\0"
                                 "\0\0\10\7\0\0\0\0\0"
                                 "\0\0\0\0\0\0\0\13";
    (void)td_socket_send(fd, frames, sizeof frames - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)td_sent_shut_down(fd, SHUT_WR);
    discard_received(fd);
    (void)close(fd);
}

/* Answers 503 or 429 and closes the connection. With TLS an answer would need a handshake, which costs too much at a
 * limit, so the connection is only closed. */
static void turn_away(const struct td_acceptor *acceptor, int fd, enum td_over over)
{
    const struct td_facade *facade = acceptor->facade;
    bool is_crowded = over == TD_OVER_ADDRESS && facade->crowded != NULL;
    if (acceptor->has_tls)
        (void)close(fd);
    else if (is_for_http2(acceptor))
        go_away_and_close(fd);
    else
        answer_and_close(acceptor, fd, is_crowded ? "429 Too Many Requests" : "503 Service Unavailable",
                         "Retry-After: 1\r\n", is_crowded ? facade->crowded : facade->busy);
}

/* Logs why connections cannot be accepted, once a minute. */
static void warn_of_shortage(struct td_acceptor *acceptor, int sys, const char *advice)
{
    uint64_t now_ns = td_clock_ns();
    if (acceptor->warned_ns == 0 || now_ns - acceptor->warned_ns > UINT64_C(60000000000)) {
        td_log(TD_LOG_ERROR, "cannot accept connections: %s%s", strerror(sys), advice);
        acceptor->warned_ns = now_ns;
    }
}

/* Passes the connection to the server, and frees its entry here. When the server's memory is short, it has closed the
 * descriptor. */
static void pass_on(struct td_acceptor *acceptor, struct silent *silent, enum td_lane lane)
{
    pthread_mutex_lock(&acceptor->registry->handing);
    bool is_taken = acceptor->taker.take(acceptor->taker.context, silent->connection, lane,
                                         (const struct sockaddr *)&silent->from, silent->from_len);
    if (!is_taken)
        td_connection_close(silent->connection);
    pthread_mutex_unlock(&acceptor->registry->handing);
    free(silent);
    if (is_taken)
        return;
    warn_of_shortage(acceptor, ENOMEM, "");
    atomic_fetch_add(&acceptor->metrics->refused_total, 1);
}

/* Waits for the first bytes of the connection. Returns false when that is not possible. */
static bool watch_silent(struct td_acceptor *acceptor, struct silent *silent)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = silent};
    if (epoll_ctl(acceptor->epoll_fd, EPOLL_CTL_ADD, silent->connection->fd, &event) != 0)
        return false;
    silent->next = acceptor->silent;
    if (silent->next != NULL)
        silent->next->previous = silent;
    acceptor->silent = silent;
    return true;
}

static void unwatch_silent(struct td_acceptor *acceptor, struct silent *silent)
{
    (void)epoll_ctl(acceptor->epoll_fd, EPOLL_CTL_DEL, silent->connection->fd, NULL);
    *(silent->previous != NULL ? &silent->previous->next : &acceptor->silent) = silent->next;
    if (silent->next != NULL)
        silent->next->previous = silent->previous;
}

/* The properties of a connection that its first bytes show. */
struct first_bytes {
    bool is_tls;       /* they begin a TLS handshake */
    bool is_http1;     /* they do not begin the preface of HTTP/2, on a port without TLS for it */
    enum td_lane lane; /* for the connection, if the port speaks its protocol */
};

/* Answers 400 to a client that speaks TLS on a port without it, plain HTTP on a port with it, or HTTP/1 on a port for
 * HTTP/2, and closes the connection. */
static void refuse_protocol(const struct td_acceptor *acceptor, struct silent *silent, const struct first_bytes *first)
{
    const struct td_facade *facade = acceptor->facade;
    const char *words = acceptor->has_tls ? facade->not_tls : first->is_tls ? facade->is_tls : facade->not_http2;
    int fd = silent->connection->fd;
    td_connection_close(silent->connection);
    answer_and_close(acceptor, fd, "400 Bad Request", "", words);
    atomic_fetch_add(&acceptor->metrics->malformed, 1);
    free(silent);
}

/* Returns whether the text begins as the preface of HTTP/2 does (RFC 9113 section 3.4), as far as it goes. */
static bool begins_preface(struct td_text text)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const size_t len = text.len < sizeof preface - 1 ? text.len : sizeof preface - 1;
    return memcmp(text.p, preface, len) == 0;
}

/* Peeks at the first bytes, which stay in the socket. Returns their number and fills in *out; returns 0 when the
 * connection has ended, or -1 when no bytes have come yet. */
static ssize_t peek_first_bytes(const struct td_acceptor *acceptor, int fd, struct first_bytes *out)
{
    enum { LOOK_BYTES = 4096 };
    static const char handshake = 0x16; /* type of a TLS record (RFC 8446 section 5.1); begins no HTTP request */
    char bytes[LOOK_BYTES];
    ssize_t n = recv(fd, bytes, acceptor->has_tls ? 1 : sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0) {
        bool is_plain = bytes[0] != handshake && !acceptor->has_tls;
        out->is_tls = bytes[0] == handshake;
        if (is_for_http2(acceptor)) {
            out->lane = TD_LANE_HTTP2;
            out->is_http1 = is_plain && !begins_preface(td_text_n(bytes, (size_t)n));
        } else {
            out->lane = is_plain ? td_lane_of(acceptor->facade, td_text_n(bytes, (size_t)n)) : TD_LANE_TLS;
        }
    }
    return n < 0 && errno != EAGAIN && errno != EINTR ? 0 : n;
}

/* Closes a connection that has sent nothing. */
static void close_silent(struct silent *silent)
{
    int fd = silent->connection->fd;
    td_connection_close(silent->connection);
    (void)close(fd);
    free(silent);
}

/* Passes on a connection that has sent something, or refuses it if it speaks another protocol than the port. */
static void accept_protocol(struct td_acceptor *acceptor, struct silent *silent, const struct first_bytes *first)
{
    if (acceptor->has_tls != first->is_tls || first->is_http1)
        refuse_protocol(acceptor, silent, first);
    else
        pass_on(acceptor, silent, first->lane);
}

/* Handles a connection that has sent its first bytes, and closes one that has ended. */
static void handle_first_bytes(struct td_acceptor *acceptor, struct silent *silent)
{
    struct first_bytes first = {.lane = TD_LANE_OWN};
    ssize_t n = peek_first_bytes(acceptor, silent->connection->fd, &first);
    if (n < 0)
        return;
    unwatch_silent(acceptor, silent);
    if (n > 0)
        accept_protocol(acceptor, silent, &first);
    else
        close_silent(silent);
}

/* Returns the lane of a connection whose first bytes are not known. */
static enum td_lane unknown_lane(const struct td_acceptor *acceptor)
{
    return is_for_http2(acceptor) ? TD_LANE_HTTP2 : acceptor->has_tls ? TD_LANE_TLS : TD_LANE_OWN;
}

/* Registers the connection and waits for its first bytes, or turns it away at a limit. */
static void take_in(struct td_acceptor *acceptor, int fd, const struct sockaddr_storage *from, socklen_t from_len)
{
    struct in6_addr address;
    /* For a connection that cannot be watched: libmicrohttpd then waits for its first bytes. */
    struct first_bytes first = {.is_tls = acceptor->has_tls, .lane = unknown_lane(acceptor)};
    bool admit;
    int on = 1;
    (void)td_address_of(from, &address); /* of one of the families that bind_one binds */
    enum td_over over = td_registry_judge(acceptor->registry, &address, &admit);
    if (!admit) {
        atomic_fetch_add(
            over == TD_OVER_ADDRESS ? &acceptor->metrics->refused_address : &acceptor->metrics->refused_total, 1);
        turn_away(acceptor, fd, over);
        return;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    td_congestion_accept(fd, acceptor->far_congestion);
    struct silent *silent = calloc(1, sizeof *silent);
    pthread_mutex_lock(&acceptor->registry->handing);
    struct td_connection *connection = silent == NULL ? NULL : td_connection_open(acceptor->registry, fd, &address);
    pthread_mutex_unlock(&acceptor->registry->handing);
    if (connection == NULL) {
        free(silent);
        warn_of_shortage(acceptor, ENOMEM, "");
        atomic_fetch_add(&acceptor->metrics->refused_total, 1);
        turn_away(acceptor, fd, TD_OVER_TOTAL);
        return;
    }
    connection->facade = acceptor->facade;
    connection->is_tls = acceptor->has_tls;
    atomic_fetch_add(&acceptor->metrics->accepted, 1);
    *silent = (struct silent){.connection = connection, .from = *from, .from_len = from_len};
    if (peek_first_bytes(acceptor, fd, &first) > 0 || !watch_silent(acceptor, silent))
        accept_protocol(acceptor, silent, &first);
}

/* Answers one client with the reserved descriptor, then rests, so that the loop does not spin. Logs once a minute. */
static void out_of_descriptors(struct td_acceptor *acceptor, int sys)
{
    warn_of_shortage(acceptor, sys, "; raise the limit on open files (ulimit -n)");
    if (acceptor->reserve_fd >= 0) {
        (void)close(acceptor->reserve_fd);
        int fd = accept4(acceptor->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            turn_away(acceptor, fd, TD_OVER_TOTAL);
    }
    acceptor->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct timespec pause = {.tv_nsec = 50000000};
    (void)nanosleep(&pause, NULL);
}

/* Accepts some of the connections that wait. */
static void accept_some(struct td_acceptor *acceptor)
{
    enum { AT_ONCE = 64 };
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        int fd = accept4(acceptor->listen_fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                out_of_descriptors(acceptor, errno);
            return;
        }
        take_in(acceptor, fd, &from, len);
    }
}

/* Closes the listening socket, which also leaves the epoll. */
static void stop_listening(struct td_acceptor *acceptor)
{
    if (acceptor->listen_fd < 0)
        return;
    (void)close(acceptor->listen_fd);
    acceptor->listen_fd = -1;
    (void)sem_post(&acceptor->deaf);
}

/* Ends the listening, or returns false when that has ended already. */
static bool be_woken(struct td_acceptor *acceptor)
{
    uint64_t count;
    ssize_t n = read(acceptor->wake_fd, &count, sizeof count);
    bool go_on = acceptor->listen_fd >= 0;
    (void)n; /* epoll says that there is a count */
    stop_listening(acceptor);
    return go_on;
}

/* Handles what epoll reports. Returns false at the end. */
static bool handle_event(struct td_acceptor *acceptor, const struct epoll_event *event)
{
    if (event->data.ptr == &acceptor->wake_fd)
        return be_woken(acceptor);
    if (event->data.ptr != &acceptor->listen_fd)
        handle_first_bytes(acceptor, event->data.ptr);
    else if (acceptor->listen_fd >= 0)
        accept_some(acceptor);
    return true;
}

static void *acceptor_main(void *argument)
{
    enum { EVENTS = 64 };
    struct td_acceptor *acceptor = argument;
    struct epoll_event events[EVENTS];
    bool go_on = true;
    while (go_on) {
        int count = epoll_wait(acceptor->epoll_fd, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            break;
        for (int i = 0; i < count; i++)
            go_on = handle_event(acceptor, &events[i]) && go_on;
    }
    stop_listening(acceptor);
    for (struct silent *silent = acceptor->silent, *next; silent != NULL; silent = next) {
        next = silent->next;
        close_silent(silent);
    }
    return NULL;
}

/* Opens the descriptors of the thread. Returns 0 or an error number. */
static int open_descriptors(struct td_acceptor *acceptor)
{
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &acceptor->listen_fd};
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &acceptor->wake_fd};
    acceptor->wake_fd = eventfd(0, EFD_CLOEXEC);
    acceptor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    acceptor->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (acceptor->wake_fd < 0 || acceptor->epoll_fd < 0 ||
        epoll_ctl(acceptor->epoll_fd, EPOLL_CTL_ADD, acceptor->listen_fd, &listening) != 0 ||
        epoll_ctl(acceptor->epoll_fd, EPOLL_CTL_ADD, acceptor->wake_fd, &wake) != 0)
        return errno;
    return 0;
}

bool td_acceptor_create(const struct td_acceptor_config *config, char *url, size_t url_capacity,
                        struct td_acceptor **out, struct td_error *err)
{
    struct td_acceptor *acceptor = calloc(1, sizeof *acceptor);
    if (acceptor == NULL)
        return td_error_no_memory(err);
    (void)sem_init(&acceptor->deaf, 0, 0);
    acceptor->listen_fd = acceptor->epoll_fd = acceptor->wake_fd = acceptor->reserve_fd = -1;
    acceptor->facade = config->facade;
    acceptor->cors = config->cors;
    acceptor->has_tls = config->has_tls;
    if (!open_listener(config, config->listen, &acceptor->listen_fd, err)) {
        td_acceptor_destroy(acceptor);
        return false;
    }
    td_congestion_listen(acceptor->listen_fd, acceptor->far_congestion);
    write_url(acceptor->listen_fd, acceptor->has_tls, url, url_capacity);
    *out = acceptor;
    return true;
}

bool td_acceptor_is_loopback(const struct td_acceptor *acceptor)
{
    struct sockaddr_storage name = {0};
    struct in6_addr address;
    socklen_t len = sizeof name;
    return getsockname(acceptor->listen_fd, (struct sockaddr *)&name, &len) == 0 && td_address_of(&name, &address) &&
           td_address_is_loopback(&address);
}

bool td_acceptor_start(struct td_acceptor *acceptor, struct td_taker taker, struct td_registry *registry,
                       struct td_metrics *metrics, struct td_error *err)
{
    acceptor->taker = taker;
    acceptor->registry = registry;
    acceptor->metrics = metrics;
    int sys = open_descriptors(acceptor);
    if (sys == 0)
        sys = pthread_create(&acceptor->thread, NULL, acceptor_main, acceptor);
    if (sys != 0)
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the accepting thread");
    acceptor->running = true;
    return true;
}

static void wake_thread(const struct td_acceptor *acceptor)
{
    uint64_t one = 1;
    ssize_t written = write(acceptor->wake_fd, &one, sizeof one);
    (void)written; /* an eventfd with room */
}

void td_acceptor_stop(struct td_acceptor *acceptor)
{
    if (acceptor == NULL || !acceptor->running || acceptor->stopped)
        return;
    wake_thread(acceptor);
    while (sem_wait(&acceptor->deaf) != 0)
        continue; /* interrupted */
    acceptor->stopped = true;
}

void td_acceptor_destroy(struct td_acceptor *acceptor)
{
    if (acceptor == NULL)
        return;
    if (acceptor->running) {
        td_acceptor_stop(acceptor);
        wake_thread(acceptor);
        (void)pthread_join(acceptor->thread, NULL);
    }
    const int fds[] = {acceptor->listen_fd, acceptor->epoll_fd, acceptor->wake_fd, acceptor->reserve_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    (void)sem_destroy(&acceptor->deaf);
    free(acceptor);
}
