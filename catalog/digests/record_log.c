/* Plan: opening reads the file up to the first bad record, cuts the rest off, and appends from there. Rewriting writes
 * all records to a new file and renames it over the old one.
 *
 * Hard: (1) The program trusts the log, so it refuses a file that other users can write to, and follows no links. (2)
 * After a failed write or fdatasync the log is given up for this run: the kernel marks the lost pages as written, so a
 * retry could leave an unnoticed gap. */
#include "catalog/digests/record_log.h"

#include "catalog/model/state_dir.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { BYTE_ORDER_MARK = 0x01020304, HEADER_BYTES = 16, BEFORE_BYTES = 8 /* of a record, before its payload */ };

/* The file of a log. Used by the thread that has file_lock; `stored` is read by any. */
struct td_record_file {
    const struct td_record_log_kind *kind;
    size_t record_bytes;
    int dir_fd, fd, lock_fd; /* -1: none; fd is -1 also once the log was given up */
    _Atomic bool stored;     /* whether fd is open */
    uint8_t *frames;         /* room for a batch of records */
    uint8_t *payloads;       /* room for a batch of payloads, while the log is rewritten */
};

/* ---- records ------------------------------------------------------------------------------------------- */

static void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static void write_header(const struct td_record_log_kind *kind, uint8_t header[HEADER_BYTES])
{
    memcpy(header, kind->magic, sizeof kind->magic);
    put_u32(header + sizeof kind->magic, kind->version);
    put_u32(header + sizeof kind->magic + 4, BYTE_ORDER_MARK);
}

/* Writes the frame around a payload that is already in the record. */
static void write_frame(const struct td_record_file *log, uint8_t *record)
{
    size_t crc_at = log->record_bytes - 8;
    put_u32(record, (uint32_t)log->record_bytes);
    put_u32(record + 4, log->kind->type);
    put_u32(record + crc_at, (uint32_t)crc32(0, record, (uInt)crc_at));
    put_u32(record + crc_at + 4, 0);
}

/* Returns whether the record has the frame that belongs to its payload. */
static bool is_good_record(const struct td_record_file *log, const uint8_t *record)
{
    uint8_t right[TD_RECORD_LOG_MAX_PAYLOAD + TD_RECORD_LOG_FRAME_BYTES];
    memcpy(right, record, log->record_bytes);
    write_frame(log, right);
    return memcmp(right, record, log->record_bytes) == 0;
}

/* Logs the reason and stops using the file. Nothing retries: after a failed synchronisation the kernel marks the lost
 * pages as written. */
static void give_up(struct td_record_file *log, const char *action, int sys)
{
    char why[128];
    td_log(TD_LOG_WARN, "--state-dir: cannot %s: %s; %s are kept in memory only until the next start", action,
           strerror_r(sys, why, sizeof why), log->kind->what);
    (void)close(log->fd);
    log->fd = -1;
    atomic_store(&log->stored, false);
}

/* Writes `count` payloads as records to the descriptor. Returns false with errno on failure. */
static bool write_records(const struct td_record_file *log, int fd, const uint8_t *payloads, size_t count)
{
    size_t payload_bytes = log->kind->payload_bytes;
    for (size_t i = 0; i < count; i++) {
        uint8_t *record = log->frames + i * log->record_bytes;
        memcpy(record + BEFORE_BYTES, payloads + i * payload_bytes, payload_bytes);
        write_frame(log, record);
    }
    return td_write_all(fd, log->frames, count * log->record_bytes);
}

static void file_append(struct td_record_file *log, const void *payloads, size_t count)
{
    assert(count <= TD_RECORD_LOG_BATCH);
    if (log->fd < 0 || count == 0)
        return;
    if (!write_records(log, log->fd, payloads, count))
        give_up(log, "write the log", errno);
    else if (fdatasync(log->fd) != 0)
        give_up(log, "synchronise the log", errno);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Reads records up to the first bad one, and sets *good_bytes to its offset. Returns false when memory is short. */
static bool read_records(const struct td_record_file *log, FILE *file, bool (*take)(void *, const void *),
                         void *context, uint64_t *good_bytes)
{
    uint8_t header[HEADER_BYTES];
    uint8_t good_header[HEADER_BYTES];
    uint8_t record[TD_RECORD_LOG_MAX_PAYLOAD + TD_RECORD_LOG_FRAME_BYTES];
    write_header(log->kind, good_header);
    *good_bytes = 0;
    if (fread(header, sizeof header, 1, file) != 1 || memcmp(header, good_header, sizeof header) != 0)
        return true;
    *good_bytes = sizeof header;
    while (fread(record, log->record_bytes, 1, file) == 1 && is_good_record(log, record)) {
        if (!take(context, record + BEFORE_BYTES))
            return false;
        *good_bytes += log->record_bytes;
    }
    return true;
}

/* Loads the open file. Sets *sys to an errno value when it could not be read to its end. */
static bool load_records(const struct td_record_file *log, int fd, bool (*take)(void *, const void *), void *context,
                         uint64_t *good_bytes, int *sys, struct td_error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "rb");
    *sys = 0;
    if (file == NULL) {
        int why = errno;
        if (copy >= 0)
            (void)close(copy);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, why, "cannot read the log of %s", log->kind->what);
    }
    bool ok = read_records(log, file, take, context, good_bytes) || td_error_no_memory(err);
    if (ferror(file) != 0)
        *sys = errno != 0 ? errno : EIO;
    (void)fclose(file);
    return ok;
}

/* Opens the file. Sets *fd to -1 when the file does not exist, or cannot be opened, which is logged. Returns false when
 * other users can change the file. */
static bool open_file(const struct td_record_file *log, int flags, int *fd, struct stat *st, struct td_error *err)
{
    const char *name = log->kind->name;
    *fd = openat(log->dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (*fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO) {
        char why[128];
        if (errno != ENOENT)
            td_log(TD_LOG_WARN, "--state-dir: cannot open \"%s\": %s; %s are kept in memory only", name,
                   strerror_r(errno, why, sizeof why), log->kind->what);
        return true;
    }
    if (*fd >= 0 && fstat(*fd, st) == 0 && S_ISREG(st->st_mode) && td_state_is_ours_alone(st))
        return true;
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
    return td_error_set(err, TD_PERMISSION_DENIED,
                        "--state-dir: \"%s\" in it must be a file that belongs to the user that tensord "
                        "runs as (%u) and that nobody else can write; remove it",
                        name, (unsigned)geteuid());
}

/* Truncates the open file to an empty log. */
static bool begin_log(const struct td_record_file *log, int fd)
{
    uint8_t header[HEADER_BYTES];
    write_header(log->kind, header);
    return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && td_write_all(fd, header, sizeof header);
}

/* Truncates the file after the last good record, where the next record will be written. */
static bool cut_off(const struct td_record_file *log, uint64_t good_bytes)
{
    if (good_bytes == 0)
        return begin_log(log, log->fd);
    return ftruncate(log->fd, (off_t)good_bytes) == 0 && lseek(log->fd, (off_t)good_bytes, SEEK_SET) >= 0;
}

/* Opens the file, and loads it, to append after its last good record. */
static bool open_for_writing(struct td_record_file *log, bool (*take)(void *, const void *), void *context,
                             struct td_error *err)
{
    uint64_t good_bytes = 0;
    struct stat st;
    int sys;
    if (!open_file(log, O_RDWR | O_CREAT, &log->fd, &st, err))
        return false;
    if (log->fd < 0)
        return true;
    if (!load_records(log, log->fd, take, context, &good_bytes, &sys, err))
        return false;
    atomic_store(&log->stored, true);
    if (sys != 0) {
        give_up(log, "read the log", sys);
        return true;
    }
    if (good_bytes < (uint64_t)st.st_size)
        td_log(TD_LOG_WARN,
               "--state-dir: \"%s\" is damaged from byte %" PRIu64 " of %" PRIu64
               " on; what comes before is used, the rest is computed again",
               log->kind->name, good_bytes, (uint64_t)st.st_size);
    if (!cut_off(log, good_bytes))
        give_up(log, "begin the log", errno);
    return true;
}

static bool open_for_reading(const struct td_record_file *log, bool (*take)(void *, const void *), void *context,
                             struct td_error *err)
{
    uint64_t good_bytes = 0;
    struct stat st;
    int fd;
    int sys;
    if (!open_file(log, O_RDONLY, &fd, &st, err))
        return false;
    bool ok = fd < 0 || load_records(log, fd, take, context, &good_bytes, &sys, err);
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* Takes the log's lock. Returns whether this process has it, so that no other one writes to the log. */
static bool take_lock(struct td_record_file *log, const char *path)
{
    char why[128];
    const char *what = log->kind->what;
    log->lock_fd = openat(log->dir_fd, log->kind->lock_name,
                          O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (log->lock_fd >= 0 && flock(log->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (log->lock_fd >= 0 && errno == EWOULDBLOCK)
        td_log(TD_LOG_WARN, "--state-dir: \"%s\" is in use by another process; its %s are read, none are added", path,
               what);
    else
        td_log(TD_LOG_WARN,
               "--state-dir: cannot %s \"%s\": %s; its %s are read, new ones are kept in memory only until the "
               "next start",
               log->lock_fd >= 0 ? "lock" : "write to", path, strerror_r(errno, why, sizeof why), what);
    return false;
}

static void file_close(struct td_record_file *log)
{
    if (log == NULL)
        return;
    const int fds[] = {log->fd, log->lock_fd, log->dir_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    free(log->frames);
    free(log->payloads);
    free(log);
}

static struct td_record_file *create_file(const struct td_record_log_kind *kind)
{
    assert(kind->payload_bytes <= TD_RECORD_LOG_MAX_PAYLOAD);
    struct td_record_file *log = calloc(1, sizeof *log);
    if (log == NULL)
        return NULL;
    log->kind = kind;
    log->record_bytes = kind->payload_bytes + TD_RECORD_LOG_FRAME_BYTES;
    log->dir_fd = log->fd = log->lock_fd = -1;
    log->frames = calloc(TD_RECORD_LOG_BATCH, log->record_bytes);
    log->payloads = calloc(TD_RECORD_LOG_BATCH, kind->payload_bytes);
    if (log->frames != NULL && log->payloads != NULL)
        return log;
    file_close(log);
    return NULL;
}

static bool file_open(const struct td_record_log_kind *kind, const char *state_dir, const char *root,
                      enum td_record_log_mode mode, bool (*take)(void *context, const void *payload), void *context,
                      struct td_record_file **out, struct td_error *err)
{
    struct td_record_file *log = create_file(kind);
    bool writes = mode == TD_RECORD_LOG_WRITE;
    if (log == NULL)
        return td_error_no_memory(err);
    bool ok = state_dir == NULL || (td_state_dir_open(state_dir, root, writes, &log->dir_fd, err) &&
                                    (writes && take_lock(log, state_dir) ? open_for_writing(log, take, context, err)
                                                                         : open_for_reading(log, take, context, err)));
    if (!ok) {
        file_close(log);
        return false;
    }
    *out = log;
    return true;
}

/* ---- rewriting ----------------------------------------------------------------------------------------- */

/* Writes all records to a new file, and renames it over the log. Returns false with errno set on failure. */
static bool write_new_file(struct td_record_file *log, size_t (*next)(void *, void *, size_t), void *context)
{
    struct td_durable_file file;
    if (!td_durable_file_begin(&file, log->dir_fd, log->kind->name, 0600))
        return false;
    bool ok = begin_log(log, file.fd);
    for (size_t count = TD_RECORD_LOG_BATCH; ok && count == TD_RECORD_LOG_BATCH;) {
        count = next(context, log->payloads, TD_RECORD_LOG_BATCH);
        ok = write_records(log, file.fd, log->payloads, count);
    }
    int fd = td_durable_file_end(&file, ok);
    if (fd < 0)
        return false;
    (void)close(log->fd);
    log->fd = fd;
    return true;
}

static void file_rewrite(struct td_record_file *log, size_t (*next)(void *context, void *payloads, size_t most),
                         void *context)
{
    if (log->fd >= 0 && !write_new_file(log, next, context))
        give_up(log, "rewrite the log", errno);
}

/* ---- batches ------------------------------------------------------------------------------------------- */

bool td_record_log_init(struct td_record_log *log, const struct td_record_log_owner *owner)
{
    size_t batch_bytes = TD_RECORD_LOG_BATCH * owner->kind->payload_bytes;
    *log = (struct td_record_log){.owner = *owner, .batch = malloc(batch_bytes), .writing = malloc(batch_bytes)};
    if (log->batch != NULL && log->writing != NULL && pthread_mutex_init(&log->lock, NULL) == 0) {
        if (pthread_mutex_init(&log->file_lock, NULL) == 0)
            return true;
        (void)pthread_mutex_destroy(&log->lock);
    }
    free(log->batch);
    free(log->writing);
    return false;
}

bool td_record_log_open(struct td_record_log *log, const char *state_dir, const char *root,
                        enum td_record_log_mode mode, struct td_error *err)
{
    const struct td_record_log_owner *owner = &log->owner;
    return file_open(owner->kind, state_dir, root, mode, owner->take, owner->context, &log->file, err);
}

void td_record_log_fini(struct td_record_log *log)
{
    td_record_log_flush(log);
    file_close(log->file);
    (void)pthread_mutex_destroy(&log->lock);
    (void)pthread_mutex_destroy(&log->file_lock);
    free(log->batch);
    free(log->writing);
}

void td_record_log_begin_add(struct td_record_log *log)
{
    pthread_mutex_lock(&log->lock);
    while (log->batch_count == TD_RECORD_LOG_BATCH) { /* other threads add faster than the disk writes */
        pthread_mutex_unlock(&log->lock);
        td_record_log_flush(log);
        pthread_mutex_lock(&log->lock);
    }
}

void td_record_log_end_add(struct td_record_log *log, const void *payload)
{
    size_t payload_bytes = log->owner.kind->payload_bytes;
    if (payload != NULL && td_record_log_is_stored(log))
        memcpy(log->batch + log->batch_count++ * payload_bytes, payload, payload_bytes);
    bool is_due = log->batch_count == TD_RECORD_LOG_BATCH || log->is_stale;
    pthread_mutex_unlock(&log->lock);
    if (is_due)
        td_record_log_flush(log);
}

/* A position in the owner's table, while the log is rewritten. */
struct writing_place {
    struct td_record_log *log;
    uint64_t at;
};

/* Copies the next records of the table. Records that other threads add during the rewriting are in the batch. */
static size_t next_records(void *context, void *payloads, size_t most)
{
    struct writing_place *place = context;
    struct td_record_log *log = place->log;
    pthread_mutex_lock(&log->lock);
    size_t count = log->owner.next(log->owner.context, &place->at, payloads, most);
    pthread_mutex_unlock(&log->lock);
    return count;
}

void td_record_log_flush(struct td_record_log *log)
{
    struct writing_place place = {.log = log};
    pthread_mutex_lock(&log->file_lock);
    pthread_mutex_lock(&log->lock);
    size_t count = log->batch_count;
    bool is_stale = log->is_stale;
    memcpy(log->writing, log->batch, count * log->owner.kind->payload_bytes);
    log->batch_count = 0;
    log->is_stale = false;
    pthread_mutex_unlock(&log->lock);
    if (log->file != NULL && is_stale)
        file_rewrite(log->file, next_records, &place); /* the table holds the batch */
    else if (log->file != NULL)
        file_append(log->file, log->writing, count);
    pthread_mutex_unlock(&log->file_lock);
}

void td_record_log_flush_if_due(struct td_record_log *log)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t last_ns = atomic_load(&log->flushed_ns);
    if (now_ns - last_ns >= TD_NS_PER_S && atomic_compare_exchange_strong(&log->flushed_ns, &last_ns, now_ns))
        td_record_log_flush(log);
}

bool td_record_log_is_stored(const struct td_record_log *log)
{
    return log->file != NULL && atomic_load(&log->file->stored);
}
