/* A table of records answers every look-up. A new digest is added to the table and to the batch of a log on disk
 * (record_log.h), whose lock guards the table, too. Compaction writes the whole table to a new log. */
#include "catalog/digests/digest_log.h"

#include "catalog/digests/record_log.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A record of the table, and its payload in the log; it has no padding. */
struct record {
    uint64_t device, inode, size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint8_t sum[TD_SHA256_BYTES];
};

static_assert(sizeof(struct record) == 72, "a record has no padding");

static const struct td_record_log_kind kind = {.name = "digests",
                                               .lock_name = "lock",
                                               .what = "digests",
                                               .magic = {'t', 'd', 'i', 'g', 'e', 's', 't', 's'},
                                               .version = 1,
                                               .type = 1,
                                               .payload_bytes = sizeof(struct record)};

struct td_digest_log {
    struct td_record_log log;
    struct td_record_table table; /* by identity; under the lock of `log` */
};

/* ---- records; under the lock --------------------------------------------------------------------------- */

static struct record record_of(const struct td_file_id *id, const uint8_t *sum)
{
    struct record record = {.device = id->device,
                            .inode = id->inode,
                            .size_bytes = id->size_bytes,
                            .mtime_ns = id->mtime_ns,
                            .ctime_ns = id->ctime_ns};
    if (sum != NULL)
        memcpy(record.sum, sum, TD_SHA256_BYTES);
    return record;
}

/* Adds a record to the table. Returns false when there is no room. Sets *news to whether the identity was unknown, or
 * had another digest. */
static bool put_record(struct td_digest_log *log, const struct record *record, bool *news)
{
    struct record *known = td_record_table_find(&log->table, 0, record);
    *news = known == NULL || memcmp(known->sum, record->sum, TD_SHA256_BYTES) != 0;
    if (known != NULL)
        *known = *record;
    return known != NULL || (log->table.count < TD_DIGEST_LOG_MAX_RECORDS && td_record_table_add(&log->table, record));
}

/* Puts a record of the file into the table. Returns false for want of memory. */
static bool take_record(void *context, const void *payload)
{
    struct td_digest_log *log = context;
    struct record record;
    bool news;
    memcpy(&record, payload, sizeof record);
    return put_record(log, &record, &news) || log->table.count >= TD_DIGEST_LOG_MAX_RECORDS;
}

/* Copies the next records of the table. If the table is compacted while the log is rewritten, the new log can lack
 * records; their digests are computed again after a restart. */
static size_t next_records(void *context, uint64_t *at, void *payloads, size_t most)
{
    const struct td_record_table *table = &((const struct td_digest_log *)context)->table;
    size_t left = *at < table->count ? table->count - (size_t)*at : 0;
    size_t count = left < most ? left : most;
    if (count > 0)
        memcpy(payloads, table->records + *at * sizeof(struct record), count * sizeof(struct record));
    *at += count;
    return count;
}

bool td_digest_log_open(const char *state_dir, const char *root, enum td_record_log_mode mode,
                        struct td_digest_log **out, struct td_error *err)
{
    struct td_digest_log *log = calloc(1, sizeof *log);
    const struct td_record_log_owner owner = {.kind = &kind, .take = take_record, .next = next_records, .context = log};
    if (log == NULL)
        return td_error_no_memory(err);
    log->table = (struct td_record_table){
        .record_bytes = sizeof(struct record), .index_count = 1, .parts = {{.bytes = offsetof(struct record, sum)}}};
    if (!td_record_table_init(&log->table) || !td_record_log_init(&log->log, &owner)) {
        td_record_table_fini(&log->table);
        free(log);
        return td_error_no_memory(err);
    }
    if (!td_record_log_open(&log->log, state_dir, root, mode, err)) {
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
    td_record_log_fini(&log->log);
    td_record_table_fini(&log->table);
    free(log);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_digest_log_find(struct td_digest_log *log, const struct td_file_id *id, uint8_t sum[TD_SHA256_BYTES])
{
    const struct record wanted = record_of(id, NULL);
    pthread_mutex_lock(&log->log.lock);
    const struct record *found = td_record_table_find(&log->table, 0, &wanted);
    if (found != NULL)
        memcpy(sum, found->sum, TD_SHA256_BYTES);
    pthread_mutex_unlock(&log->log.lock);
    return found != NULL;
}

void td_digest_log_add(struct td_digest_log *log, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES])
{
    bool news;
    struct record record = record_of(id, sum);
    td_record_log_begin_add(&log->log);
    bool is_new = put_record(log, &record, &news) && news;
    td_record_log_end_add(&log->log, is_new ? &record : NULL);
}

void td_digest_log_flush(struct td_digest_log *log)
{
    td_record_log_flush(&log->log);
}

void td_digest_log_flush_if_due(struct td_digest_log *log)
{
    td_record_log_flush_if_due(&log->log);
}

size_t td_digest_log_count(struct td_digest_log *log)
{
    pthread_mutex_lock(&log->log.lock);
    size_t count = log->table.count;
    pthread_mutex_unlock(&log->log.lock);
    return count;
}

bool td_digest_log_is_stored(struct td_digest_log *log)
{
    return td_record_log_is_stored(&log->log);
}

struct sifting {
    bool (*keep)(void *context, const struct td_file_id *id);
    void *context;
};

static bool keep_record(void *context, const void *payload)
{
    const struct sifting *sifting = context;
    const struct record *record = payload;
    const struct td_file_id id = {.device = record->device,
                                  .inode = record->inode,
                                  .size_bytes = record->size_bytes,
                                  .mtime_ns = record->mtime_ns,
                                  .ctime_ns = record->ctime_ns};
    return sifting->keep(sifting->context, &id);
}

void td_digest_log_compact(struct td_digest_log *log, bool (*keep)(void *context, const struct td_file_id *id),
                           void *context)
{
    struct sifting sifting = {.keep = keep, .context = context};
    pthread_mutex_lock(&log->log.lock);
    td_record_table_sift(&log->table, keep_record, &sifting);
    log->log.is_stale = true;
    pthread_mutex_unlock(&log->log.lock);
    td_record_log_flush(&log->log);
}
