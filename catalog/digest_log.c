/* Plan: a hash table (open addressing, by identity) answers every look-up. A new digest goes into the table and into a
 * batch in memory; a full batch, or a flush, is appended to the log on disk (record_log). Compacting writes the whole
 * table to a new log.
 *
 * Hard: two locks, so that a look-up never waits for a disk: `lock` guards the table and the batch, `file_lock` the log
 * on disk and the records that are being written; file_lock is taken first. */
#include "catalog/digest_log.h"

#include "catalog/record_log.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The payload of a record; it has no padding. */
struct record {
    uint64_t device, inode, size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint8_t sum[TD_SHA256_BYTES];
};

static_assert(sizeof(struct record) == 72, "a record has no padding");
static_assert((int)TD_DIGEST_LOG_BATCH <= (int)TD_RECORD_LOG_BATCH, "a batch is appended at once");

static const struct td_record_log_kind kind = {.name = "digests",
                                               .lock_name = "lock",
                                               .what = "digests",
                                               .magic = {'t', 'd', 'i', 'g', 'e', 's', 't', 's'},
                                               .version = 1,
                                               .type = 1,
                                               .payload_bytes = sizeof(struct record)};

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
    struct td_record_log *file; /* NULL while the log is opened */
    struct record writing[TD_DIGEST_LOG_BATCH];
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

/* ---- opening ------------------------------------------------------------------------------------------- */

static struct record record_of(const struct td_file_id *id, const uint8_t *sum)
{
    struct record record = {.device = id->device,
                            .inode = id->inode,
                            .size_bytes = id->size_bytes,
                            .mtime_ns = id->mtime_ns,
                            .ctime_ns = id->ctime_ns};
    memcpy(record.sum, sum, TD_SHA256_BYTES);
    return record;
}

/* Puts a record of the file into the table. Returns false for want of memory. */
static bool take_record(void *context, const void *payload)
{
    struct td_digest_log *log = context;
    struct record record;
    bool news;
    memcpy(&record, payload, sizeof record);
    const struct td_file_id id = {.device = record.device,
                                  .inode = record.inode,
                                  .size_bytes = record.size_bytes,
                                  .mtime_ns = record.mtime_ns,
                                  .ctime_ns = record.ctime_ns};
    return table_put(log, &id, record.sum, &news) || log->used_count >= TD_DIGEST_LOG_MAX_RECORDS;
}

bool td_digest_log_open(const char *state_dir, const char *root, enum td_digest_log_mode mode,
                        struct td_digest_log **out, struct td_error *err)
{
    struct td_digest_log *log = calloc(1, sizeof *log);
    enum td_record_log_mode how = mode == TD_DIGEST_LOG_WRITE ? TD_RECORD_LOG_WRITE : TD_RECORD_LOG_READ;
    if (log == NULL)
        return td_error_no_memory(err);
    if (pthread_mutex_init(&log->lock, NULL) != 0 || pthread_mutex_init(&log->file_lock, NULL) != 0 ||
        !grow_table(log)) {
        free(log);
        return td_error_no_memory(err);
    }
    if (!td_record_log_open(&kind, state_dir, root, how, take_record, log, &log->file, err)) {
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
    if (log->file != NULL)
        td_digest_log_flush(log);
    td_record_log_close(log->file);
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
    if (table_put(log, id, sum, &news) && news && td_record_log_is_stored(log->file))
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
    td_record_log_append(log->file, log->writing, count);
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
    return td_record_log_is_stored(log->file);
}

/* A place in the table, while the log is written anew. */
struct writing_place {
    struct td_digest_log *log;
    size_t at; /* the next slot */
};

/* Copies the next records of the table, at most `most`. Digests that are added meanwhile are in the batch. If the table
 * grows meanwhile, records can be left out; they are computed again after a restart. */
static size_t next_records(void *context, void *payloads, size_t most)
{
    struct writing_place *place = context;
    struct td_digest_log *log = place->log;
    struct record *records = payloads;
    size_t count = 0;
    pthread_mutex_lock(&log->lock);
    for (; place->at < log->slot_count && count < most; ++place->at)
        if (log->slots[place->at].used)
            records[count++] = record_of(&log->slots[place->at].id, log->slots[place->at].sum);
    pthread_mutex_unlock(&log->lock);
    return count;
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
    struct writing_place place = {.log = log};
    if (sifted)
        td_record_log_rewrite(log->file, next_records, &place);
    pthread_mutex_unlock(&log->file_lock);
}
