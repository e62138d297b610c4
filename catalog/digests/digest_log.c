/* Plan: a hash table (open addressing, by identity) answers every look-up. A new digest goes into the table and into
 * the batch of a log on disk (batched_log), whose lock guards the table, too. Compacting writes the whole table to a
 * new log. */
#include "catalog/digests/digest_log.h"

#include "catalog/digests/batched_log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The payload of a record; it has no padding. */
struct record {
    uint64_t device, inode, size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint8_t sum[TD_SHA256_BYTES];
};

static_assert(sizeof(struct record) == 72, "a record has no padding");
static_assert((int)TD_DIGEST_LOG_BATCH == (int)TD_RECORD_LOG_BATCH, "digest_log.h tells the size of a batch");

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

struct td_digest_log {
    struct td_batched_log log;
    /* the table: open addressing, at most three quarters full; under the lock of `log` */
    struct slot *slots;
    size_t slot_count, used_count;
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

/* Copies the next records of the table, from slot *at on. If the table grows while the log is written anew, records can
 * be left out; they are computed again after a restart. */
static size_t next_records(void *context, uint64_t *at, void *payloads, size_t most)
{
    const struct td_digest_log *log = context;
    struct record *records = payloads;
    size_t count = 0;
    for (; *at < log->slot_count && count < most; ++*at)
        if (log->slots[*at].used)
            records[count++] = record_of(&log->slots[*at].id, log->slots[*at].sum);
    return count;
}

bool td_digest_log_open(const char *state_dir, const char *root, enum td_digest_log_mode mode,
                        struct td_digest_log **out, struct td_error *err)
{
    struct td_digest_log *log = calloc(1, sizeof *log);
    const struct td_batched_log_owner owner = {
        .kind = &kind, .take = take_record, .next = next_records, .context = log};
    enum td_record_log_mode how = mode == TD_DIGEST_LOG_WRITE ? TD_RECORD_LOG_WRITE : TD_RECORD_LOG_READ;
    if (log == NULL || !grow_table(log) || !td_batched_log_init(&log->log, &owner)) {
        if (log != NULL)
            free(log->slots);
        free(log);
        return td_error_no_memory(err);
    }
    if (!td_batched_log_open(&log->log, state_dir, root, how, err)) {
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
    td_batched_log_fini(&log->log);
    free(log->slots);
    free(log);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_digest_log_find(struct td_digest_log *log, const struct td_file_id *id, uint8_t sum[TD_SHA256_BYTES])
{
    pthread_mutex_lock(&log->log.lock);
    const struct slot *slot = find_slot(log->slots, log->slot_count, id);
    bool found = slot->used;
    if (found)
        memcpy(sum, slot->sum, TD_SHA256_BYTES);
    pthread_mutex_unlock(&log->log.lock);
    return found;
}

void td_digest_log_add(struct td_digest_log *log, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES])
{
    bool news;
    struct record record = record_of(id, sum);
    td_batched_log_begin_add(&log->log);
    bool is_new = table_put(log, id, sum, &news) && news;
    td_batched_log_end_add(&log->log, is_new ? &record : NULL);
}

void td_digest_log_flush(struct td_digest_log *log)
{
    td_batched_log_flush(&log->log);
}

size_t td_digest_log_count(struct td_digest_log *log)
{
    pthread_mutex_lock(&log->log.lock);
    size_t count = log->used_count;
    pthread_mutex_unlock(&log->log.lock);
    return count;
}

bool td_digest_log_is_stored(struct td_digest_log *log)
{
    return td_batched_log_is_stored(&log->log);
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
    pthread_mutex_lock(&log->log.lock);
    if (sift(log, keep, context))
        log->log.is_stale = true;
    pthread_mutex_unlock(&log->log.lock);
    td_batched_log_flush(&log->log);
}
