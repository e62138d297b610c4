/* Plan: the records of a table are an array; each index is a hash table (open addressing) of numbers of records plus 1.
 * Opening a log reads the file up to the first bad record, cuts the rest off, and appends from there. Rewriting writes
 * all records to a new file and renames it over the old one.
 *
 * What is hard: (1) The program trusts the log, so it refuses a file that other users can write to, and follows no
 * links. (2) After a failed write or fdatasync the log is given up for this run: the kernel marks the lost pages as
 * written, so a retry could leave an unnoticed gap. */
#include "catalog/digests/record_log.h"

#include "catalog/model/state_dir.h"
#include "core/array.h"
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

enum { NONE = 0, FIRST_SLOTS = 256 }; /* of an index of a table */

enum { BYTE_ORDER_MARK = 0x01020304, HEADER_BYTES = 16, BEFORE_BYTES = 8 /* of a record, before its payload */ };

/* ---- tables -------------------------------------------------------------------------------------------- */

static uint8_t *record_at(const struct td_record_table *table, size_t i)
{
    return table->records + i * table->record_bytes;
}

static uint64_t hash_part(const uint8_t *bytes, size_t len)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i += sizeof hash) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Returns the slot of these bytes, or the free one where they belong. There is always a free one. */
static uint32_t *find_slot(const struct td_record_table *table, size_t index, const uint8_t *bytes)
{
    const struct td_record_part *part = &table->parts[index];
    uint32_t *slots = table->slots[index];
    size_t at = (size_t)hash_part(bytes, part->bytes) & (table->slot_count - 1);
    while (slots[at] != NONE && memcmp(record_at(table, slots[at] - 1) + part->off, bytes, part->bytes) != 0)
        at = (at + 1) & (table->slot_count - 1);
    return &slots[at];
}

/* Adds record i to all indexes. */
static void index_record(struct td_record_table *table, size_t i)
{
    uint8_t *record = record_at(table, i);
    for (size_t index = 0; index < table->index_count; index++) {
        const struct td_record_part *part = &table->parts[index];
        uint32_t *slot = find_slot(table, index, record + part->off);
        if (part->link_off != 0)
            memcpy(record + part->link_off, slot, sizeof *slot);
        *slot = (uint32_t)i + 1;
    }
}

static void index_all(struct td_record_table *table)
{
    for (size_t index = 0; index < table->index_count; index++)
        memset(table->slots[index], 0, table->slot_count * sizeof(uint32_t));
    for (size_t i = 0; i < table->count; i++)
        index_record(table, i);
}

/* Gives all indexes this number of slots. */
static bool set_slots(struct td_record_table *table, size_t slot_count)
{
    uint32_t *slots[TD_RECORD_TABLE_INDEXES] = {NULL};
    bool ok = true;
    for (size_t index = 0; index < table->index_count; index++) {
        slots[index] = calloc(slot_count, sizeof(uint32_t));
        ok = ok && slots[index] != NULL;
    }
    for (size_t index = 0; index < table->index_count; index++) {
        free(ok ? table->slots[index] : slots[index]);
        table->slots[index] = ok ? slots[index] : table->slots[index];
    }
    if (!ok)
        return false;
    table->slot_count = slot_count;
    index_all(table);
    return true;
}

bool td_record_table_init(struct td_record_table *table)
{
    return set_slots(table, FIRST_SLOTS);
}

void td_record_table_fini(struct td_record_table *table)
{
    free(table->records);
    for (size_t index = 0; index < table->index_count; index++)
        free(table->slots[index]);
}

void *td_record_table_find(const struct td_record_table *table, size_t index, const void *bytes)
{
    uint32_t number = *find_slot(table, index, bytes);
    return number == NONE ? NULL : record_at(table, number - 1);
}

void *td_record_table_before(const struct td_record_table *table, size_t index, const void *record)
{
    uint32_t number;
    memcpy(&number, (const uint8_t *)record + table->parts[index].link_off, sizeof number);
    return number == NONE ? NULL : record_at(table, number - 1);
}

bool td_record_table_add(struct td_record_table *table, const void *record)
{
    if (!td_array_reserve(&table->records, &table->capacity, table->count + 1, table->record_bytes, NULL, NULL) ||
        (table->count + 1 > table->slot_count / 2 && !set_slots(table, table->slot_count * 2)))
        return false;
    memcpy(record_at(table, table->count), record, table->record_bytes);
    index_record(table, table->count++);
    return true;
}

void td_record_table_sift(struct td_record_table *table, bool (*keep)(void *context, const void *record), void *context)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++)
        if (keep(context, record_at(table, i)))
            memmove(record_at(table, kept++), record_at(table, i), table->record_bytes);
    table->count = kept;
    index_all(table);
}

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

/* Returns the size of a record in the file. */
static size_t record_bytes(const struct td_record_log *log)
{
    return log->owner.kind->payload_bytes + TD_RECORD_LOG_FRAME_BYTES;
}

/* Writes the frame around a payload that is already in the record. */
static void write_frame(const struct td_record_log *log, uint8_t *record)
{
    size_t crc_at = record_bytes(log) - 8;
    put_u32(record, (uint32_t)record_bytes(log));
    put_u32(record + 4, log->owner.kind->type);
    put_u32(record + crc_at, (uint32_t)crc32(0, record, (uInt)crc_at));
    put_u32(record + crc_at + 4, 0);
}

/* Returns whether the record has the frame that belongs to its payload. */
static bool is_good_record(const struct td_record_log *log, const uint8_t *record)
{
    uint8_t right[TD_RECORD_LOG_MAX_PAYLOAD + TD_RECORD_LOG_FRAME_BYTES];
    memcpy(right, record, record_bytes(log));
    write_frame(log, right);
    return memcmp(right, record, record_bytes(log)) == 0;
}

/* Logs the reason and stops using the file. Nothing retries: after a failed synchronisation the kernel marks the lost
 * pages as written. */
static void give_up(struct td_record_log *log, const char *action, int sys)
{
    char why[128];
    td_log(TD_LOG_WARN, "--state-dir: cannot %s: %s; %s are kept in memory only until the next start", action,
           strerror_r(sys, why, sizeof why), log->owner.kind->what);
    (void)close(log->fd);
    log->fd = -1;
    atomic_store(&log->stored, false);
}

/* Writes `count` payloads as records to the descriptor. Returns false with errno on failure. */
static bool write_records(const struct td_record_log *log, int fd, const uint8_t *payloads, size_t count)
{
    size_t payload_bytes = log->owner.kind->payload_bytes;
    for (size_t i = 0; i < count; i++) {
        uint8_t *record = log->frames + i * record_bytes(log);
        memcpy(record + BEFORE_BYTES, payloads + i * payload_bytes, payload_bytes);
        write_frame(log, record);
    }
    return td_write_all(fd, log->frames, count * record_bytes(log));
}

static void append_records(struct td_record_log *log, const void *payloads, size_t count)
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
static bool read_records(const struct td_record_log *log, FILE *file, uint64_t *good_bytes)
{
    uint8_t header[HEADER_BYTES];
    uint8_t good_header[HEADER_BYTES];
    uint8_t record[TD_RECORD_LOG_MAX_PAYLOAD + TD_RECORD_LOG_FRAME_BYTES];
    write_header(log->owner.kind, good_header);
    *good_bytes = 0;
    if (fread(header, sizeof header, 1, file) != 1 || memcmp(header, good_header, sizeof header) != 0)
        return true;
    *good_bytes = sizeof header;
    while (fread(record, record_bytes(log), 1, file) == 1 && is_good_record(log, record)) {
        if (!log->owner.take(log->owner.context, record + BEFORE_BYTES))
            return false;
        *good_bytes += record_bytes(log);
    }
    return true;
}

/* Loads the open file. Sets *sys to an errno value when it could not be read to its end. */
static bool load_records(const struct td_record_log *log, int fd, uint64_t *good_bytes, int *sys, struct td_error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "rb");
    *sys = 0;
    if (file == NULL) {
        int why = errno;
        if (copy >= 0)
            (void)close(copy);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, why, "cannot read the log of %s", log->owner.kind->what);
    }
    bool ok = read_records(log, file, good_bytes) || td_error_no_memory(err);
    if (ferror(file) != 0)
        *sys = errno != 0 ? errno : EIO;
    (void)fclose(file);
    return ok;
}

/* Opens the file. Sets *fd to -1 when the file does not exist, or cannot be opened, which is logged. Returns false when
 * other users can change the file. */
static bool open_file(const struct td_record_log *log, int flags, int *fd, struct stat *st, struct td_error *err)
{
    const char *name = log->owner.kind->name;
    *fd = openat(log->dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (*fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO) {
        char why[128];
        if (errno != ENOENT)
            td_log(TD_LOG_WARN, "--state-dir: cannot open \"%s\": %s; %s are kept in memory only", name,
                   strerror_r(errno, why, sizeof why), log->owner.kind->what);
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
static bool begin_log(const struct td_record_log *log, int fd)
{
    uint8_t header[HEADER_BYTES];
    write_header(log->owner.kind, header);
    return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && td_write_all(fd, header, sizeof header);
}

/* Truncates the file after the last good record, where the next record will be written. */
static bool cut_off(const struct td_record_log *log, uint64_t good_bytes)
{
    if (good_bytes == 0)
        return begin_log(log, log->fd);
    return ftruncate(log->fd, (off_t)good_bytes) == 0 && lseek(log->fd, (off_t)good_bytes, SEEK_SET) >= 0;
}

/* Opens the file, and loads it, to append after its last good record. */
static bool open_for_writing(struct td_record_log *log, struct td_error *err)
{
    uint64_t good_bytes = 0;
    struct stat st;
    int sys;
    if (!open_file(log, O_RDWR | O_CREAT, &log->fd, &st, err))
        return false;
    if (log->fd < 0)
        return true;
    if (!load_records(log, log->fd, &good_bytes, &sys, err))
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
               log->owner.kind->name, good_bytes, (uint64_t)st.st_size);
    if (!cut_off(log, good_bytes))
        give_up(log, "begin the log", errno);
    return true;
}

static bool open_for_reading(const struct td_record_log *log, struct td_error *err)
{
    uint64_t good_bytes = 0;
    struct stat st;
    int fd;
    int sys;
    if (!open_file(log, O_RDONLY, &fd, &st, err))
        return false;
    bool ok = fd < 0 || load_records(log, fd, &good_bytes, &sys, err);
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* Takes the log's lock. Returns whether this process has it, so that no other one writes to the log. */
static bool take_lock(struct td_record_log *log, const char *path)
{
    char why[128];
    const char *what = log->owner.kind->what;
    log->lock_fd = openat(log->dir_fd, log->owner.kind->lock_name,
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

/* Closes the file and what belongs to it; the log stores nothing from then on. */
static void close_files(struct td_record_log *log)
{
    int *const fds[] = {&log->fd, &log->lock_fd, &log->dir_fd};
    atomic_store(&log->stored, false);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
}

bool td_record_log_open(struct td_record_log *log, const char *state_dir, const char *root,
                        enum td_record_log_mode mode, struct td_error *err)
{
    bool writes = mode == TD_RECORD_LOG_WRITE;
    if (state_dir == NULL)
        return true;
    bool ok = td_state_dir_open(state_dir, root, writes, &log->dir_fd, err) &&
              (writes && take_lock(log, state_dir) ? open_for_writing(log, err) : open_for_reading(log, err));
    if (!ok)
        close_files(log);
    return ok;
}

/* ---- rewriting ----------------------------------------------------------------------------------------- */

/* Copies the next records of the table from *at on. Records that other threads add during the rewriting are in the
 * batch. */
static size_t next_records(struct td_record_log *log, uint64_t *at)
{
    pthread_mutex_lock(&log->lock);
    size_t count = log->owner.next(log->owner.context, at, log->writing, TD_RECORD_LOG_BATCH);
    pthread_mutex_unlock(&log->lock);
    return count;
}

/* Writes all records to a new file, and renames it over the log. Returns false with errno set on failure. */
static bool write_new_file(struct td_record_log *log)
{
    struct td_durable_file file;
    uint64_t at = 0;
    if (!td_durable_file_begin(&file, log->dir_fd, log->owner.kind->name, 0600))
        return false;
    bool ok = begin_log(log, file.fd);
    for (size_t count = TD_RECORD_LOG_BATCH; ok && count == TD_RECORD_LOG_BATCH;) {
        count = next_records(log, &at);
        ok = write_records(log, file.fd, log->writing, count);
    }
    int fd = td_durable_file_end(&file, ok);
    if (fd < 0)
        return false;
    (void)close(log->fd);
    log->fd = fd;
    return true;
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static void free_buffers(struct td_record_log *log)
{
    free(log->batch);
    free(log->writing);
    free(log->frames);
}

bool td_record_log_init(struct td_record_log *log, const struct td_record_log_owner *owner)
{
    *log = (struct td_record_log){.owner = *owner, .dir_fd = -1, .fd = -1, .lock_fd = -1};
    assert(owner->kind->payload_bytes <= TD_RECORD_LOG_MAX_PAYLOAD);
    log->batch = calloc(TD_RECORD_LOG_BATCH, owner->kind->payload_bytes);
    log->writing = calloc(TD_RECORD_LOG_BATCH, owner->kind->payload_bytes);
    log->frames = calloc(TD_RECORD_LOG_BATCH, record_bytes(log));
    if (log->batch != NULL && log->writing != NULL && log->frames != NULL &&
        pthread_mutex_init(&log->lock, NULL) == 0) {
        if (pthread_mutex_init(&log->file_lock, NULL) == 0)
            return true;
        (void)pthread_mutex_destroy(&log->lock);
    }
    free_buffers(log);
    return false;
}

void td_record_log_fini(struct td_record_log *log)
{
    td_record_log_flush(log);
    close_files(log);
    (void)pthread_mutex_destroy(&log->lock);
    (void)pthread_mutex_destroy(&log->file_lock);
    free_buffers(log);
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

void td_record_log_flush(struct td_record_log *log)
{
    pthread_mutex_lock(&log->file_lock);
    pthread_mutex_lock(&log->lock);
    size_t count = log->batch_count;
    bool is_stale = log->is_stale;
    memcpy(log->writing, log->batch, count * log->owner.kind->payload_bytes);
    log->batch_count = 0;
    log->is_stale = false;
    pthread_mutex_unlock(&log->lock);
    if (!is_stale)
        append_records(log, log->writing, count);
    else if (log->fd >= 0 && !write_new_file(log)) /* the table holds the batch */
        give_up(log, "rewrite the log", errno);
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
    return atomic_load(&log->stored);
}
