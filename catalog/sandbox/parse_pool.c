/* Plan: acquire_worker() takes an idle process or starts one; send_all() sends it the requests of a queue with their
 * descriptors; collect_outcome() gathers the outcome of the first; conclude_request() and replace_process() end a
 * process that failed or is used up, and let_go() releases it.
 *
 * What is hard: to distinguish a fault of the file from a fault of the host. If a process ends by a signal of its own,
 * is too slow or takes too much memory, its file is the cause, and is refused for good. A process that was killed from
 * outside is replaced, and the file is tried once more. */
#include "catalog/sandbox/parse_pool.h"

#include "catalog/model/file_content.h"
#include "catalog/sandbox/card_wire.h"
#include "catalog/sandbox/content_wire.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/log.h"
#include "core/process.h"
#include "core/socket_send.h"
#include "parser/formats.h"
#include "storage/file_source.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A place in the pool; pid 0: no process. */
struct worker {
    pid_t pid;
    int fd;
    unsigned files;  /* that it was sent */
    uint64_t cpu_ns; /* that it had used when the first request's outcome was waited for */
    bool is_new;     /* it has not yet said that it is confined */
    bool is_busy;
};

/* One place more than files are parsed at once, for the process that follows one that is nearly used up. */
enum { PLACES = TD_PARSE_WORKERS_MAX + 1, FILES_BEFORE_NEXT = 40 };

struct td_parse_pool {
    struct td_parse_pool_config config;
    struct td_sandbox_layers layers;
    _Atomic uint64_t file_count;
    _Atomic uint64_t ends[TD_PARSE_ENDS];
    pthread_mutex_t lock;
    pthread_cond_t is_idle;
    size_t place_count;
    struct worker workers[PLACES]; /* is_busy under the lock; other members belong to the thread that took it */
};

/* The end of a request. */
enum outcome {
    DONE,       /* the parts have arrived */
    GONE,       /* the process ended */
    TOO_SLOW,   /* it was not done in time */
    WRONG,      /* its answer was longer than any can be, or no message of ours */
    NOT_NEEDED, /* *stop */
    NO_MEMORY,  /* here, for the parts */
};

/* A request. */
struct errand {
    struct td_parse_request request;
    int fds[2];
    uint64_t timeout_ns;
    _Atomic uint64_t *done_bytes; /* of rows, or NULL */
    bool was_killed;              /* the process that did it was killed from outside */
};

/* Requests in order. */
struct td_parse_queue {
    struct td_parse_pool *pool;
    struct worker *worker; /* that was sent the first `sent` of them; NULL: none */
    size_t sent, count;
    size_t first; /* place of the first request: the array is a ring */
    struct errand errands[TD_PARSE_QUEUE_MAX];
    const _Atomic bool *stop; /* NULL: never */
    struct td_buffer parts;   /* of the outcome of the first one */
};

struct td_parse_pool_config td_parse_pool_config_default(void)
{
    return (struct td_parse_pool_config){
        .timeout_ns = TD_PARSE_TIMEOUT_NS, .memory_bytes = TD_PARSE_MEMORY_BYTES, .max_workers = 1};
}

const char *td_parse_end_name(enum td_parse_end end)
{
    static const char *const names[] = {
        [TD_PARSE_USED_UP] = "used_up",    [TD_PARSE_CRASHED] = "crashed", [TD_PARSE_FORBIDDEN] = "forbidden_call",
        [TD_PARSE_KILLED] = "killed",      [TD_PARSE_SLOW] = "timeout",    [TD_PARSE_MEMORY] = "memory",
        [TD_PARSE_WRONG] = "wrong_answer", [TD_PARSE_STOPPED] = "stopped"};
    return names[end];
}

/* ---- processes ----------------------------------------------------------------------------------------- */

/* Waits until a process that closed its socket has ended, for 1 s at most: it closes before it ends. Returns false when
 * it continues to run. */
static bool await_end(pid_t pid)
{
    enum { MOST_MS = 1000 };
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (end.fd < 0)
        return true;
    bool has_ended = poll(&end, 1, MOST_MS) != 0;
    (void)close(end.fd);
    return has_ended;
}

/* Kills the process and waits for its end, which comes at once. Returns how it ended; -1 when that is unknown. */
static int end_process(struct worker *worker)
{
    int how = -1;
    (void)close(worker->fd);
    (void)kill(worker->pid, SIGKILL);
    while (waitpid(worker->pid, &how, 0) < 0)
        if (errno != EINTR) {
            how = -1; /* the starter of this program has us ignore SIGCHLD */
            break;
        }
    worker->pid = 0;
    worker->files = 0;
    return how;
}

/* Starts the program with the socket as its descriptor 0, no environment, and as td_process_start says. Returns 0 or an
 * errno value. */
static int spawn_process(const struct td_parse_pool *pool, int socket, pid_t *pid)
{
    const char *program = pool->config.program == NULL ? "/proc/self/exe" : pool->config.program;
    char memory[24];
    char name[] = "tensord";
    char word[] = TD_PARSE_WORKER;
    char *const arguments[] = {name, word, memory, NULL};
    char *const environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    (void)snprintf(memory, sizeof memory, "%" PRIu64, pool->config.memory_bytes);
    int sys = posix_spawn_file_actions_init(&actions);
    if (sys != 0)
        return sys;
    sys = posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
    if (sys == 0)
        sys = td_process_start(program, arguments, environment, &actions, pid);
    (void)posix_spawn_file_actions_destroy(&actions);
    return sys;
}

/* Receives one message: its type to *type, and at most `room` bytes to out. Waits for 100 ms at most. Returns the
 * number of bytes; -1 when the process has closed its socket; 0 and TD_FRAME_PROGRESS when no message came in time, 0
 * and TD_FRAME_HELLO for one that is not of ours. The kernel drops descriptors that come with a message. */
static ssize_t receive_frame(int fd, enum td_parse_frame *type, void *out, size_t room)
{
    uint32_t head = 0;
    struct iovec parts[2] = {{.iov_base = &head, .iov_len = sizeof head}, {.iov_base = out, .iov_len = room}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = recvmsg(fd, &message, 0);
    /* A process that ends with requests unread resets the connection; what it sent before is still there. */
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) {
        *type = TD_FRAME_PROGRESS;
        return 0;
    }
    if (n <= 0)
        return -1;
    bool is_ours = n >= (ssize_t)sizeof head && (message.msg_flags & MSG_TRUNC) == 0 && head <= TD_FRAME_END;
    *type = is_ours ? (enum td_parse_frame)head : TD_FRAME_HELLO;
    return is_ours ? n - (ssize_t)sizeof head : 0;
}

/* Reads which layers of the sandbox hold in the process. Returns false for no such message. */
static bool read_hello(const unsigned char *bytes, size_t len, struct td_sandbox_layers *layers)
{
    if (len != sizeof *layers)
        return false;
    *layers = (struct td_sandbox_layers){.rlimits = bytes[offsetof(struct td_sandbox_layers, rlimits)] == 1,
                                         .landlock = bytes[offsetof(struct td_sandbox_layers, landlock)] == 1,
                                         .seccomp = bytes[offsetof(struct td_sandbox_layers, seccomp)] == 1};
    return true;
}

static bool has_all(const struct td_sandbox_layers *layers)
{
    return layers->rlimits && layers->landlock && layers->seccomp;
}

/* Waits until the process says that it is confined. */
static bool await_hello(const struct worker *worker, struct td_sandbox_layers *layers)
{
    enum { SECONDS = 10 };
    const uint64_t until_ns = td_clock_ns() + SECONDS * TD_NS_PER_S;
    enum td_parse_frame type = TD_FRAME_PROGRESS;
    unsigned char bytes[sizeof *layers];
    while (type == TD_FRAME_PROGRESS && td_clock_ns() < until_ns) {
        ssize_t n = receive_frame(worker->fd, &type, bytes, sizeof bytes);
        if (n < 0)
            return false;
        if (type == TD_FRAME_HELLO)
            return read_hello(bytes, (size_t)n, layers);
    }
    return false;
}

/* Starts a process in a place of the pool that is empty. Errors: TD_UNAVAILABLE. */
static bool start_process(const struct td_parse_pool *pool, struct worker *worker, struct td_error *err)
{
    const struct timeval step = {.tv_usec = 100000};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return td_error_sys(err, TD_UNAVAILABLE, errno, "cannot make a socket for the parser's process");
    (void)setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &step, sizeof step);
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &step, sizeof step);
    int sys = spawn_process(pool, pair[1], &worker->pid);
    (void)close(pair[1]);
    if (sys != 0) {
        worker->pid = 0;
        (void)close(pair[0]);
        return td_error_sys(err, TD_UNAVAILABLE, sys, "cannot start the parser's process");
    }
    worker->fd = pair[0];
    worker->is_new = true;
    return true;
}

/* ---- places -------------------------------------------------------------------------------------------- */

/* Takes a free place, if possible one with an idle process. Under the lock. */
static struct worker *take_place(struct td_parse_pool *pool)
{
    struct worker *empty = NULL;
    for (size_t i = 0; i < pool->place_count; i++) {
        struct worker *worker = &pool->workers[i];
        if (worker->is_busy)
            continue;
        if (worker->pid != 0)
            return worker;
        empty = empty == NULL ? worker : empty;
    }
    return empty;
}

/* Releases a place. */
static void release_worker(struct td_parse_pool *pool, struct worker *worker)
{
    pthread_mutex_lock(&pool->lock);
    worker->is_busy = false;
    pthread_cond_signal(&pool->is_idle);
    pthread_mutex_unlock(&pool->lock);
}

static void count_end(struct td_parse_pool *pool, enum td_parse_end end)
{
    atomic_fetch_add_explicit(&pool->ends[end], 1, memory_order_relaxed);
}

/* Returns whether an idle process is alive and has sent nothing since its last outcome, except that it is confined. It
 * may have been killed, or the thread that started it may have ended; and bytes that it sends without a request would
 * be taken for the outcome of the next file. */
static bool is_silent(const struct worker *worker)
{
    char byte;
    ssize_t n = recv(worker->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 ? worker->is_new : n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Takes a process that is idle, or starts one; waits while all are at work. Returns NULL: TD_UNAVAILABLE. */
static struct worker *acquire_worker(struct td_parse_pool *pool, struct td_error *err)
{
    pthread_mutex_lock(&pool->lock);
    struct worker *worker = take_place(pool);
    for (; worker == NULL; worker = take_place(pool))
        (void)pthread_cond_wait(&pool->is_idle, &pool->lock);
    worker->is_busy = true;
    pthread_mutex_unlock(&pool->lock);
    if (worker->pid != 0 && !is_silent(worker)) {
        (void)end_process(worker);
        count_end(pool, TD_PARSE_KILLED);
    }
    if (worker->pid != 0 || start_process(pool, worker, err))
        return worker;
    release_worker(pool, worker);
    return NULL;
}

/* Starts a process in an empty place, unless one is idle. */
static void start_next(struct td_parse_pool *pool)
{
    struct td_error none = TD_ERROR_INIT;
    pthread_mutex_lock(&pool->lock);
    struct worker *worker = take_place(pool);
    bool is_empty = worker != NULL && worker->pid == 0;
    if (is_empty)
        worker->is_busy = true;
    pthread_mutex_unlock(&pool->lock);
    if (!is_empty)
        return;
    (void)start_process(pool, worker, &none); /* else it is tried again when it is needed */
    release_worker(pool, worker);
}

/* ---- one request --------------------------------------------------------------------------------------- */

/* Limits the processor time of a process: the kernel ends it if the server no longer can. Renewed after some files,
 * since three system calls for each file would be too slow. An index of rows takes as long as its file is. */
static void limit_cpu(const struct worker *worker, const struct errand *errand, uint64_t timeout_ns)
{
    enum { FILES = 32, MORE_SECONDS = 2 };
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    clockid_t clock;
    struct timespec used;
    bool has_end = errand->request.job != TD_PARSE_ROWS;
    if (has_end && worker->files % FILES != 0)
        return;
    if (clock_getcpuclockid(worker->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return;
    if (has_end)
        limit.rlim_cur = (rlim_t)used.tv_sec + (rlim_t)(timeout_ns * FILES / TD_NS_PER_S) + MORE_SECONDS;
    (void)prlimit(worker->pid, RLIMIT_CPU, &limit, NULL);
}

/* Sends the request with its descriptors. Returns false when the process is gone. */
static bool send_request(const struct worker *worker, const struct errand *errand)
{
    size_t bytes = (errand->request.has_table != 0 ? 2 : 1) * sizeof(int);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = (void *)(uintptr_t)&errand->request, .iov_len = sizeof errand->request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = bytes == sizeof(int) ? CMSG_SPACE(sizeof(int)) : sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(rights), errand->fds, bytes);
    return td_socket_send_message(worker->fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof errand->request;
}

/* Returns the most bytes that the outcome may have. Each item takes fewer on the wire than in memory, but names do. */
static uint64_t most_bytes(const struct td_parse_request *request)
{
    const struct td_limits usual = td_limits_default();
    uint64_t memory = request->max_memory_bytes == 0 ? usual.max_memory_bytes : request->max_memory_bytes;
    return memory + (request->max_header_bytes < memory ? request->max_header_bytes : memory) + TD_WIRE_PART_BYTES;
}

/* Records the progress of an index. Returns whether it has advanced by at least the step between two messages, so that
 * a process cannot gain time without end. */
static bool note_progress(struct errand *errand, const void *bytes, size_t len, uint64_t *reported_bytes)
{
    uint64_t done_bytes;
    if (errand->request.job != TD_PARSE_ROWS || len != sizeof done_bytes)
        return false;
    memcpy(&done_bytes, bytes, sizeof done_bytes);
    if (done_bytes > errand->request.size_bytes || done_bytes < *reported_bytes + TD_PARSE_PROGRESS_BYTES)
        return false;
    *reported_bytes = done_bytes;
    if (errand->done_bytes != NULL)
        atomic_store_explicit(errand->done_bytes, done_bytes, memory_order_relaxed);
    return true;
}

/* Reads the first message of a process. Returns false when it is not the first one, and when the sandbox is not as it
 * has to be. */
static bool take_hello(const struct td_parse_pool *pool, struct worker *worker, const void *bytes, size_t len)
{
    struct td_sandbox_layers layers;
    if (!worker->is_new || !read_hello(bytes, len, &layers) || (pool->config.required && !has_all(&layers)))
        return false;
    worker->is_new = false;
    return true;
}

/* Returns the place of the i-th request. */
static struct errand *errand_at(struct td_parse_queue *queue, size_t i)
{
    return &queue->errands[(queue->first + i) % TD_PARSE_QUEUE_MAX];
}

/* Returns the processor time that the process has used; 0 when it is unknown. */
static uint64_t cpu_ns_of(const struct worker *worker)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(worker->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * TD_NS_PER_S + (uint64_t)used.tv_nsec;
}

/* Returns whether the process has waited for nearly all of the time limit, for a disk or a processor: the file is not
 * to blame. */
static bool has_waited(const struct worker *worker, const struct errand *errand)
{
    enum { WORKS = 10 }; /* a parser that is at work gets more than this part of the time, also beside other load */
    return cpu_ns_of(worker) - worker->cpu_ns < errand->timeout_ns / WORKS;
}

/* Collects the parts of the outcome of the first request. */
static enum outcome collect_outcome(struct td_parse_queue *queue)
{
    const struct td_parse_pool *pool = queue->pool;
    struct errand *errand = errand_at(queue, 0);
    struct td_buffer *parts = &queue->parts;
    const uint64_t most = most_bytes(&errand->request);
    uint64_t until_ns = td_clock_ns() + errand->timeout_ns;
    uint64_t reported_bytes = 0;
    enum td_parse_frame type = TD_FRAME_PART;
    td_buffer_clear(parts);
    queue->worker->cpu_ns = cpu_ns_of(queue->worker);
    while (type != TD_FRAME_END) {
        if (!td_buffer_reserve(parts, TD_WIRE_PART_BYTES))
            return NO_MEMORY;
        char *to = parts->data + parts->len;
        ssize_t n = receive_frame(queue->worker->fd, &type, to, TD_WIRE_PART_BYTES);
        if (n < 0)
            return GONE;
        if (type == TD_FRAME_HELLO && !take_hello(pool, queue->worker, to, (size_t)n))
            return WRONG;
        if (type == TD_FRAME_PART || type == TD_FRAME_END)
            parts->len += (size_t)n;
        else if (type == TD_FRAME_PROGRESS && n > 0 && note_progress(errand, to, (size_t)n, &reported_bytes))
            until_ns = td_clock_ns() + errand->timeout_ns;
        if (parts->len > most)
            return WRONG;
        if (type != TD_FRAME_END && td_clock_ns() >= until_ns)
            return TOO_SLOW;
        if (queue->stop != NULL && atomic_load_explicit(queue->stop, memory_order_relaxed))
            return NOT_NEEDED;
    }
    return DONE;
}

/* Sets the error for a process that ended in the middle of a request. Returns the reason. */
static enum td_parse_end judge_end(int how, bool is_new, struct td_error *err)
{
    if (is_new) {
        (void)td_error_set(err, TD_UNAVAILABLE, "the parser's process ended when it started");
        return TD_PARSE_KILLED;
    }
    if (how == -1 || (WIFSIGNALED(how) && (WTERMSIG(how) == SIGKILL || WTERMSIG(how) == SIGXCPU))) {
        (void)td_error_set(err, TD_UNAVAILABLE,
                           "the parser's process was killed twice; perhaps the machine is short of memory");
        return TD_PARSE_KILLED;
    }
    if (!WIFSIGNALED(how)) {
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "the parser ended by itself (exit code %d)", WEXITSTATUS(how));
        return TD_PARSE_CRASHED;
    }
    if (WTERMSIG(how) == SIGSYS) {
        (void)td_error_set(err, TD_INVALID_ARGUMENT,
                           "the parser made a system call that it may not make and was stopped (signal %d)", SIGSYS);
        return TD_PARSE_FORBIDDEN;
    }
    const char *name = sigdescr_np(WTERMSIG(how));
    (void)td_error_set(err, TD_INVALID_ARGUMENT, "the parser crashed (signal %d, %s)", WTERMSIG(how),
                       name == NULL ? "unknown" : name);
    return TD_PARSE_CRASHED;
}

/* Sets the error for a process that was not done in time. waited: it has waited for most of it. */
static void refuse_slow(const struct errand *errand, bool waited, struct td_error *err)
{
    const double seconds = (double)errand->timeout_ns / 1e9;
    bool of_card = errand->request.job == TD_PARSE_CARD;
    if (!waited)
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "the parser needed more than %g s and was stopped%s", seconds,
                           of_card ? "" : " (--parse-timeout)");
    else if (of_card)
        (void)td_error_set(err, TD_UNAVAILABLE, "the parser had no time to run for %g s and was stopped; try again",
                           seconds);
    else
        (void)td_error_set(err, TD_UNAVAILABLE,
                           "the parser waited for the file's disk for %g s and was stopped (--parse-timeout); the next "
                           "scan tries again",
                           seconds);
}

/* Ends the process of a request that failed, and sets the error. Returns the reason. */
static enum td_parse_end judge_failure(struct worker *worker, const struct errand *errand, enum outcome outcome,
                                       struct td_error *err)
{
    if (outcome == GONE && !await_end(worker->pid))
        outcome = WRONG; /* a parser does not close its socket */
    bool waited = outcome == TOO_SLOW && has_waited(worker, errand);
    int how = end_process(worker);
    switch (outcome) {
    case GONE:
        return judge_end(how, worker->is_new, err);
    case TOO_SLOW:
        refuse_slow(errand, waited, err);
        return TD_PARSE_SLOW;
    case WRONG:
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "the parser's process gave an answer that cannot be right");
        return TD_PARSE_WRONG;
    case NO_MEMORY:
        (void)td_error_no_memory(err);
        return TD_PARSE_STOPPED;
    case NOT_NEEDED:
    case DONE:
        break;
    }
    (void)td_error_set(err, TD_UNAVAILABLE, "the parser was stopped, because its answer is not needed any more");
    return TD_PARSE_STOPPED;
}

/* ---- queues ------------------------------------------------------------------------------------------- */

/* Sends the process all requests that it does not have yet. Errors: TD_UNAVAILABLE. If the process has ended in the
 * meantime, collect_outcome() notices that. */
static bool send_all(struct td_parse_queue *queue, struct td_error *err)
{
    struct td_parse_pool *pool = queue->pool;
    if (queue->worker == NULL)
        queue->worker = acquire_worker(pool, err);
    struct worker *worker = queue->worker;
    if (worker == NULL)
        return false;
    for (; queue->sent < queue->count && worker->files < TD_PARSE_FILES_PER_WORKER; queue->sent++) {
        const struct errand *errand = errand_at(queue, queue->sent);
        limit_cpu(worker, errand, pool->config.timeout_ns);
        if (!send_request(worker, errand))
            break;
        if (++worker->files == TD_PARSE_FILES_PER_WORKER - FILES_BEFORE_NEXT)
            start_next(pool);
        atomic_fetch_add_explicit(&pool->file_count, 1, memory_order_relaxed);
    }
    return true;
}

/* Gives the process back. The requests that it still has are sent to another one. */
static void let_go(struct td_parse_queue *queue)
{
    if (queue->worker != NULL)
        release_worker(queue->pool, queue->worker);
    queue->worker = NULL;
    queue->sent = 0;
}

/* Removes the first request. */
static void pop_request(struct td_parse_queue *queue)
{
    queue->count--;
    queue->sent -= queue->sent > 0 ? 1 : 0;
    queue->first = (queue->first + 1) % TD_PARSE_QUEUE_MAX;
    if (queue->count == 0)
        let_go(queue);
}

/* Deals with a process that did not do the first request. Returns whether it is to be given to another one. */
static bool replace_process(struct td_parse_queue *queue, enum outcome outcome, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct errand *errand = errand_at(queue, 0);
    enum td_parse_end end = judge_failure(queue->worker, errand, outcome, &why);
    bool again = end == TD_PARSE_KILLED && !errand->was_killed;
    count_end(queue->pool, end);
    let_go(queue);
    errand->was_killed = again;
    if (again)
        td_log(TD_LOG_WARN, "the parser's process was killed while it read \"%s\", which is read again",
               errand->request.name);
    else if (end != TD_PARSE_STOPPED)
        td_log(TD_LOG_DEBUG, "the parser's process was replaced after \"%s\": %s", errand->request.name, why.message);
    return again || td_error_copy(err, &why);
}

/* Has the first request done. Returns whether the parts of its outcome are there: conclude_request() then removes it.
 */
static bool run_first(struct td_parse_queue *queue, struct td_error *err)
{
    for (;;) {
        bool is_sent = send_all(queue, err);
        enum outcome outcome = is_sent ? collect_outcome(queue) : NOT_NEEDED;
        if (outcome == DONE)
            return true;
        if (is_sent && replace_process(queue, outcome, err))
            continue;
        pop_request(queue);
        return false;
    }
}

/* Turns a limit that the parser met into a lasting refusal: the process has as much memory as it may ever have. Returns
 * whether it ran out of it. */
static bool refuse_for_good(const struct td_parse_pool *pool, const struct td_error *of_parser, struct td_error *err)
{
    struct td_error no_memory = TD_ERROR_INIT;
    (void)td_error_no_memory(&no_memory);
    if (strcmp(of_parser->message, no_memory.message) != 0) {
        (void)td_error_at(err, TD_INVALID_ARGUMENT, of_parser->pos, "%s", of_parser->message);
        return false;
    }
    (void)td_error_set(err, TD_INVALID_ARGUMENT,
                       "the parser stopped: %s; its process may take %" PRIu64 " bytes of memory (--parse-memory)",
                       of_parser->message, pool->config.memory_bytes);
    return true;
}

/* Removes the first request, which was done. Replaces the process if its answer was wrong, if it had no memory left, or
 * if it is used up. is_read: the answer was right; else *of_reading says why not. Returns whether the file is right;
 * else sets the error. */
static bool conclude_request(struct td_parse_queue *queue, const struct td_error *of_parser, bool is_read,
                             const struct td_error *of_reading, struct td_error *err)
{
    struct td_parse_pool *pool = queue->pool;
    bool is_used_up = queue->worker->files >= TD_PARSE_FILES_PER_WORKER && queue->sent == 1;
    enum td_parse_end end = is_used_up ? TD_PARSE_USED_UP : TD_PARSE_ENDS;
    if (!is_read && of_reading->code == TD_INTERNAL) {
        end = TD_PARSE_WRONG;
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "%s", of_reading->message);
    } else if (!is_read) {
        (void)td_error_copy(err, of_reading);
    } else if (of_parser->code == TD_RESOURCE_EXHAUSTED) {
        end = refuse_for_good(pool, of_parser, err) ? TD_PARSE_MEMORY : end;
    } else if (of_parser->code != TD_OK) {
        (void)td_error_copy(err, of_parser);
    }
    if (end != TD_PARSE_ENDS) {
        (void)end_process(queue->worker);
        count_end(pool, end);
        let_go(queue);
    }
    pop_request(queue);
    return is_read && of_parser->code == TD_OK;
}

static void queue_init(struct td_parse_queue *queue, struct td_parse_pool *pool)
{
    queue->pool = pool;
    queue->worker = NULL;
    queue->first = queue->sent = queue->count = 0;
    queue->stop = NULL;
    td_buffer_init(&queue->parts);
}

/* Ends the process if it still has requests, since its answers would not be read. */
static void queue_fini(struct td_parse_queue *queue)
{
    if (queue->worker != NULL) {
        (void)end_process(queue->worker);
        count_end(queue->pool, TD_PARSE_STOPPED);
        let_go(queue);
    }
    td_buffer_fini(&queue->parts);
}

struct td_parse_queue *td_parse_queue_create(struct td_parse_pool *pool)
{
    struct td_parse_queue *queue = malloc(sizeof *queue);
    if (queue != NULL)
        queue_init(queue, pool);
    return queue;
}

void td_parse_queue_destroy(struct td_parse_queue *queue)
{
    if (queue == NULL)
        return;
    queue_fini(queue);
    free(queue);
}

/* ---- files and rows ------------------------------------------------------------------------------------ */

/* Fills in a request. Returns false for a name that is too long for a file. */
static bool set_names(struct td_parse_request *request, const char *name, const char *format,
                      const struct td_limits *limits)
{
    request->max_header_bytes = limits->max_header_bytes;
    request->max_memory_bytes = limits->max_memory_bytes;
    return snprintf(request->name, sizeof request->name, "%s", name) < (int)sizeof request->name &&
           snprintf(request->format, sizeof request->format, "%s", format) < (int)sizeof request->format;
}

bool td_parse_pool_takes(enum td_file_kind kind, enum td_facts_kind facts_kind)
{
    return kind != TD_FILE_PLAIN || facts_kind != TD_FACTS_NONE;
}

bool td_parse_queue_put(struct td_parse_queue *queue, int fd, uint64_t size_bytes, const char *name,
                        const struct td_limits *limits)
{
    struct errand *errand = errand_at(queue, queue->count);
    *errand = (struct errand){.request = {.job = TD_PARSE_FILE, .size_bytes = size_bytes},
                              .fds = {fd, -1},
                              .timeout_ns = queue->pool->config.timeout_ns};
    if (!set_names(&errand->request, name, "", limits))
        return false;
    queue->count++;
    return true;
}

bool td_parse_queue_take(struct td_parse_queue *queue, struct td_file *file, const struct td_limits *limits,
                         const _Atomic bool *stop, struct td_error *err)
{
    struct td_error of_parser;
    struct td_error of_reading = TD_ERROR_INIT;
    queue->stop = stop;
    if (!run_first(queue, err))
        return false;
    struct td_wire_reader in = td_wire_reader_of(queue->parts.data, queue->parts.len);
    td_error_read(&in, &of_parser);
    bool is_read = td_content_read(&in, &of_parser, file, limits, &of_reading);
    return conclude_request(queue, &of_parser, is_read, &of_reading, err);
}

bool td_parse_pool_file(struct td_parse_pool *pool, int fd, struct td_file *file, const char *name,
                        const struct td_limits *limits, const _Atomic bool *stop, struct td_error *err)
{
    struct td_input input = td_input_descriptor(&fd, file->source.id.size_bytes);
    struct td_parse_queue queue;
    if (pool == NULL || !td_parse_pool_takes(file->kind, file->facts_kind))
        return td_file_parse(file, name, &input, limits, err);
    if (!td_lfs_pointer_check(&input, &file->is_lfs_pointer, err))
        return false;
    if (file->is_lfs_pointer)
        return td_error_set(err, TD_INVALID_ARGUMENT, TD_LFS_POINTER_REASON);
    queue_init(&queue, pool);
    bool ok = td_parse_queue_put(&queue, fd, input.size_bytes, name, limits)
                  ? td_parse_queue_take(&queue, file, limits, stop, err)
                  : td_error_set(err, TD_INVALID_ARGUMENT, "its name is too long");
    queue_fini(&queue);
    return ok;
}

/* Reads the outcome of an index of rows and ends its request. */
static bool take_rows(struct td_parse_queue *queue, const struct td_row_format *format, struct td_row_index *out,
                      struct td_error *err)
{
    const struct td_parse_request *request = &errand_at(queue, 0)->request;
    struct td_wire_reader in = td_wire_reader_of(queue->parts.data, queue->parts.len);
    struct td_error of_parser;
    struct td_error of_reading = TD_ERROR_INIT;
    td_error_read(&in, &of_parser);
    bool is_read = of_parser.code == TD_OK
                       ? td_rows_read(&in, format, request->size_bytes, request->table_bytes, out, &of_reading)
                       : td_wire_check(&in, in.p == in.end) || td_wire_refuse(&in, &of_reading);
    return conclude_request(queue, &of_parser, is_read, &of_reading, err);
}

bool td_parse_pool_rows(struct td_parse_pool *pool, int data_fd, int table_fd, const struct td_row_format *format,
                        const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct td_parse_queue queue;
    if (pool == NULL)
        return td_row_index_build(format, build, out, err);
    queue_init(&queue, pool);
    queue.stop = build->stop;
    queue.errands[0] = (struct errand){.request = {.job = TD_PARSE_ROWS,
                                                   .has_table = table_fd >= 0 ? 1 : 0,
                                                   .size_bytes = build->files->data.size_bytes,
                                                   .table_bytes = build->files->table.size_bytes},
                                       .fds = {data_fd, table_fd},
                                       .timeout_ns = pool->config.timeout_ns,
                                       .done_bytes = build->done_bytes};
    queue.count = 1;
    bool ok = (set_names(&queue.errands[0].request, build->name, format->name, build->limits) ||
               td_error_set(err, TD_INVALID_ARGUMENT, "its name is too long")) &&
              run_first(&queue, err) && take_rows(&queue, format, out, err);
    queue_fini(&queue);
    return ok;
}

/* ---- cards --------------------------------------------------------------------------------------------- */

/* Returns the descriptor of a nameless file in memory with this text; -1: TD_IO. */
static int put_into_file(struct td_text text, struct td_error *err)
{
    int fd = memfd_create("card", MFD_CLOEXEC);
    if (fd >= 0 && td_write_at(fd, text.p, text.len, 0))
        return fd;
    (void)td_error_sys(err, TD_IO, errno, "cannot hand a card to the parser's process");
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Reads the outcome of a card and ends its request. */
static bool take_card(struct td_parse_queue *queue, const struct td_card_sink *sink, bool *is_cut, struct td_error *err)
{
    struct td_wire_reader in = td_wire_reader_of(queue->parts.data, queue->parts.len);
    struct td_error of_parser;
    struct td_error of_reading = TD_ERROR_INIT;
    bool is_read = td_card_read(&in, sink, &of_parser, is_cut, &of_reading);
    return conclude_request(queue, &of_parser, is_read, &of_reading, err);
}

bool td_parse_pool_card(struct td_parse_pool *pool, struct td_text card, const struct td_card_sink *sink, bool *is_cut,
                        struct td_error *err)
{
    const struct td_limits limits = {.max_memory_bytes = TD_CARD_WIRE_BYTES};
    struct td_parse_queue queue;
    bool is_long = card.len > TD_CARD_TEXT_BYTES;
    *is_cut = false;
    if (pool == NULL) {
        *is_cut = is_long;
        return td_card_text_read(card, sink, err);
    }
    int fd = put_into_file(card, err);
    if (fd < 0)
        return false;
    uint64_t timeout_ns = pool->config.timeout_ns;
    queue_init(&queue, pool);
    queue.errands[0] = (struct errand){.request = {.job = TD_PARSE_CARD, .size_bytes = card.len},
                                       .fds = {fd, -1},
                                       .timeout_ns = timeout_ns < TD_PARSE_CARD_NS ? timeout_ns : TD_PARSE_CARD_NS};
    queue.count = 1;
    (void)set_names(&queue.errands[0].request, "README.md", "", &limits);
    bool ok = run_first(&queue, err) && take_card(&queue, sink, is_cut, err);
    *is_cut = *is_cut || is_long;
    queue_fini(&queue);
    (void)close(fd);
    return ok;
}

/* ---- the pool ------------------------------------------------------------------------------------------ */

/* Sets the error that names the layers which do not hold. */
static bool require_layers(const struct td_sandbox_layers *layers, struct td_error *err)
{
    if (has_all(layers))
        return true;
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "--sandbox required: this host does not have%s%s%s; with --sandbox best-effort the other "
                        "layers hold",
                        layers->rlimits ? "" : " rlimits", layers->landlock ? "" : " landlock",
                        layers->seccomp ? "" : " seccomp");
}

bool td_parse_pool_create(const struct td_parse_pool_config *config, struct td_parse_pool **out, struct td_error *err)
{
    struct td_parse_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return td_error_no_memory(err);
    pool->config = *config;
    if (pool->config.max_workers > TD_PARSE_WORKERS_MAX)
        pool->config.max_workers = TD_PARSE_WORKERS_MAX;
    if (pthread_mutex_init(&pool->lock, NULL) != 0 || pthread_cond_init(&pool->is_idle, NULL) != 0) {
        free(pool);
        return td_error_no_memory(err);
    }
    pool->place_count = pool->config.max_workers + 1;
    bool ok = start_process(pool, &pool->workers[0], err) &&
              (await_hello(&pool->workers[0], &pool->layers) ||
               td_error_set(err, TD_UNAVAILABLE, "the parser's process ended when it started"));
    pool->workers[0].is_new = false;
    if (!ok || (config->required && !require_layers(&pool->layers, err))) {
        td_parse_pool_destroy(pool);
        return false;
    }
    *out = pool;
    return true;
}

void td_parse_pool_destroy(struct td_parse_pool *pool)
{
    if (pool == NULL)
        return;
    for (size_t i = 0; i < pool->place_count; i++)
        if (pool->workers[i].pid != 0)
            (void)end_process(&pool->workers[i]);
    (void)pthread_cond_destroy(&pool->is_idle);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void td_parse_pool_get_status(struct td_parse_pool *pool, struct td_parse_pool_status *status)
{
    *status = (struct td_parse_pool_status){0};
    if (pool == NULL)
        return;
    status->used = true;
    status->layers = pool->layers;
    status->file_count = atomic_load_explicit(&pool->file_count, memory_order_relaxed);
    for (size_t i = 0; i < TD_PARSE_ENDS; i++)
        status->ends[i] = atomic_load_explicit(&pool->ends[i], memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < pool->place_count; i++)
        status->worker_count += pool->workers[i].is_busy || pool->workers[i].pid != 0 ? 1 : 0;
    pthread_mutex_unlock(&pool->lock);
}
