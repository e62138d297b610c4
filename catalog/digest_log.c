/* Plan: a hash table (open addressing, by identity) answers every look-up. A new digest goes into the table and into a
 * batch in memory; a full batch, or a flush, is appended to the file and synchronised. Opening reads the file up to the
 * first bad record, cuts the rest off, and appends from there. Compacting writes the whole table to a new file and
 * renames it over the old one.
 *
 * Hard: (1) two locks, so that a look-up never waits for a disk: `lock` guards the table and the batch, `file_lock` the
 * descriptors and the records that are being written; file_lock is taken first. (2) The log decides what files hash to,
 * so a file that others can write to is refused, and links are not followed. (3) After a failed write or fdatasync the
 * log is given up for this run: the kernel takes the lost pages for written, so trying again could leave a gap
 * unnoticed. */
#include "catalog/digest_log.h"

#include "catalog/state_dir.h"
#include "core/log.h"
#include "core/write_all.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
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

/* One record as it lies in the file; it has no padding. */
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

/* Two locks, so that a look-up never waits for a disk; file_lock is taken first. */
struct td_digest_log {
    pthread_mutex_t lock;
    /* the table: open addressing, at most three quarters full */
    struct slot *slots;
    size_t slot_count, used_count;
    struct record batch[TD_DIGEST_LOG_BATCH]; /* records that the file lacks */
    size_t batch_count;

    pthread_mutex_t file_lock;
    int dir_fd, fd, lock_fd; /* -1: none; fd is -1 also once the log was given up */
    struct record writing[TD_DIGEST_LOG_BATCH];
    _Atomic bool stored; /* whether fd is open */
};

/* ---- the table ----------------------------------------------------------------------------------------- */

static uint64_t hash_id(const struct td_file_id *id)
{
    const uint64_t words[] = {id->device, id->inode, id->size_bytes, (uint64_t)id->mtime_ns, (uint64_t)id->ctime_ns};
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Returns the slot of this identity, or the free one where it belongs. There is always a free one. */
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

/* Puts a digest into the table. Returns false when there is no room. Sets *news to whether the identity was unknown, or
 * had another digest. */
static bool table_put(struct td_digest_log *log, const struct td_file_id *id, const uint8_t *sum, bool *news)
{
    *news = false;
    struct slot *slot = find_slot(log->slots, log->slot_count, id);
    if (!slot->used) {
        if (log->used_count >= TD_DIGEST_LOG_MAX_RECORDS)
            return false;
        if (log->used_count >= log->slot_count / 4 * 3) {
            if (!grow_table(log))
                return false;
            slot = find_slot(log->slots, log->slot_count, id);
        }
        log->used_count++;
    }
    *news = !slot->used || memcmp(slot->sum, sum, TD_SHA256_BYTES) != 0;
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

/* Logs the reason once, and goes on without the file. Never tries again: after a failed synchronisation the kernel
 * takes the lost pages for written. */
static void give_up(struct td_digest_log *log, const char *action, int sys)
{
    char why[128];
    td_log(TD_LOG_WARN, "--state-dir: cannot %s: %s; digests are kept in memory only until the next start", action,
           strerror_r(sys, why, sizeof why));
    (void)close(log->fd);
    log->fd = -1;
    atomic_store(&log->stored, false);
}

/* Appends the first `count` records of log->writing. Under file_lock. */
static void append(struct td_digest_log *log, size_t count)
{
    if (!td_write_all(log->fd, log->writing, count * sizeof *log->writing))
        give_up(log, "write the log", errno);
    else if (fdatasync(log->fd) != 0)
        give_up(log, "synchronise the log", errno);
}

/* Reads records up to the first bad one; sets *good_bytes to where that begins. Returns false for want of memory. */
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
        if (!table_put(log, &id, record.sum, &news) && log->used_count < TD_DIGEST_LOG_MAX_RECORDS)
            return false;
        *good_bytes += sizeof record;
    }
    return true;
}

/* Loads the file that is open for reading. Sets *sys to an errno value when it could not be read to its end. */
static bool load(struct td_digest_log *log, int fd, uint64_t *good_bytes, int *sys, struct td_error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "rb");
    *sys = 0;
    if (file == NULL) {
        int why = errno;
        if (copy >= 0)
            (void)close(copy);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, why, "cannot read the log of digests");
    }
    bool ok = read_records(log, file, good_bytes) || td_error_no_memory(err);
    if (ferror(file) != 0)
        *sys = errno != 0 ? errno : EIO;
    (void)fclose(file);
    return ok;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Opens the file. *fd stays -1 when there is none, or when it cannot be opened, which is logged. Returns false when the
 * file is not to be trusted. */
static bool open_file(const struct td_digest_log *log, int flags, int *fd, struct stat *st, struct td_error *err)
{
    *fd = openat(log->dir_fd, log_name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (*fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO) {
        char why[128];
        if (errno != ENOENT)
            td_log(TD_LOG_WARN, "--state-dir: cannot open \"%s\": %s; digests are kept in memory only", log_name,
                   strerror_r(errno, why, sizeof why));
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
                        log_name, (unsigned)geteuid());
}

/* Makes the open file an empty log. */
static bool begin_log(int fd)
{
    return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && td_write_all(fd, &good_header, sizeof good_header);
}

/* Cuts off everything behind the last good record, where writing then goes on. */
static bool cut_off(int fd, uint64_t good_bytes)
{
    if (good_bytes == 0)
        return begin_log(fd);
    return ftruncate(fd, (off_t)good_bytes) == 0 && lseek(fd, (off_t)good_bytes, SEEK_SET) >= 0;
}

/* Opens the file for appending behind its last good record. */
static bool open_for_writing(struct td_digest_log *log, struct td_error *err)
{
    uint64_t good_bytes = 0;
    struct stat st;
    int sys;
    if (!open_file(log, O_RDWR | O_CREAT, &log->fd, &st, err))
        return false;
    if (log->fd < 0)
        return true;
    if (!load(log, log->fd, &good_bytes, &sys, err))
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
               log_name, good_bytes, (uint64_t)st.st_size);
    if (!cut_off(log->fd, good_bytes))
        give_up(log, "begin the log", errno);
    return true;
}

static bool open_for_reading(struct td_digest_log *log, struct td_error *err)
{
    uint64_t good_bytes = 0;
    struct stat st;
    int fd;
    int sys;
    if (!open_file(log, O_RDONLY, &fd, &st, err))
        return false;
    bool ok = fd < 0 || load(log, fd, &good_bytes, &sys, err);
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* Takes the lock of the directory. Returns whether this process alone writes there from now on. */
static bool take_lock(struct td_digest_log *log, const char *path)
{
    char why[128];
    log->lock_fd =
        openat(log->dir_fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (log->lock_fd >= 0 && flock(log->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (log->lock_fd >= 0 && errno == EWOULDBLOCK)
        td_log(TD_LOG_WARN, "--state-dir: \"%s\" is in use by another process; its digests are read, none are added",
               path);
    else
        td_log(TD_LOG_WARN,
               "--state-dir: cannot %s \"%s\": %s; its digests are read, new ones are kept in memory only until the "
               "next start",
               log->lock_fd >= 0 ? "lock" : "write to", path, strerror_r(errno, why, sizeof why));
    return false;
}

bool td_digest_log_open(const char *state_dir, const char *root, enum td_digest_log_mode mode,
                        struct td_digest_log **out, struct td_error *err)
{
    struct td_digest_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return td_error_no_memory(err);
    log->dir_fd = log->fd = log->lock_fd = -1;
    if (pthread_mutex_init(&log->lock, NULL) != 0 || pthread_mutex_init(&log->file_lock, NULL) != 0 ||
        !grow_table(log)) {
        free(log);
        return td_error_no_memory(err);
    }
    bool writes = mode == TD_DIGEST_LOG_WRITE;
    bool ok = state_dir == NULL ||
              (td_state_dir_open(state_dir, root, writes, &log->dir_fd, err) &&
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
    td_digest_log_flush(log);
    const int fds[] = {log->fd, log->lock_fd, log->dir_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    (void)pthread_mutex_destroy(&log->lock);
    (void)pthread_mutex_destroy(&log->file_lock);
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

void td_digest_log_add(struct td_digest_log *log, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES])
{
    bool news;
    pthread_mutex_lock(&log->lock);
    while (log->batch_count == TD_DIGEST_LOG_BATCH) { /* other threads hash faster than the disk writes */
        pthread_mutex_unlock(&log->lock);
        td_digest_log_flush(log);
        pthread_mutex_lock(&log->lock);
    }
    if (table_put(log, id, sum, &news) && news && atomic_load(&log->stored))
        log->batch[log->batch_count++] = record_of(id, sum);
    bool full = log->batch_count == TD_DIGEST_LOG_BATCH;
    pthread_mutex_unlock(&log->lock);
    if (full)
        td_digest_log_flush(log);
}

void td_digest_log_flush(struct td_digest_log *log)
{
    pthread_mutex_lock(&log->file_lock);
    pthread_mutex_lock(&log->lock);
    size_t count = log->batch_count;
    memcpy(log->writing, log->batch, count * sizeof *log->batch);
    log->batch_count = 0;
    pthread_mutex_unlock(&log->lock);
    if (count > 0 && log->fd >= 0)
        append(log, count);
    pthread_mutex_unlock(&log->file_lock);
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
    return atomic_load(&log->stored);
}

/* Copies the next records of the table, from slot *at on, to log->writing. Returns their number, at most
 * TD_DIGEST_LOG_BATCH. */
static size_t next_records(struct td_digest_log *log, size_t *at)
{
    size_t count = 0;
    pthread_mutex_lock(&log->lock);
    for (; *at < log->slot_count && count < TD_DIGEST_LOG_BATCH; ++*at)
        if (log->slots[*at].used)
            log->writing[count++] = record_of(&log->slots[*at].id, log->slots[*at].sum);
    pthread_mutex_unlock(&log->lock);
    return count;
}

/* Writes the whole table to a new log, and puts that in place of the old one. Digests that are added meanwhile are in
 * the batch. If the table grows meanwhile, records can be left out; they are computed again after a restart. Returns
 * false with errno set on failure. */
static bool write_anew(struct td_digest_log *log)
{
    int fd = openat(log->dir_fd, new_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool ok = begin_log(fd);
    size_t at = 0;
    for (size_t count = TD_DIGEST_LOG_BATCH; ok && count == TD_DIGEST_LOG_BATCH;) {
        count = next_records(log, &at);
        ok = td_write_all(fd, log->writing, count * sizeof *log->writing);
    }
    ok = ok && fsync(fd) == 0 && renameat(log->dir_fd, new_name, log->dir_fd, log_name) == 0 && fsync(log->dir_fd) == 0;
    if (!ok) {
        int sys = errno;
        (void)close(fd);
        (void)unlinkat(log->dir_fd, new_name, 0);
        errno = sys;
        return false;
    }
    (void)close(log->fd);
    log->fd = fd;
    return true;
}

/* Replaces the table by one of the identities for which `keep` returns true. Returns false for want of memory. */
static bool sift(struct td_digest_log *log, bool (*keep)(void *context, const struct td_file_id *id), void *context)
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

void td_digest_log_compact(struct td_digest_log *log, bool (*keep)(void *context, const struct td_file_id *id),
                           void *context)
{
    pthread_mutex_lock(&log->file_lock);
    pthread_mutex_lock(&log->lock);
    bool sifted = sift(log, keep, context);
    if (sifted)
        log->batch_count = 0; /* the table holds these digests */
    pthread_mutex_unlock(&log->lock);
    if (sifted && log->fd >= 0 && !write_anew(log))
        give_up(log, "write the log anew", errno);
    pthread_mutex_unlock(&log->file_lock);
}
