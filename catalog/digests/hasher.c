/* Plan: one queue (work/work_queue) has all jobs. The background goes over the entries of the snapshot twice, first
 * over the files up to 1 MiB, then over the rest: a background thread without a job adds jobs for the next few entries.
 * When all are done and a digest is new, one of these threads flushes and compacts the log of digests and calls
 * on_known, which rescans so that tags use the digests. Files that callers wait for have levels of their own
 * (hash_waiters).
 *
 * Hard: (1) background reading runs at SCHED_IDLE. A thread that the scheduler starves must not hold a lock, so each
 * background thread has another one that only reads and hashes (td_idle_thread). (2) One content under several names,
 * or one that a caller waits for: a background job whose identity another thread is hashing may not begin before that
 * thread is done; it then finds the digest in the log. */
#include "catalog/digests/hasher.h"

#include "core/waiting.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_BYTES = 1024 * 1024, /* files up to this size come first, because clients read them first */
};

/* The passes of the background over the entries of a snapshot. */
enum { SMALL_FILES, LARGE_FILES, PASSES };

struct td_hasher {
    struct td_hasher_config config;
    bool is_enabled; /* threads run */
    struct td_hash_work work;
    struct td_hash_waiters waiters;
    /* under the lock of the queue */
    struct td_snapshot *snapshot;
    int pass;
    size_t next_entry; /* the next entry of this pass */
    size_t file_count; /* of the snapshot */
    uint64_t file_bytes;
};

/* ---- digests of removed files ------------------------------------------------------------------------- */

static bool is_in_set(void *context, const struct td_file_id *id)
{
    uint8_t sum[TD_SHA256_BYTES];
    return td_digest_log_find(context, id, sum);
}

/* Adds the identities of all files of the snapshot to the set. Returns false when memory is short. */
static bool fill_set(struct td_digest_log *set, const struct td_snapshot *snapshot)
{
    static const uint8_t none[TD_SHA256_BYTES];
    uint8_t sum[TD_SHA256_BYTES];
    bool ok = true;
    for (size_t i = 0; i < snapshot->entry_count && ok; i++) {
        const struct td_file_id *id = &snapshot->entries[i].file->source.id;
        td_digest_log_add(set, id, none);
        ok = td_digest_log_find(set, id, sum);
    }
    return ok;
}

/* Drops the digests of removed files, once they outnumber the others. */
static void compact(struct td_hasher *hasher, const struct td_snapshot *snapshot)
{
    enum { SLACK = 10000 };
    struct td_digest_log *set;
    if (td_digest_log_count(hasher->work.log) < 2 * snapshot->entry_count + SLACK ||
        !td_digest_log_open(NULL, NULL, TD_DIGEST_LOG_READ, &set, NULL))
        return;
    if (fill_set(set, snapshot))
        td_digest_log_compact(hasher->work.log, is_in_set, set);
    td_digest_log_close(set);
}

/* Flushes and compacts the log, and calls on_known, after all files of the snapshot have been hashed or given up. Call
 * under the lock; the function releases it while it works, and takes it again. */
static void report_known(struct td_hasher *hasher)
{
    hasher->work.has_news = false;
    struct td_snapshot *snapshot = td_snapshot_ref(hasher->snapshot);
    td_work_queue_unlock(hasher->work.queue);
    td_digest_log_flush(hasher->work.log);
    compact(hasher, snapshot);
    td_snapshot_unref(snapshot);
    if (hasher->config.on_known != NULL)
        hasher->config.on_known(hasher->config.context);
    td_work_queue_lock(hasher->work.queue);
}

/* ---- the background; all under the lock ------------------------------------------------------------------ */

static void begin_passes(struct td_hasher *hasher)
{
    hasher->pass = SMALL_FILES;
    hasher->next_entry = 0;
}

/* Returns the next file that is to be hashed, or NULL after the last pass, and when *entries, the number of entries to
 * look at, has come down to 0. */
static struct td_file *next_file(struct td_hasher *hasher, size_t *entries)
{
    const struct td_snapshot *snapshot = hasher->snapshot;
    for (; snapshot != NULL && hasher->pass < PASSES; hasher->pass++, hasher->next_entry = 0)
        while (hasher->next_entry < snapshot->entry_count) {
            if (*entries == 0)
                return NULL;
            --*entries;
            struct td_file *file = snapshot->entries[hasher->next_entry++].file;
            int pass = file->source.id.size_bytes <= SMALL_BYTES ? SMALL_FILES : LARGE_FILES;
            if (pass == hasher->pass && td_file_sha256(file) == NULL && !atomic_load(&file->hash_failed))
                return file;
        }
    return NULL;
}

/* Adds jobs for the next files while few jobs wait, since each search of a thread passes all that may not begin. Looks
 * at so few entries that others get the lock soon. Returns whether it added a job or stopped among the entries. When
 * memory is short, files are left out until the next snapshot. */
static bool add_next_files(struct td_hasher *hasher)
{
    enum { MOST_WAITING = 128, ENTRIES_AT_ONCE = 4096 };
    size_t entries = ENTRIES_AT_ONCE;
    bool has_added = false;
    while (td_work_queue_count(hasher->work.queue, TD_HASH_BACKGROUND) < MOST_WAITING) {
        struct td_file *file = next_file(hasher, &entries);
        struct td_hash_job *job = file == NULL ? NULL : td_hash_job_create(hasher->snapshot->root, file);
        if (file == NULL)
            break;
        if (job != NULL)
            td_work_queue_add(hasher->work.queue, &job->work, TD_HASH_BACKGROUND);
        has_added = has_added || job != NULL;
    }
    return has_added || entries == 0;
}

/* Returns whether the background has no job, neither running nor waiting. */
static bool is_background_done(const struct td_hasher *hasher)
{
    const struct td_work_job *job = td_work_queue_next(hasher->work.queue, NULL);
    while (job != NULL && job->level != TD_HASH_BACKGROUND)
        job = td_work_queue_next(hasher->work.queue, job);
    return job == NULL;
}

/* Adds more jobs of the background, or reports when all are done. */
static bool add_or_report(void *context)
{
    struct td_hasher *hasher = context;
    if (add_next_files(hasher)) {
        td_work_queue_unlock(hasher->work.queue); /* for those that wait for the lock */
        td_work_queue_lock(hasher->work.queue);
        return true;
    }
    bool is_due = hasher->work.has_news && hasher->snapshot != NULL && is_background_done(hasher);
    if (is_due)
        report_known(hasher);
    return is_due;
}

static bool may_begin(void *context, const struct td_work_job *work)
{
    const struct td_hasher *hasher = context;
    const struct td_hash_job *job = td_hash_job_of(work);
    return work->level == TD_HASH_BACKGROUND ? !td_hash_work_is_running(&hasher->work, &job->file->source.id)
                                             : td_hash_waiters_may_begin(&hasher->waiters, job);
}

/* Runs a job, without the lock. */
static bool run_job(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct td_hasher *hasher = context;
    struct td_hash_job *job = td_hash_job_of(work);
    if (work->level != TD_HASH_BACKGROUND)
        td_hash_waiters_run(&hasher->waiters, job);
    else if (td_file_sha256(job->file) == NULL && !atomic_load(&job->file->hash_failed))
        (void)td_hash_work_do(&hasher->work, job, thread->idle);
    return true;
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_hasher_wait(struct td_hasher *hasher, struct td_root *root, struct td_file *file,
                    const struct td_digest_wait *how)
{
    if (td_file_sha256(file) != NULL)
        return true;
    return hasher != NULL && hasher->is_enabled && td_may_wait(NULL) &&
           td_hash_waiters_wait(&hasher->waiters, root, file, how);
}

void td_hasher_recall(struct td_hasher *hasher, struct td_file *file)
{
    uint8_t sum[TD_SHA256_BYTES];
    if (hasher != NULL && td_digest_log_find(hasher->work.log, &file->source.id, sum))
        (void)td_file_set_sha256(file, sum);
}

void td_hasher_note(struct td_hasher *hasher, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES])
{
    if (hasher != NULL)
        td_digest_log_add(hasher->work.log, id, sum);
}

void td_hasher_set_snapshot(struct td_hasher *hasher, struct td_snapshot *snapshot)
{
    if (hasher == NULL)
        return;
    size_t known_count = 0;
    uint64_t file_bytes = 0;
    uint64_t known_bytes = 0;
    td_work_queue_lock(hasher->work.queue); /* under which files become known: each one counts once */
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        bool is_known = td_file_sha256(file) != NULL;
        file_bytes += file->source.id.size_bytes;
        known_count += is_known ? 1 : 0;
        known_bytes += is_known ? file->source.id.size_bytes : 0;
    }
    struct td_snapshot *old = hasher->snapshot;
    struct td_work_job *old_jobs = td_work_queue_clear(hasher->work.queue, TD_HASH_BACKGROUND);
    hasher->snapshot = td_snapshot_ref(snapshot);
    begin_passes(hasher);
    hasher->file_count = snapshot->entry_count;
    hasher->file_bytes = file_bytes;
    hasher->work.counts.known_count = known_count;
    hasher->work.counts.known_bytes = known_bytes;
    td_work_queue_wake(hasher->work.queue);
    td_work_queue_unlock(hasher->work.queue);
    td_work_jobs_drop(hasher->work.queue, old_jobs);
    td_snapshot_unref(old);
}

void td_hasher_get_status(struct td_hasher *hasher, struct td_hasher_status *status)
{
    memset(status, 0, sizeof *status);
    if (hasher == NULL)
        return;
    td_work_queue_lock(hasher->work.queue);
    const struct td_hash_counts *counts = &hasher->work.counts;
    *status = (struct td_hasher_status){
        .enabled = hasher->is_enabled,
        .file_count = hasher->file_count,
        .file_bytes = hasher->file_bytes,
        /* digests of files that only the snapshot before has may have become known since */
        .known_count = counts->known_count < hasher->file_count ? counts->known_count : hasher->file_count,
        .known_bytes = counts->known_bytes < hasher->file_bytes ? counts->known_bytes : hasher->file_bytes,
        .hashed_bytes = td_work_queue_done_bytes(hasher->work.queue),
        .failed_count = counts->failed_count,
        .mismatch_count = counts->mismatch_count,
    };
    td_work_queue_unlock(hasher->work.queue);
    status->stored = td_digest_log_is_stored(hasher->work.log);
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

/* Starts the threads. */
static bool start_threads(struct td_hasher *hasher, struct td_error *err)
{
    const struct td_work_pool background = {
        .purpose = "hash files (--hash-threads)",
        .thread_count = hasher->config.threads < TD_HASHER_MAX_THREADS ? hasher->config.threads : TD_HASHER_MAX_THREADS,
        .levels = {TD_HASH_BACKGROUND},
        .level_count = 1,
        .is_idle = true,
        .more = add_or_report};
    hasher->is_enabled = background.thread_count > 0;
    return !hasher->is_enabled ||
           (td_hash_waiters_start(&hasher->waiters, err) && td_work_queue_start(hasher->work.queue, &background, err));
}

bool td_hasher_create(const struct td_hasher_config *config, struct td_hasher **out, struct td_error *err)
{
    struct td_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL)
        return td_error_no_memory(err);
    const struct td_work_config queue = {
        .run = run_job, .free = td_hash_job_free, .may_begin = may_begin, .context = hasher};
    hasher->config = *config;
    td_hash_waiters_init(&hasher->waiters, &hasher->work);
    if (!td_work_queue_create(&queue, &hasher->work.queue, err) ||
        !td_digest_log_open(config->state_dir, config->root, TD_DIGEST_LOG_WRITE, &hasher->work.log, err) ||
        !start_threads(hasher, err)) {
        td_hasher_destroy(hasher);
        return false;
    }
    *out = hasher;
    return true;
}

void td_hasher_destroy(struct td_hasher *hasher)
{
    if (hasher == NULL)
        return;
    td_work_queue_destroy(hasher->work.queue);
    td_digest_log_close(hasher->work.log);
    td_snapshot_unref(hasher->snapshot);
    free(hasher);
}
