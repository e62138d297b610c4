#include "catalog/digest_log.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const char log_name[] = "digests";
static const char new_name[] = "digests.new";
static const char lock_name[] = "lock";

enum { RECORD_TYPE_SHA256 = 1, VERSION = 1, BYTE_ORDER_MARK = 0x01020304 };

struct log_header {
    char magic[8];
    uint32_t version, byte_order;
};

static const struct log_header good_header = {
    .magic = {'t', 'd', 'i', 'g', 'e', 's', 't', 's'}, .version = VERSION, .byte_order = BYTE_ORDER_MARK};

/* As it lies in the file; without padding. */
struct record {
    uint32_t len, type;
    uint64_t device, inode, size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint8_t sum[TD_SHA256_BYTES];
    uint32_t crc, zero;
};

enum { CRC_BYTES = offsetof(struct record, crc) };

struct slot {
    struct td_file_id id;
    uint8_t sum[TD_SHA256_BYTES];
    bool used;
};

struct td_digest_log {
    pthread_mutex_t lock;
    /* the table: open addressing, at most three quarters full */
    struct slot *slots;
    size_t slot_count, used_count;
    /* the file; both -1 without one, or once it was given up */
    int dir_fd, fd, lock_fd;
    uint64_t record_count; /* in the file, overwritten ones too */
    struct record batch[TD_DIGEST_LOG_BATCH];
    size_t batch_count;
};

/* ---- the table ----------------------------------------------------------------------------------------- */

static uint64_t hash_id(const struct td_file_id *id)
{
    const uint64_t words[] = {id->device, id->inode, id->size_bytes, (uint64_t)id->mtime_ns,
                              (uint64_t)id->ctime_ns};
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    return hash;
}

/* The slot of this identity, or the free one where it belongs. There is always a free one. */
static struct slot *find_slot(struct slot *slots, size_t slot_count, const struct td_file_id *id)
{
    size_t at = (size_t)hash_id(id) & (slot_count - 1);
    while (slots[at].used && !td_file_id_equal(&slots[at].id, id))
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

static bool grow_table(struct td_digest_log *log)
{
    size_t count = log->slot_count == 0 ? 1024 : log->slot_count * 2;
    struct slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < log->slot_count; i++)
        if (log->slots[i].used)
            *find_slot(slots, count, &log->slots[i].id) = log->slots[i];
    free(log->slots);
    log->slots = slots;
    log->slot_count = count;
    return true;
}

/* False when it cannot be kept. *news tells whether it was not known, or differently. */
static bool table_put(struct td_digest_log *log, const struct td_file_id *id, const uint8_t *sum, bool *news)
{
    *news = false;
    if (log->used_count >= log->slot_count / 4 * 3 &&
        (log->used_count >= TD_DIGEST_LOG_MAX_RECORDS || !grow_table(log)))
        return false;
    struct slot *slot = find_slot(log->slots, log->slot_count, id);
    *news = !slot->used || memcmp(slot->sum, sum, TD_SHA256_BYTES) != 0;
    log->used_count += slot->used ? 0 : 1;
    slot->used = true;
    slot->id = *id;
    memcpy(slot->sum, sum, TD_SHA256_BYTES);
    return true;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static uint32_t record_crc(const struct record *record)
{
    return (uint32_t)crc32(0, (const Bytef *)record, CRC_BYTES);
}

static struct record record_of(const struct td_file_id *id, const uint8_t *sum)
{
    struct record record = {.len = sizeof record,
                            .type = RECORD_TYPE_SHA256,
                            .device = id->device,
                            .inode = id->inode,
                            .size_bytes = id->size_bytes,
                            .mtime_ns = id->mtime_ns,
                            .ctime_ns = id->ctime_ns};
    memcpy(record.sum, sum, TD_SHA256_BYTES);
    record.crc = record_crc(&record);
    return record;
}

static bool is_good_record(const struct record *record)
{
    return record->len == sizeof *record && record->type == RECORD_TYPE_SHA256 && record->zero == 0 &&
           record->crc == record_crc(record);
}

/* Says once why, and goes on without the file. Never tries again: after a failed synchronisation the kernel takes the
 * lost pages for written. */
static void give_up(struct td_digest_log *log, const char *what, int sys)
{
    char why[128];
    td_log(TD_LOG_WARN, "--state-dir: cannot %s: %s; digests are kept in memory only until the next start",
           what, strerror_r(sys, why, sizeof why));
    (void)close(log->fd);
    log->fd = -1;
}

static bool write_fully(int fd, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static void flush_batch(struct td_digest_log *log)
{
    if (log->fd >= 0 && log->batch_count > 0) {
        if (!write_fully(log->fd, log->batch, log->batch_count * sizeof *log->batch))
            give_up(log, "write the log", errno);
        else if (fdatasync(log->fd) != 0)
            give_up(log, "synchronise the log", errno);
        log->record_count += log->batch_count;
    }
    log->batch_count = 0;
}

/* Reads records up to the first bad one; *good_bytes is where that begins. */
static bool read_records(struct td_digest_log *log, FILE *file, uint64_t *good_bytes)
{
    struct log_header header;
    struct record record;
    bool news;
    *good_bytes = 0;
    if (fread(&header, sizeof header, 1, file) != 1 || memcmp(&header, &good_header, sizeof header) != 0)
        return true;
    *good_bytes = sizeof header;
    while (fread(&record, sizeof record, 1, file) == 1 && is_good_record(&record)) {
        const struct td_file_id id = {.device = record.device,
                                      .inode = record.inode,
                                      .size_bytes = record.size_bytes,
                                      .mtime_ns = record.mtime_ns,
                                      .ctime_ns = record.ctime_ns};
        if (!table_put(log, &id, record.sum, &news))
            return log->used_count >= TD_DIGEST_LOG_MAX_RECORDS;
        *good_bytes += sizeof record;
        log->record_count++;
    }
    return true;
}

/* Loads the file that is open for reading. */
static bool load(struct td_digest_log *log, int fd, uint64_t *good_bytes, struct td_error *err)
{
    int copy = dup(fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "rb");
    if (file == NULL) {
        int sys = errno;
        if (copy >= 0)
            (void)close(copy);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot read the log of digests");
    }
    bool ok = read_records(log, file, good_bytes) || td_error_no_memory(err);
    (void)fclose(file);
    return ok;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Whether the directory lies in the served root, or is it. */
static bool is_inside(const char *state_dir, const char *root)
{
    char state_real[PATH_MAX];
    char root_real[PATH_MAX];
    if (root == NULL || realpath(state_dir, state_real) == NULL || realpath(root, root_real) == NULL)
        return false;
    size_t len = strlen(root_real);
    if (len == 1)
        return true; /* "/" holds everything */
    return strncmp(state_real, root_real, len) == 0 && (state_real[len] == '/' || state_real[len] == '\0');
}

static bool open_directory(struct td_digest_log *log, const char *path, const char *root, bool create,
                           struct td_error *err)
{
    struct stat st;
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot create \"%s\"", path);
    log->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (log->dir_fd < 0 || fstat(log->dir_fd, &st) != 0)
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot open \"%s\"", path);
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return td_error_set(
            err, TD_PERMISSION_DENIED,
            "--state-dir: \"%s\" must belong to the user that tensord runs as (%u) and be writable by "
            "nobody else: whoever writes there says what files hash to",
            path, (unsigned)geteuid());
    if (is_inside(path, root))
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "--state-dir: \"%s\" lies in the served directory; choose another", path);
    return true;
}

/* Makes the open file an empty log. */
static bool begin_log(int fd)
{
    return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 &&
           write_fully(fd, &good_header, sizeof good_header);
}

/* Opens the file for appending behind its last good record. */
static bool open_for_writing(struct td_digest_log *log, struct td_error *err)
{
    uint64_t good_bytes;
    struct stat st;
    log->fd = openat(log->dir_fd, log_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (log->fd < 0 || fstat(log->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot open its file \"%s\"", log_name);
    if (!load(log, log->fd, &good_bytes, err))
        return false;
    if (good_bytes < (uint64_t)st.st_size)
        td_log(TD_LOG_WARN,
               "--state-dir: \"%s\" is damaged from byte %" PRIu64 " of %" PRIu64
               " on; what comes before is used, the rest is computed again",
               log_name, good_bytes, (uint64_t)st.st_size);
    bool ok = good_bytes == 0 ? begin_log(log->fd)
                              : ftruncate(log->fd, (off_t)good_bytes) == 0 &&
                                    lseek(log->fd, (off_t)good_bytes, SEEK_SET) >= 0;
    if (!ok)
        give_up(log, "begin the log", errno);
    return true;
}

static bool open_for_reading(struct td_digest_log *log, struct td_error *err)
{
    uint64_t good_bytes;
    int fd = openat(log->dir_fd, log_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return true;
    if (fd < 0)
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot open its file \"%s\"", log_name);
    bool ok = load(log, fd, &good_bytes, err);
    (void)close(fd);
    return ok;
}

/* Whether the directory is ours alone from now on. */
static bool take_lock(struct td_digest_log *log, const char *path)
{
    log->lock_fd =
        openat(log->dir_fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (log->lock_fd >= 0 && flock(log->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    td_log(TD_LOG_WARN,
           "--state-dir: \"%s\" is in use by another process; its digests are read, none are added", path);
    return false;
}

bool td_digest_log_open(const char *state_dir, const char *root, enum td_digest_log_mode mode,
                        struct td_digest_log **out, struct td_error *err)
{
    struct td_digest_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return td_error_no_memory(err);
    log->dir_fd = log->fd = log->lock_fd = -1;
    if (pthread_mutex_init(&log->lock, NULL) != 0 || !grow_table(log)) {
        free(log);
        return td_error_no_memory(err);
    }
    bool writes = mode == TD_DIGEST_LOG_WRITE;
    bool ok =
        state_dir == NULL ||
        (open_directory(log, state_dir, root, writes, err) &&
         (writes && take_lock(log, state_dir) ? open_for_writing(log, err) : open_for_reading(log, err)));
    if (!ok) {
        td_digest_log_close(log);
        return false;
    }
    *out = log;
    return true;
}

void td_digest_log_close(struct td_digest_log *log)
{
    if (log == NULL)
        return;
    flush_batch(log);
    const int fds[] = {log->fd, log->lock_fd, log->dir_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    (void)pthread_mutex_destroy(&log->lock);
    free(log->slots);
    free(log);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_digest_log_find(struct td_digest_log *log, const struct td_file_id *id, uint8_t sum[TD_SHA256_BYTES])
{
    pthread_mutex_lock(&log->lock);
    const struct slot *slot = find_slot(log->slots, log->slot_count, id);
    bool found = slot->used;
    if (found)
        memcpy(sum, slot->sum, TD_SHA256_BYTES);
    pthread_mutex_unlock(&log->lock);
    return found;
}

void td_digest_log_add(struct td_digest_log *log, const struct td_file_id *id,
                       const uint8_t sum[TD_SHA256_BYTES])
{
    bool news;
    pthread_mutex_lock(&log->lock);
    if (table_put(log, id, sum, &news) && news && log->fd >= 0) {
        log->batch[log->batch_count++] = record_of(id, sum);
        if (log->batch_count == TD_DIGEST_LOG_BATCH)
            flush_batch(log);
    }
    pthread_mutex_unlock(&log->lock);
}

void td_digest_log_flush(struct td_digest_log *log)
{
    pthread_mutex_lock(&log->lock);
    flush_batch(log);
    pthread_mutex_unlock(&log->lock);
}

size_t td_digest_log_count(struct td_digest_log *log)
{
    pthread_mutex_lock(&log->lock);
    size_t count = log->used_count;
    pthread_mutex_unlock(&log->lock);
    return count;
}

bool td_digest_log_is_stored(struct td_digest_log *log)
{
    pthread_mutex_lock(&log->lock);
    bool stored = log->fd >= 0;
    pthread_mutex_unlock(&log->lock);
    return stored;
}

/* All of the table as a log of its own, in place of the old one. errno tells why not. */
static bool write_anew(struct td_digest_log *log)
{
    int fd = openat(log->dir_fd, new_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool ok = begin_log(fd);
    for (size_t i = 0; ok && i < log->slot_count; i++) {
        if (log->slots[i].used)
            log->batch[log->batch_count++] = record_of(&log->slots[i].id, log->slots[i].sum);
        if (log->batch_count == TD_DIGEST_LOG_BATCH || i + 1 == log->slot_count) {
            ok = write_fully(fd, log->batch, log->batch_count * sizeof *log->batch);
            log->batch_count = 0;
        }
    }
    ok = ok && fsync(fd) == 0 && renameat(log->dir_fd, new_name, log->dir_fd, log_name) == 0 &&
         fsync(log->dir_fd) == 0;
    if (!ok) {
        int sys = errno;
        (void)close(fd);
        errno = sys;
        return false;
    }
    (void)close(log->fd);
    log->fd = fd;
    log->record_count = log->used_count;
    return true;
}

/* A table of those that are kept. */
static bool sift(struct td_digest_log *log, bool (*keep)(void *context, const struct td_file_id *id),
                 void *context)
{
    struct slot *slots = calloc(log->slot_count, sizeof *slots);
    if (slots == NULL)
        return false;
    log->used_count = 0;
    for (size_t i = 0; i < log->slot_count; i++) {
        if (!log->slots[i].used || !keep(context, &log->slots[i].id))
            continue;
        *find_slot(slots, log->slot_count, &log->slots[i].id) = log->slots[i];
        log->used_count++;
    }
    free(log->slots);
    log->slots = slots;
    return true;
}

void td_digest_log_compact(struct td_digest_log *log,
                           bool (*keep)(void *context, const struct td_file_id *id), void *context)
{
    pthread_mutex_lock(&log->lock);
    flush_batch(log);
    if (sift(log, keep, context) && log->fd >= 0 && !write_anew(log))
        give_up(log, "write the log anew", errno);
    log->batch_count = 0;
    pthread_mutex_unlock(&log->lock);
}
