/* An HTTP/1.1 keep-alive load client that costs as little as it can: it reads only the head of each answer and
 * has the kernel throw the body away (recv with MSG_TRUNC copies nothing). It asks for one range after the other
 * on every connection, checks status, Content-Length and Content-Range of each answer, and prints one line of
 * JSON.
 *
 * Closed loop: each connection has one request in flight. A run of a given duration starts no request after it,
 * lets those in flight end (so every answer is checked and no latency is cut short), and computes the rate from
 * the bytes that came within the duration alone. (With --cut it closes the connections instead, and SIGTERM ends the
 * duration.) With --interval a connection pauses after an answer until so long after its last request. Such a client
 * stands for one on a machine of its own: it takes the highest priority that it may have, nice -20 for root. The report
 * has by how much the pauses came out too long all the same: how long this client waited for a processor. */
#include "histogram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ALIGN_BYTES 4096u
#define HEAD_MAX_BYTES 8192u     /* a longer answer head is an error */
#define HEAD_READ_BYTES 1024u    /* per read while waiting for a head, so little of a body is copied */
#define SMALL_ANSWER_BYTES 6144u /* head and body up to this size are read in one call */
#define REQUEST_MAX_BYTES 4096u
#define RECV_MAX_BYTES (1u << 20) /* discarded per call; limits how coarse the end of the window is */
#define COPY_BYTES (256u << 10)
#define STALL_SECONDS 30 /* after so long without a byte the answer is an error */
#define ERRORS_MAX 100   /* a worker gives up after this many */
#define EVENTS_MAX 64
#define CONNECTIONS_MAX 4096u
#define NS_PER_S 1000000000u

enum order { ORDER_RANDOM, ORDER_SEQUENTIAL, ORDER_SHUFFLE };

struct options {
    struct sockaddr_in address;
    const char *host;
    const char *path;
    uint64_t file_bytes;
    uint64_t range_bytes; /* 0 = the whole file, without a Range header */
    uint64_t requests;    /* 0 = no limit */
    uint64_t duration_ns; /* 0 = no limit */
    uint64_t interval_ns; /* from one request of a connection to the next; 0 = no pause */
    uint64_t seed;
    enum order order;
    unsigned connections;
    unsigned threads;         /* equal to connections: blocking reads; otherwise epoll */
    int receive_buffer_bytes; /* 0 = the kernel's choice */
    bool cut;                 /* leave answers that are in flight at the end of the duration */
    bool copy;                /* copy the body to user space, as an ordinary client does */
    SSL_CTX *tls;             /* NULL = plain HTTP */
};

/* The state that all workers share; constant while they run, except the counter and, by a signal, the deadline. */
struct run {
    const struct options *options;
    atomic_uint_least64_t issued;
    uint32_t *shuffled; /* slot order, NULL unless ORDER_SHUFFLE */
    uint64_t slots;     /* ranges that cover the file once */
    uint64_t start_ns;
    atomic_uint_least64_t deadline_ns; /* UINT64_MAX = none */
    pthread_barrier_t connected;
    pthread_barrier_t started;
};

struct connection {
    int fd;
    SSL *tls; /* NULL = plain HTTP */
    bool in_body;
    uint64_t expected_bytes;
    uint64_t remaining_bytes;
    uint64_t sent_ns;
    char *range; /* "a-b" inside request, NULL for the whole file */
    size_t range_len;
    size_t prefix_len; /* the constant part of request */
    size_t head_len;
    char request[REQUEST_MAX_BYTES];
    char head[HEAD_MAX_BYTES];
};

struct worker {
    struct run *run;
    pthread_t thread;
    struct connection *connections;
    unsigned connection_count;
    unsigned active;
    bool blocking;
    int epoll_fd;
    uint64_t random;
    uint64_t now_ns;
    uint64_t bytes, window_bytes;
    uint64_t window_ns; /* 0 = the window is still open */
    uint64_t end_ns;
    uint64_t requests, errors, reconnects;
    uint64_t max_ns, sum_ns;
    uint64_t *histogram;
    uint64_t pauses, late_max_ns;
    uint64_t *late_histogram; /* how long after their ends pauses ended */
    char *copy_buffer;        /* NULL = the kernel discards the body */
    char first_error[160];
};

static uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Returns the next number of splitmix64. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Writes value in decimal and returns the end. snprintf would be a tenth of the cost of a small request. */
static char *put_u64(char *out, uint64_t value)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (n > 0)
        *out++ = digits[--n];
    return out;
}

__attribute__((format(printf, 2, 3))) static void worker_error(struct worker *w, const char *format, ...)
{
    w->errors++;
    if (w->first_error[0] != '\0')
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(w->first_error, sizeof w->first_error, format, args);
    va_end(args);
}

/* Reads the clock and closes this worker's window at the first reading past the deadline. */
static void worker_tick(struct worker *w)
{
    w->now_ns = clock_now_ns();
    if (w->window_ns == 0 && w->now_ns >= w->run->deadline_ns) {
        w->window_ns = w->now_ns - w->run->start_ns;
        w->window_bytes = w->bytes;
    }
}

/* ---- connecting ---- */

static int socket_connect(const struct options *o, bool blocking)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (o->receive_buffer_bytes > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &o->receive_buffer_bytes, sizeof o->receive_buffer_bytes);
    struct timeval limit = {.tv_sec = STALL_SECONDS};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (const struct sockaddr *)&o->address, sizeof o->address) != 0 ||
        (!blocking && fcntl(fd, F_SETFL, O_NONBLOCK) != 0)) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* Ends the connection's TLS, if it has any, and closes its socket. */
static void connection_drop(struct connection *c)
{
    SSL_free(c->tls);
    c->tls = NULL;
    close(c->fd);
    c->fd = -1;
}

static bool connection_open(struct worker *w, struct connection *c)
{
    SSL_CTX *tls = w->run->options->tls;
    c->fd = socket_connect(w->run->options, w->blocking);
    if (c->fd < 0) {
        worker_error(w, "connect: errno %d", errno);
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (tls != NULL) {
        c->tls = SSL_new(tls);
        if (c->tls != NULL && SSL_set_fd(c->tls, c->fd) == 1 && SSL_connect(c->tls) == 1)
            return true;
        worker_error(w, "TLS handshake failed");
    } else if (w->blocking || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) == 0) {
        return true;
    } else {
        worker_error(w, "epoll_ctl: errno %d", errno);
    }
    connection_drop(c);
    return false;
}

static void connection_close(struct worker *w, struct connection *c)
{
    if (c->fd < 0)
        return;
    connection_drop(c);
    w->active--;
}

/* ---- one request ---- */

/* Writes the next range to *off and *len. Returns false when no further request is to start. */
static bool range_next(struct worker *w, uint64_t *off, uint64_t *len)
{
    struct run *run = w->run;
    const struct options *o = run->options;
    if (w->now_ns >= run->deadline_ns)
        return false;
    uint64_t i = 0;
    if (o->requests != 0 || o->order != ORDER_RANDOM) {
        i = atomic_fetch_add_explicit(&run->issued, 1, memory_order_relaxed);
        if (o->requests != 0 && i >= o->requests)
            return false;
    }
    uint64_t size = o->range_bytes != 0 ? o->range_bytes : o->file_bytes;
    if (o->order == ORDER_RANDOM)
        *off = random_next(&w->random) % ((o->file_bytes - size) / ALIGN_BYTES + 1) * ALIGN_BYTES;
    else
        *off = (run->shuffled != NULL ? run->shuffled[i % run->slots] : i % run->slots) * size;
    *len = o->file_bytes - *off < size ? o->file_bytes - *off : size;
    return true;
}

static void request_prepare(const struct options *o, struct connection *c)
{
    int n = snprintf(c->request, sizeof c->request, "GET %s HTTP/1.1\r\nHost: %s:%u\r\n%s", o->path, o->host,
                     (unsigned)ntohs(o->address.sin_port), o->range_bytes != 0 ? "Range: bytes=" : "");
    c->prefix_len = (size_t)n; /* main() has checked that it fits, with 64 bytes to spare */
    c->range = o->range_bytes != 0 ? c->request + c->prefix_len : NULL;
}

/* Sends the connection's next request, or closes the connection when no request remains. */
static bool request_start(struct worker *w, struct connection *c)
{
    uint64_t off = 0, len = 0;
    if (!range_next(w, &off, &len)) {
        connection_close(w, c);
        return true;
    }
    char *end = c->request + c->prefix_len;
    if (c->range != NULL) {
        end = put_u64(end, off);
        *end++ = '-';
        end = put_u64(end, off + len - 1);
        c->range_len = (size_t)(end - c->range);
        *end++ = '\r';
        *end++ = '\n';
    }
    *end++ = '\r';
    *end++ = '\n';
    c->in_body = false;
    c->head_len = 0;
    c->expected_bytes = len;
    c->remaining_bytes = len;
    c->sent_ns = w->now_ns;
    ssize_t size = end - c->request;
    ssize_t sent =
        c->tls != NULL ? SSL_write(c->tls, c->request, (int)size) : send(c->fd, c->request, (size_t)size, MSG_NOSIGNAL);
    if (sent == size)
        return true;
    worker_error(w, "send: %s", sent < 0 ? "failed" : "request not taken whole");
    return false;
}

/* ---- one answer ---- */

static bool header_is(const char *line, const char *line_end, const char *name, const char **value)
{
    size_t n = strlen(name);
    if ((size_t)(line_end - line) <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
        return false;
    const char *p = line + n + 1;
    while (p < line_end && (*p == ' ' || *p == '\t'))
        p++;
    *value = p;
    return true;
}

static bool parse_u64(const char *p, const char *end, uint64_t *out)
{
    uint64_t value = 0;
    if (p == end || end - p > 19)
        return false;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        value = value * 10 + (uint64_t)(*p - '0');
    }
    *out = value;
    return true;
}

/* Checks the head [c->head, c->head + head_bytes), its empty line included. */
static bool head_check(struct worker *w, struct connection *c, size_t head_bytes)
{
    const char *p = c->head, *end = c->head + head_bytes - 2;
    const char *want = c->range != NULL ? "HTTP/1.1 206" : "HTTP/1.1 200";
    if (head_bytes < 16 || memcmp(p, want, 12) != 0) {
        worker_error(w, "status %.3s instead of %.3s", head_bytes < 16 ? "?" : p + 9, want + 9);
        return false;
    }
    bool length_seen = false, range_seen = c->range == NULL;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        if (newline == NULL)
            break;
        const char *line_end = newline > p && newline[-1] == '\r' ? newline - 1 : newline;
        const char *value = NULL;
        uint64_t length = 0;
        if ((*p | 0x20) == 'c' && header_is(p, line_end, "Content-Length", &value)) {
            if (!parse_u64(value, line_end, &length) || length != c->expected_bytes) {
                worker_error(w, "Content-Length is not %" PRIu64, c->expected_bytes);
                return false;
            }
            length_seen = true;
        } else if ((*p | 0x20) == 'c' && !range_seen && header_is(p, line_end, "Content-Range", &value)) {
            range_seen = (size_t)(line_end - value) > 6 + c->range_len && memcmp(value, "bytes ", 6) == 0 &&
                         memcmp(value + 6, c->range, c->range_len) == 0 && value[6 + c->range_len] == '/';
        }
        p = newline + 1;
    }
    if (!length_seen || !range_seen)
        worker_error(w, "%s missing or wrong", length_seen ? "Content-Range" : "Content-Length");
    return length_seen && range_seen;
}

/* Calls recv. Returns > 0: bytes; 0: nothing now (never when blocking); -1: the connection has ended. */
static ssize_t connection_recv(struct worker *w, struct connection *c, void *buffer, size_t len, int flags)
{
    for (;;) {
        errno = 0; /* OpenSSL's own errors leave it as it was */
        ssize_t n = c->tls != NULL ? SSL_read(c->tls, buffer, (int)len) : recv(c->fd, buffer, len, flags);
        if (n > 0)
            return n;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && !w->blocking)
            return 0;
        if (n == 0)
            worker_error(w, "closed by the server %s", c->in_body ? "within a body" : "before an answer");
        else
            worker_error(w, "recv: errno %d", errno);
        return -1;
    }
}

/* Waits until the connection's next request is due. */
static void worker_pause(struct worker *w, const struct connection *c)
{
    uint64_t due_ns = c->sent_ns + w->run->options->interval_ns;
    if (w->now_ns >= due_ns)
        return;
    struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S), .tv_nsec = (long)(due_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
        ;
    worker_tick(w);
    uint64_t late_ns = w->now_ns - due_ns;
    w->pauses++;
    if (late_ns > w->late_max_ns)
        w->late_max_ns = late_ns;
    w->late_histogram[histogram_cell(late_ns)]++;
}

static bool request_finish(struct worker *w, struct connection *c)
{
    worker_tick(w);
    uint64_t ns = w->now_ns - c->sent_ns;
    w->requests++;
    w->sum_ns += ns;
    if (ns > w->max_ns)
        w->max_ns = ns;
    w->histogram[histogram_cell(ns)]++;
    if (w->run->options->interval_ns != 0)
        worker_pause(w, c);
    return request_start(w, c);
}

static bool head_read(struct worker *w, struct connection *c, bool *again)
{
    size_t room = sizeof c->head - c->head_len;
    size_t want = c->expected_bytes <= SMALL_ANSWER_BYTES ? room : HEAD_READ_BYTES;
    ssize_t n = connection_recv(w, c, c->head + c->head_len, want < room ? want : room, 0);
    if (n <= 0)
        return n == 0;
    size_t from = c->head_len > 3 ? c->head_len - 3 : 0;
    c->head_len += (size_t)n;
    const char *blank = memmem(c->head + from, c->head_len - from, "\r\n\r\n", 4);
    if (blank == NULL) {
        if (c->head_len < sizeof c->head)
            return true;
        worker_error(w, "head longer than %u bytes", HEAD_MAX_BYTES);
        return false;
    }
    size_t head_bytes = (size_t)(blank - c->head) + 4, body_bytes = c->head_len - head_bytes;
    if (!head_check(w, c, head_bytes))
        return false;
    if (body_bytes > c->remaining_bytes) {
        worker_error(w, "%zu bytes too many", body_bytes - (size_t)c->remaining_bytes);
        return false;
    }
    c->in_body = true;
    c->remaining_bytes -= body_bytes;
    w->bytes += body_bytes;
    *again = c->remaining_bytes > 0;
    return *again || request_finish(w, c);
}

static bool body_read(struct worker *w, struct connection *c)
{
    size_t want = c->remaining_bytes < RECV_MAX_BYTES ? (size_t)c->remaining_bytes : RECV_MAX_BYTES;
    int flags = w->blocking && !w->run->options->cut ? MSG_WAITALL : 0;
    if (w->copy_buffer != NULL && want > COPY_BYTES)
        want = COPY_BYTES;
    ssize_t n = connection_recv(w, c, w->copy_buffer, want, w->copy_buffer != NULL ? flags : flags | MSG_TRUNC);
    if (n <= 0)
        return n == 0;
    w->bytes += (uint64_t)n;
    c->remaining_bytes -= (uint64_t)n;
    return c->remaining_bytes > 0 || request_finish(w, c);
}

/* Reads the available bytes of a connection. An error closes the connection and opens another in its place. */
static void connection_serve(struct worker *w, struct connection *c)
{
    bool again = false;
    bool ok = c->in_body ? body_read(w, c) : head_read(w, c, &again);
    if (ok && again && c->fd >= 0)
        ok = body_read(w, c);
    if (ok)
        return;
    connection_close(w, c);
    if (w->errors >= ERRORS_MAX || w->now_ns >= w->run->deadline_ns || !connection_open(w, c))
        return;
    w->reconnects++;
    w->active++;
    if (!request_start(w, c))
        connection_close(w, c);
}

/* ---- the two engines ---- */

/* Closes the connections of a run that is not to wait for the answers in flight, once its time is over. */
static void worker_cut(struct worker *w)
{
    if (!w->run->options->cut || w->now_ns < w->run->deadline_ns)
        return;
    for (unsigned i = 0; i < w->connection_count; i++)
        connection_close(w, &w->connections[i]);
}

static void worker_poll(struct worker *w)
{
    struct epoll_event events[EVENTS_MAX];
    while (w->active > 0) {
        int n = epoll_wait(w->epoll_fd, events, EVENTS_MAX, STALL_SECONDS * 1000);
        worker_tick(w);
        if (n == 0) {
            worker_error(w, "no byte for %d seconds", STALL_SECONDS);
            return;
        }
        for (int i = 0; i < n; i++)
            connection_serve(w, events[i].data.ptr);
        worker_cut(w);
    }
}

static void worker_block(struct worker *w)
{
    while (w->active > 0) {
        connection_serve(w, &w->connections[0]);
        worker_tick(w);
        worker_cut(w);
    }
}

/* Has the running thread wake when it is due, as far as the kernel lets it. */
static void ask_for_promptness(void)
{
    (void)prctl(PR_SET_TIMERSLACK, 1);       /* ns; the kernel would add up to 50 us to each pause */
    (void)setpriority(PRIO_PROCESS, 0, -20); /* on Linux: of the thread */
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    if (w->run->options->interval_ns != 0)
        ask_for_promptness();
    for (unsigned i = 0; i < w->connection_count; i++) {
        struct connection *c = &w->connections[i];
        request_prepare(w->run->options, c);
        if (connection_open(w, c))
            w->active++;
    }
    pthread_barrier_wait(&w->run->connected);
    pthread_barrier_wait(&w->run->started); /* main sets the clock between the barriers */
    worker_tick(w);
    for (unsigned i = 0; i < w->connection_count; i++) {
        struct connection *c = &w->connections[i];
        if (c->fd >= 0 && !request_start(w, c))
            connection_close(w, c);
    }
    if (w->blocking)
        worker_block(w);
    else
        worker_poll(w);
    w->end_ns = clock_now_ns();
    if (w->window_ns == 0) {
        w->window_ns = w->end_ns - w->run->start_ns;
        w->window_bytes = w->bytes;
    }
    for (unsigned i = 0; i < w->connection_count; i++)
        connection_close(w, &w->connections[i]);
    return NULL;
}

/* ---- setting up, adding up ---- */

static bool shuffle_create(struct run *run)
{
    if (run->slots > UINT32_MAX)
        return false;
    run->shuffled = calloc((size_t)run->slots, sizeof *run->shuffled);
    if (run->shuffled == NULL)
        return false;
    uint64_t state = run->options->seed;
    for (uint64_t i = 0; i < run->slots; i++) {
        uint64_t j = random_next(&state) % (i + 1);
        run->shuffled[i] = run->shuffled[j];
        run->shuffled[j] = (uint32_t)i;
    }
    return true;
}

static bool worker_init(struct worker *w, struct run *run, unsigned index)
{
    const struct options *o = run->options;
    w->run = run;
    w->connection_count = o->connections / o->threads + (index < o->connections % o->threads ? 1 : 0);
    w->connections = calloc(w->connection_count, sizeof *w->connections);
    w->histogram = calloc(HISTOGRAM_CELLS, sizeof *w->histogram);
    w->late_histogram = calloc(HISTOGRAM_CELLS, sizeof *w->late_histogram);
    w->copy_buffer = o->copy ? malloc(COPY_BYTES) : NULL;
    w->blocking = o->threads == o->connections;
    w->random = o->seed * UINT64_C(0x2545F4914F6CDD1D) + index;
    w->epoll_fd = w->blocking ? -1 : epoll_create1(EPOLL_CLOEXEC);
    if (w->connections == NULL || w->histogram == NULL || w->late_histogram == NULL ||
        (o->copy && w->copy_buffer == NULL))
        return false;
    for (unsigned i = 0; i < w->connection_count; i++)
        w->connections[i].fd = -1;
    return w->blocking || w->epoll_fd >= 0;
}

static void worker_fini(struct worker *w)
{
    free(w->connections);
    free(w->histogram);
    free(w->late_histogram);
    free(w->copy_buffer);
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
}

/* Adds all workers to the first one, and writes the sum of their rates to *rate. */
static void workers_sum(struct worker *workers, unsigned count, const struct run *run, double *rate)
{
    struct worker *sum = &workers[0];
    *rate = (double)sum->window_bytes / (double)sum->window_ns * NS_PER_S;
    for (unsigned i = 1; i < count; i++) {
        const struct worker *w = &workers[i];
        *rate += (double)w->window_bytes / (double)w->window_ns * NS_PER_S;
        sum->bytes += w->bytes;
        sum->requests += w->requests;
        sum->errors += w->errors;
        sum->reconnects += w->reconnects;
        sum->sum_ns += w->sum_ns;
        sum->max_ns = w->max_ns > sum->max_ns ? w->max_ns : sum->max_ns;
        sum->end_ns = w->end_ns > sum->end_ns ? w->end_ns : sum->end_ns;
        if (sum->first_error[0] == '\0')
            memcpy(sum->first_error, w->first_error, sizeof sum->first_error);
        sum->pauses += w->pauses;
        sum->late_max_ns = w->late_max_ns > sum->late_max_ns ? w->late_max_ns : sum->late_max_ns;
        for (size_t cell = 0; cell < HISTOGRAM_CELLS; cell++) {
            sum->histogram[cell] += w->histogram[cell];
            sum->late_histogram[cell] += w->late_histogram[cell];
        }
    }
    if (run->deadline_ns == UINT64_MAX) /* a run by number of requests: all bytes over the whole time */
        *rate = (double)sum->bytes / (double)(sum->end_ns - run->start_ns) * NS_PER_S;
}

static void report_print(const struct worker *sum, const struct run *run, double rate)
{
    const struct options *o = run->options;
    double per_request = o->range_bytes != 0 ? (double)o->range_bytes : (double)o->file_bytes;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"gb_per_s\":%.4f,\"requests_per_s\":%.2f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,"
           "\"mean_us\":%.1f,\"requests\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"errors\":%" PRIu64
           ",\"reconnects\":%" PRIu64 ",\"seconds\":%.4f,\"client_cpu_s\":%.4f,\"connections\":%u,\"threads\":%u,"
           "\"pauses\":%" PRIu64 ",\"late_p50_us\":%.1f,\"late_p99_us\":%.1f,\"late_max_us\":%.1f,"
           "\"first_error\":\"%s\"}\n",
           rate / 1e9, rate / per_request, histogram_quantile_us(sum->histogram, sum->requests, 0.5),
           histogram_quantile_us(sum->histogram, sum->requests, 0.99), (double)sum->max_ns / 1e3,
           sum->requests != 0 ? (double)sum->sum_ns / (double)sum->requests / 1e3 : 0.0, sum->requests, sum->bytes,
           sum->errors, sum->reconnects, (double)(sum->end_ns - run->start_ns) / 1e9, cpu_s, o->connections, o->threads,
           sum->pauses, histogram_quantile_us(sum->late_histogram, sum->pauses, 0.5),
           histogram_quantile_us(sum->late_histogram, sum->pauses, 0.99), (double)sum->late_max_ns / 1e3,
           sum->first_error);
}

/* Ends the duration when SIGTERM comes, which main has blocked. */
static void *stopper_main(void *argument)
{
    struct run *run = argument;
    sigset_t signals;
    int number = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    if (sigwait(&signals, &number) == 0)
        run->deadline_ns = clock_now_ns();
    return NULL;
}

static bool run_all(struct run *run, struct worker *workers)
{
    const struct options *o = run->options;
    for (unsigned i = 0; i < o->threads; i++)
        if (!worker_init(&workers[i], run, i)) {
            fprintf(stderr, "load_client: out of memory or descriptors\n");
            return false;
        }
    pthread_barrier_init(&run->connected, NULL, o->threads + 1);
    pthread_barrier_init(&run->started, NULL, o->threads + 1);
    for (unsigned i = 0; i < o->threads; i++)
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0) {
            fprintf(stderr, "load_client: cannot start thread %u of %u\n", i + 1, o->threads);
            exit(1); /* the others wait at the barrier and end only with the process */
        }
    pthread_barrier_wait(&run->connected);
    run->start_ns = clock_now_ns();
    run->deadline_ns = o->duration_ns != 0 ? run->start_ns + o->duration_ns : UINT64_MAX;
    pthread_t stopper;
    if (o->cut && (pthread_create(&stopper, NULL, stopper_main, run) != 0 || pthread_detach(stopper) != 0)) {
        fprintf(stderr, "load_client: cannot start a thread\n");
        exit(1);
    }
    pthread_barrier_wait(&run->started);
    for (unsigned i = 0; i < o->threads; i++)
        pthread_join(workers[i].thread, NULL);
    double rate = 0;
    workers_sum(workers, o->threads, run, &rate);
    report_print(&workers[0], run, rate);
    return workers[0].errors == 0;
}

/* ---- command line ---- */

static const char usage_text[] =
    "usage: load_client --port N --path P --file-size BYTES [options]\n"
    "  --host A            IPv4 address (127.0.0.1)\n"
    "  --range-size BYTES  bytes per request (0 = the whole file, no Range header)\n"
    "  --connections N     (8)\n"
    "  --threads N         epoll workers (one per processor); as many as connections: blocking threads\n"
    "  --duration SECONDS  start requests for so long (2)     --requests N  or as many as this\n"
    "  --interval US       from one request of a connection to the next, if its answer has come (0: at once);\n"
    "                      needs blocking threads\n"
    "  --cut               do not wait for answers that are in flight at the end of the duration, which SIGTERM ends\n"
    "  --order ORDER       random: 4 KiB aligned offsets; sequential, shuffle: the file slot by slot\n"
    "  --once              every slot once (sequential and shuffle)\n"
    "  --seed N (1)        --receive-buffer BYTES (kernel's choice)\n"
    "  --copy              copy bodies to user space as an ordinary client does\n"
    "  --tls CIPHERS       TLS 1.3, as TLS_AES_128_GCM_SHA256; copies, blocking threads; verifies no certificate\n";

static void usage_fail(const char *what)
{
    fprintf(stderr, "load_client: %s\n%s", what, usage_text);
    exit(2);
}

static uint64_t argument_u64(const char *name, uint64_t least, uint64_t most)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(optarg, &end, 10);
    if (errno != 0 || end == optarg || *end != '\0' || *optarg == '-' || value < least || value > most) {
        fprintf(stderr, "load_client: --%s: not a number in range: %s\n", name, optarg);
        exit(2);
    }
    return value;
}

static enum order argument_order(void)
{
    static const char *const names[] = {"random", "sequential", "shuffle"};
    for (int i = 0; i < 3; i++)
        if (strcmp(optarg, names[i]) == 0)
            return (enum order)i;
    usage_fail("--order is random, sequential or shuffle");
    return ORDER_RANDOM;
}

/* Returns a context for TLS 1.3 with the cipher suites of the command line. */
static SSL_CTX *tls_context(void)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    if (tls == NULL || SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(tls, optarg) != 1)
        usage_fail("--tls: unknown cipher suite");
    return tls;
}

static void options_parse(int argc, char **argv, struct options *o, bool *once)
{
    static const struct option known[] = {{"host", required_argument, NULL, 'h'},
                                          {"port", required_argument, NULL, 'p'},
                                          {"path", required_argument, NULL, 'u'},
                                          {"file-size", required_argument, NULL, 'f'},
                                          {"range-size", required_argument, NULL, 'r'},
                                          {"connections", required_argument, NULL, 'c'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"duration", required_argument, NULL, 'd'},
                                          {"requests", required_argument, NULL, 'n'},
                                          {"interval", required_argument, NULL, 'i'},
                                          {"cut", no_argument, NULL, 'x'},
                                          {"order", required_argument, NULL, 'o'},
                                          {"once", no_argument, NULL, '1'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"copy", no_argument, NULL, 'y'},
                                          {"receive-buffer", required_argument, NULL, 'b'},
                                          {"tls", required_argument, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'h':
            o->host = optarg;
            break;
        case 'p':
            o->address.sin_port = htons((uint16_t)argument_u64("port", 1, UINT16_MAX));
            break;
        case 'u':
            o->path = optarg;
            break;
        case 'f':
            o->file_bytes = argument_u64("file-size", 1, INT64_MAX);
            break;
        case 'r':
            o->range_bytes = argument_u64("range-size", 0, INT64_MAX);
            break;
        case 'c':
            o->connections = (unsigned)argument_u64("connections", 1, CONNECTIONS_MAX);
            break;
        case 't':
            o->threads = (unsigned)argument_u64("threads", 1, CONNECTIONS_MAX);
            break;
        case 'd':
            o->duration_ns = (uint64_t)(strtod(optarg, NULL) * NS_PER_S);
            break;
        case 'n':
            o->requests = argument_u64("requests", 1, INT64_MAX);
            break;
        case 'i':
            o->interval_ns = argument_u64("interval", 0, UINT32_MAX) * 1000;
            break;
        case 'x':
            o->cut = true;
            break;
        case 'o':
            o->order = argument_order();
            break;
        case '1':
            *once = true;
            break;
        case 's':
            o->seed = argument_u64("seed", 0, INT64_MAX);
            break;
        case 'y':
            o->copy = true;
            break;
        case 'b':
            o->receive_buffer_bytes = (int)argument_u64("receive-buffer", 1, INT32_MAX);
            break;
        case 'l':
            o->tls = tls_context();
            break;
        default:
            usage_fail("see above");
        }
    }
    if (optind != argc || o->path == NULL || o->address.sin_port == 0 || o->file_bytes == 0)
        usage_fail("--port, --path and --file-size are needed");
}

static void options_settle(struct options *o, bool once, uint64_t *slots)
{
    if (inet_pton(AF_INET, o->host, &o->address.sin_addr) != 1)
        usage_fail("--host is an IPv4 address");
    if (o->range_bytes > o->file_bytes)
        usage_fail("--range-size is larger than --file-size");
    if (strlen(o->path) + strlen(o->host) > REQUEST_MAX_BYTES - 256)
        usage_fail("--path is too long");
    uint64_t size = o->range_bytes != 0 ? o->range_bytes : o->file_bytes;
    *slots = o->file_bytes / size + (o->file_bytes % size != 0 ? 1 : 0);
    if (once && o->order == ORDER_RANDOM)
        usage_fail("--once needs --order sequential or shuffle");
    if (once)
        o->requests = *slots;
    if (o->requests == 0 && o->duration_ns == 0)
        o->duration_ns = 2 * (uint64_t)NS_PER_S;
    if (o->threads == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        o->threads = processors > 0 ? (unsigned)processors : 1;
    }
    if (o->threads > o->connections || o->tls != NULL)
        o->threads = o->connections;
    o->copy = o->copy || o->tls != NULL;
    if (o->interval_ns != 0 && o->threads != o->connections)
        usage_fail("--interval needs as many --threads as --connections");
}

int main(int argc, char **argv)
{
    struct options options = {.host = "127.0.0.1", .connections = 8, .seed = 1};
    options.address.sin_family = AF_INET;
    bool once = false;
    struct run run = {.options = &options};
    options_parse(argc, argv, &options, &once);
    options_settle(&options, once, &run.slots);
    signal(SIGPIPE, SIG_IGN);
    if (options.order == ORDER_SHUFFLE && !shuffle_create(&run)) {
        fprintf(stderr, "load_client: too many ranges to shuffle\n");
        return 1;
    }
    if (options.cut) { /* before threads start, which inherit it; the signal waits for the stopper */
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    }
    struct worker *workers = calloc(options.threads, sizeof *workers);
    if (workers == NULL)
        return 1;
    for (unsigned i = 0; i < options.threads; i++)
        workers[i].epoll_fd = -1;
    bool ok = run_all(&run, workers);
    for (unsigned i = 0; i < options.threads; i++)
        worker_fini(&workers[i]);
    free(workers);
    free(run.shuffled);
    SSL_CTX_free(options.tls);
    return ok ? 0 : 1;
}
