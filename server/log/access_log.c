#include "server/log/access_log.h"

#include "core/buffer.h"
#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUE_BYTES = 1024 * 1024, PIPE_PIECE_BYTES = 4096 };

/* The writer collects lines for COLLECT_NS, or until BATCH_BYTES are queued. When it was woken for nearly every line,
 * it cost a seventh of the rate of small answers (docs/performance.md). A batch stays in a processor's cache. */
enum { BATCH_BYTES = 64 * 1024 };
#define COLLECT_NS UINT64_C(25000000)

struct td_access_log {
    int fd;     /* keeps its number when the file is reopened */
    char *path; /* of the file; NULL: standard output, or off */
    _Atomic bool regular_file;
    _Atomic uint64_t *dropped;
    pthread_t writer;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct td_buffer queued, writing; /* queued is under the lock; writing belongs to the writer */
    _Atomic bool stop;
    _Atomic uint64_t stop_ns; /* when stop was set */
};

/* Returns whether the log was stopped more than 1 s ago. */
static bool past_end(const struct td_access_log *log)
{
    return atomic_load(&log->stop) && td_clock_ns() > atomic_load(&log->stop_ns) + UINT64_C(1000000000);
}

/* Writes the buffer, waiting at most 0.2 s at a time, so that the log can be stopped while its reader does not read.
 * Counts the lines that remain unwritten as dropped. */
static void write_out(struct td_access_log *log)
{
    const char *p = log->writing.data;
    size_t left = log->writing.len;
    while (left > 0 && !past_end(log)) {
        struct pollfd ready = {.fd = log->fd, .events = POLLOUT};
        int n = poll(&ready, 1, 200);
        if (n == 0 || (n < 0 && errno == EINTR))
            continue;
        if (n < 0)
            break;
        /* poll promises room for PIPE_BUF bytes in a pipe, and no more */
        size_t piece = atomic_load(&log->regular_file) || left < PIPE_PIECE_BYTES ? left : PIPE_PIECE_BYTES;
        ssize_t written = write(log->fd, p, piece);
        if (written < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (written < 0)
            break;
        p += written;
        left -= (size_t)written;
    }
    for (size_t i = 0; i < left; i++)
        if (p[i] == '\n')
            atomic_fetch_add(log->dropped, 1);
    td_buffer_clear(&log->writing);
}

/* Waits until there are lines to write, or the log is stopped. The caller holds the lock. */
static void wait_for_lines(struct td_access_log *log)
{
    while (log->queued.len == 0 && !atomic_load(&log->stop))
        pthread_cond_wait(&log->wake, &log->lock);
    struct timespec until = td_clock_timespec(td_clock_ns() + COLLECT_NS);
    int status = 0;
    while (log->queued.len < BATCH_BYTES && !atomic_load(&log->stop) && status == 0)
        status = pthread_cond_timedwait(&log->wake, &log->lock, &until);
}

static void *writer_main(void *argument)
{
    struct td_access_log *log = argument;
    for (;;) {
        pthread_mutex_lock(&log->lock);
        wait_for_lines(log);
        struct td_buffer full = log->queued;
        log->queued = log->writing;
        log->writing = full;
        bool done = full.len == 0;
        pthread_mutex_unlock(&log->lock);
        if (done)
            return NULL;
        write_out(log);
    }
}

/* Opens a log's file, or returns -1. flags: further ones of open(2). */
static int open_file(const char *path, int flags, struct stat *st, struct td_error *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | flags, 0640);
    if (fd >= 0 && fstat(fd, st) == 0)
        return fd;
    (void)td_error_sys(err, TD_IO, errno, "cannot open the access log \"%s\"", path);
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Opens standard output, for "-", or the log's file. */
static bool open_target(struct td_access_log *log, const char *target, struct td_error *err)
{
    struct stat st;
    if (strcmp(target, "-") == 0) {
        log->fd = STDOUT_FILENO;
        if (fstat(log->fd, &st) != 0)
            return td_error_sys(err, TD_IO, errno, "cannot write the access log to standard output");
    } else {
        log->path = strdup(target);
        if (log->path == NULL)
            return td_error_no_memory(err);
        log->fd = open_file(target, 0, &st, err);
        if (log->fd < 0)
            return false;
    }
    atomic_store(&log->regular_file, S_ISREG(st.st_mode));
    return true;
}

static void free_log(struct td_access_log *log)
{
    if (log->path != NULL && log->fd >= 0)
        (void)close(log->fd);
    td_buffer_fini(&log->queued);
    td_buffer_fini(&log->writing);
    free(log->path);
    free(log);
}

bool td_access_log_create(const char *target, _Atomic uint64_t *dropped, struct td_access_log **out,
                          struct td_error *err)
{
    struct td_access_log *log = calloc(1, sizeof *log);
    *out = NULL;
    if (log == NULL)
        return td_error_no_memory(err);
    log->fd = -1;
    log->dropped = dropped;
    *out = log;
    if (strcmp(target, "off") == 0)
        return true;
    bool ok = open_target(log, target, err);
    if (ok && (pthread_mutex_init(&log->lock, NULL) != 0 || !td_clock_condition_init(&log->wake) ||
               pthread_create(&log->writer, NULL, writer_main, log) != 0))
        ok = td_error_set(err, TD_RESOURCE_EXHAUSTED, "cannot start the access log's thread");
    if (!ok) {
        free_log(log);
        *out = NULL;
    }
    return ok;
}

bool td_access_log_reopen(struct td_access_log *log, bool *reopened, struct td_error *err)
{
    struct stat st;
    *reopened = false;
    if (log->path == NULL)
        return true;
    int fd = open_file(log->path, O_NONBLOCK, &st, err); /* never waits for the reader of a named pipe */
    if (fd < 0)
        return false;
    /* dup3 does not wait for the writer: a write that has begun ends in the old file, the next one goes to the new
     * file. */
    *reopened = dup3(fd, log->fd, O_CLOEXEC) >= 0;
    if (*reopened)
        atomic_store(&log->regular_file, S_ISREG(st.st_mode));
    else
        (void)td_error_sys(err, TD_IO, errno, "cannot open the access log \"%s\" again", log->path);
    (void)close(fd);
    return *reopened;
}

void td_access_log_destroy(struct td_access_log *log)
{
    if (log == NULL)
        return;
    if (td_access_log_is_on(log)) {
        pthread_mutex_lock(&log->lock);
        atomic_store(&log->stop_ns, td_clock_ns());
        atomic_store(&log->stop, true);
        pthread_cond_signal(&log->wake);
        pthread_mutex_unlock(&log->lock);
        (void)pthread_join(log->writer, NULL);
        (void)pthread_cond_destroy(&log->wake);
        (void)pthread_mutex_destroy(&log->lock);
    }
    free_log(log);
}

bool td_access_log_is_on(const struct td_access_log *log)
{
    return log->fd >= 0;
}

void td_access_log_write(struct td_access_log *log, const char *line, size_t len)
{
    if (!td_access_log_is_on(log))
        return;
    bool wake = false;
    pthread_mutex_lock(&log->lock);
    size_t before = log->queued.len;
    bool room = before + len <= QUEUE_BYTES && td_buffer_reserve(&log->queued, len);
    if (room) {
        td_buffer_append(&log->queued, line, len);
        wake = before == 0 || (before < BATCH_BYTES && before + len >= BATCH_BYTES);
    } else {
        log->queued.failed = false; /* out of memory: later lines may succeed */
    }
    pthread_mutex_unlock(&log->lock);
    if (wake)
        pthread_cond_signal(&log->wake);
    if (!room)
        atomic_fetch_add(log->dropped, 1);
}
