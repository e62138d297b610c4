#include "catalog/digests/batched_log.h"

#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

bool td_batched_log_init(struct td_batched_log *log, const struct td_batched_log_owner *owner)
{
    size_t batch_bytes = TD_RECORD_LOG_BATCH * owner->kind->payload_bytes;
    *log = (struct td_batched_log){.owner = *owner, .batch = malloc(batch_bytes), .writing = malloc(batch_bytes)};
    if (log->batch != NULL && log->writing != NULL && pthread_mutex_init(&log->lock, NULL) == 0) {
        if (pthread_mutex_init(&log->file_lock, NULL) == 0)
            return true;
        (void)pthread_mutex_destroy(&log->lock);
    }
    free(log->batch);
    free(log->writing);
    return false;
}

bool td_batched_log_open(struct td_batched_log *log, const char *state_dir, const char *root,
                         enum td_record_log_mode mode, struct td_error *err)
{
    const struct td_batched_log_owner *owner = &log->owner;
    return td_record_log_open(owner->kind, state_dir, root, mode, owner->take, owner->context, &log->file, err);
}

void td_batched_log_fini(struct td_batched_log *log)
{
    td_batched_log_flush(log);
    td_record_log_close(log->file);
    (void)pthread_mutex_destroy(&log->lock);
    (void)pthread_mutex_destroy(&log->file_lock);
    free(log->batch);
    free(log->writing);
}

void td_batched_log_begin_add(struct td_batched_log *log)
{
    pthread_mutex_lock(&log->lock);
    while (log->batch_count == TD_RECORD_LOG_BATCH) { /* other threads add faster than the disk writes */
        pthread_mutex_unlock(&log->lock);
        td_batched_log_flush(log);
        pthread_mutex_lock(&log->lock);
    }
}

void td_batched_log_end_add(struct td_batched_log *log, const void *payload)
{
    size_t payload_bytes = log->owner.kind->payload_bytes;
    if (payload != NULL && td_batched_log_is_stored(log))
        memcpy(log->batch + log->batch_count++ * payload_bytes, payload, payload_bytes);
    bool is_due = log->batch_count == TD_RECORD_LOG_BATCH || log->is_stale;
    pthread_mutex_unlock(&log->lock);
    if (is_due)
        td_batched_log_flush(log);
}

/* A place in the owner's table, while the log is written anew. */
struct writing_place {
    struct td_batched_log *log;
    uint64_t at;
};

/* Copies the next records of the table. What is added meanwhile is in the batch. */
static size_t next_records(void *context, void *payloads, size_t most)
{
    struct writing_place *place = context;
    struct td_batched_log *log = place->log;
    pthread_mutex_lock(&log->lock);
    size_t count = log->owner.next(log->owner.context, &place->at, payloads, most);
    pthread_mutex_unlock(&log->lock);
    return count;
}

void td_batched_log_flush(struct td_batched_log *log)
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
        td_record_log_rewrite(log->file, next_records, &place); /* the table holds the batch */
    else if (log->file != NULL)
        td_record_log_append(log->file, log->writing, count);
    pthread_mutex_unlock(&log->file_lock);
}

void td_batched_log_flush_if_due(struct td_batched_log *log)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t last_ns = atomic_load(&log->flushed_ns);
    if (now_ns - last_ns >= TD_NS_PER_S && atomic_compare_exchange_strong(&log->flushed_ns, &last_ns, now_ns))
        td_batched_log_flush(log);
}

bool td_batched_log_is_stored(const struct td_batched_log *log)
{
    return log->file != NULL && td_record_log_is_stored(log->file);
}
