#include "server/log/access_log.h"

#include "core/json/json.h"
#include "core/utf8.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
    return atomic_load(&log->stop) && td_clock_ns() > atomic_load(&log->stop_ns) + TD_NS_PER_S;
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

/* ---- lines --------------------------------------------------------------------------------------------- */

/* FIRST_BYTES: first size of the buffer, enough for nearly every line. KEPT_BYTES: a larger buffer is freed after its
 * line. SHOWN_BYTES: most bytes of an escaped text, with its NUL. */
enum { FIRST_BYTES = 512, KEPT_BYTES = 1024, SHOWN_BYTES = 1024 };

void td_access_lines_init(struct td_access_lines *lines, const struct in6_addr *client, enum td_log_form form)
{
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(client);
    const void *from = is_ipv4 ? client->s6_addr + 12 : client->s6_addr;
    *lines = (struct td_access_lines){.form = form};
    td_buffer_init(&lines->line);
    if (inet_ntop(is_ipv4 ? AF_INET : AF_INET6, from, lines->client, sizeof lines->client) == NULL)
        memcpy(lines->client, "?", 2);
    lines->client_len = strlen(lines->client);
}

void td_access_lines_fini(struct td_access_lines *lines)
{
    td_buffer_fini(&lines->line);
}

/* Sets `time` to the text of a moment. Within one second only the milliseconds change, which are the three digits
 * before the Z at the end. */
static void set_time(struct td_access_lines *lines, struct td_wall wall)
{
    if (lines->time_len == 0 || lines->time_second != wall.seconds) {
        lines->time_len = td_wall_rfc3339(wall, lines->time, sizeof lines->time);
        lines->time_second = wall.seconds;
        return;
    }
    uint32_t ms = wall.nanoseconds / 1000000U;
    char *digits = lines->time + lines->time_len - 4;
    digits[0] = (char)('0' + ms / 100);
    digits[1] = (char)('0' + ms / 10 % 10);
    digits[2] = (char)('0' + ms % 10);
}

/* Appends a time in seconds with six decimals, rounded to the nearest microsecond. */
static void append_seconds(struct td_buffer *line, uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 >= 500 ? 1 : 0);
    char decimals[7] = ".";
    td_buffer_u64(line, us / 1000000);
    us %= 1000000;
    for (size_t i = sizeof decimals - 1; i > 0; i--, us /= 10)
        decimals[i] = (char)('0' + us % 10);
    td_buffer_append(line, decimals, sizeof decimals);
}

static void append_escaped(struct td_buffer *line, struct td_text value)
{
    char shown[SHOWN_BYTES];
    td_utf8_escape(value, shown, sizeof shown);
    td_json_write_cstring(line, shown);
}

/* Appends a text in quotes. Nearly all are plain and are copied as they are. */
static void append_text(struct td_buffer *line, struct td_text value)
{
    if (value.len >= SHOWN_BYTES || !td_json_is_plain(value)) {
        append_escaped(line, value);
        return;
    }
    td_buffer_putc(line, '"');
    td_buffer_append(line, value.p, value.len);
    td_buffer_putc(line, '"');
}

/* The members of a line, in their order. */
enum key {
    KEY_TIME,
    KEY_CLIENT,
    KEY_METHOD,
    KEY_TARGET,
    KEY_STATUS,
    KEY_SENT,
    KEY_LENGTH,
    KEY_SECONDS,
    KEY_ROUTE,
    KEY_RECEIVED,
    KEY_WAITED,
    KEY_CUT,
    KEY_RANGE,
    KEY_AGENT,
    KEY_TOKEN,
    KEY_REQUEST_ID,
    KEY_TRACE,
    KEY_PARENT,
    KEY_COUNT
};

/* The text before the value of each member. */
#define KEYS(first, before, after)                                                                             \
    {                                                                                                          \
        TD_TEXT(first "time" after), TD_TEXT(before "client" after), TD_TEXT(before "method" after),           \
            TD_TEXT(before "target" after), TD_TEXT(before "status" after), TD_TEXT(before "sent" after),      \
            TD_TEXT(before "length" after), TD_TEXT(before "seconds" after), TD_TEXT(before "route" after),    \
            TD_TEXT(before "received" after), TD_TEXT(before "waited" after), TD_TEXT(before "cut" after),     \
            TD_TEXT(before "range" after), TD_TEXT(before "agent" after), TD_TEXT(before "token" after),       \
            TD_TEXT(before "request_id" after), TD_TEXT(before "trace" after), TD_TEXT(before "parent" after), \
    }
static const struct td_text keys[2][KEY_COUNT] = {
    [TD_LOG_TEXT] = KEYS("", " ", "="),
    [TD_LOG_JSON] = KEYS("{\"", ",\"", "\":"),
};

static void append_key(struct td_access_lines *lines, enum key key)
{
    td_buffer_append(&lines->line, keys[lines->form][key].p, keys[lines->form][key].len);
}

/* Appends a member whose value is a word without blanks, quotes and backslashes: in quotes in JSON alone. */
static void append_word(struct td_access_lines *lines, enum key key, struct td_text word)
{
    append_key(lines, key);
    if (lines->form == TD_LOG_JSON)
        td_buffer_putc(&lines->line, '"');
    td_buffer_append(&lines->line, word.p, word.len);
    if (lines->form == TD_LOG_JSON)
        td_buffer_putc(&lines->line, '"');
}

static void append_client_text(struct td_access_lines *lines, enum key key, struct td_text value)
{
    append_key(lines, key);
    append_text(&lines->line, value);
}

static void append_number(struct td_access_lines *lines, enum key key, uint64_t number)
{
    append_key(lines, key);
    td_buffer_u64(&lines->line, number);
}

struct td_text td_access_lines_write(struct td_access_lines *lines, const struct td_access_event *event)
{
    struct td_buffer *line = &lines->line;
    if (line->capacity > KEPT_BYTES)
        td_buffer_fini(line);
    td_buffer_clear(line);
    (void)td_buffer_reserve(line, FIRST_BYTES);
    set_time(lines, event->end);
    append_word(lines, KEY_TIME, td_text_n(lines->time, lines->time_len));
    append_word(lines, KEY_CLIENT, td_text_n(lines->client, lines->client_len));
    append_client_text(lines, KEY_METHOD, event->method);
    append_client_text(lines, KEY_TARGET, event->target);
    append_number(lines, KEY_STATUS, (uint64_t)event->status);
    append_number(lines, KEY_SENT, event->sent_bytes);
    append_number(lines, KEY_LENGTH, event->length_bytes);
    append_key(lines, KEY_SECONDS);
    append_seconds(line, event->took_ns);
    append_word(lines, KEY_ROUTE, td_text_of(event->route));
    if (event->is_upload)
        append_number(lines, KEY_RECEIVED, event->received_bytes);
    if (event->waited_ns > 0) {
        append_key(lines, KEY_WAITED);
        append_seconds(line, event->waited_ns);
    }
    if (event->cut != NULL)
        append_word(lines, KEY_CUT, td_text_of(event->cut));
    if (event->range != NULL)
        append_client_text(lines, KEY_RANGE, *event->range);
    if (event->agent != NULL)
        append_client_text(lines, KEY_AGENT, *event->agent);
    if (event->token[0] != '\0')
        append_word(lines, KEY_TOKEN, td_text_of(event->token));
    if (event->request_id[0] != '\0')
        append_client_text(lines, KEY_REQUEST_ID, td_text_of(event->request_id));
    if (event->trace != NULL) {
        append_word(lines, KEY_TRACE, event->trace->trace_id);
        append_word(lines, KEY_PARENT, event->trace->parent_id);
    }
    if (lines->form == TD_LOG_JSON)
        td_buffer_putc(line, '}');
    td_buffer_putc(line, '\n');
    return line->failed ? td_text_n("", 0) : td_buffer_text(line);
}
