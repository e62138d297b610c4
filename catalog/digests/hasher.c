/* Plan: background workers go over the entries of the snapshot twice, first over the files up to 1 MiB, then over the
 * rest. A worker claims a few entries under the lock, and hashes them without it (hash_work), on an idle thread. When
 * all are done and a digest is new, one worker flushes and compacts the log of digests and calls on_known, which
 * rescans so that tags use the digests. Files that callers wait for are hashed beside that (hash_waiters).
 *
 * Hard: (1) background reading runs at SCHED_IDLE. A thread that the scheduler starves must not hold a lock, so each
 * worker has a thread that only reads and hashes (idle_thread). (2) One content under several names, or one that a
 * caller waits for: a worker skips a file whose identity another thread is hashing, and looks for it in the log in a
 * later pass. */
#include "catalog/digests/hasher.h"

#include "core/waiting.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_BYTES = 1024 * 1024, /* files up to this size come first, because clients look at them first */
};

/* A background thread, and the one that reads and hashes for it when nothing else wants to run. */
struct worker {
    struct td_hasher *hasher;
    pthread_t thread;
    struct td_idle_thread reader;
    struct td_hash_run run;
};

struct td_hasher {
    struct td_hasher_config config;
    struct worker workers[TD_HASHER_MAX_THREADS];
    size_t worker_count;
    struct td_hash_waiters *waiters; /* NULL: nothing is hashed */
    struct td_hash_work work;
    /* under the lock of `work` */
    struct td_snapshot *snapshot;
    size_t next_entry;   /* the next entry of this pass */
    bool small_are_done; /* the pass over small files is over */
    bool was_skipped;    /* a file was skipped, because its content was being hashed by another thread */
    size_t claim_count;  /* background threads at work */
    size_t file_count;   /* of the snapshot */
    uint64_t file_bytes;
};

/* ---- claims -------------------------------------------------------------------------------------------- */

/* Entries that a worker has claimed, of a snapshot on which it holds a reference. */
struct claim {
    struct td_snapshot *snapshot;
    size_t first, end;
    bool small;
};

static void begin_pass(struct td_hasher *hasher)
{
    hasher->next_entry = 0;
    hasher->small_are_done = false;
    hasher->was_skipped = false;
}

/* Claims the next entries. Returns false when none are left. Small files are claimed together, large ones one by one.
 * Under the lock. */
static bool claim_files(struct td_hasher *hasher, struct claim *claim)
{
    enum { AT_ONCE = 64 };
    struct td_snapshot *snapshot = hasher->snapshot;
    if (snapshot == NULL)
        return false;
    if (hasher->next_entry >= snapshot->entry_count && !hasher->small_are_done) {
        hasher->small_are_done = true;
        hasher->next_entry = 0;
    }
    bool nothing_runs = hasher->claim_count == 0 && hasher->work.runs == NULL;
    if (hasher->next_entry >= snapshot->entry_count && hasher->was_skipped && nothing_runs)
        begin_pass(hasher);
    size_t left = snapshot->entry_count - hasher->next_entry;
    size_t most = hasher->small_are_done ? 1 : AT_ONCE;
    if (left == 0)
        return false;
    *claim = (struct claim){.snapshot = td_snapshot_ref(snapshot),
                            .first = hasher->next_entry,
                            .end = hasher->next_entry + (left < most ? left : most),
                            .small = !hasher->small_are_done};
    hasher->next_entry = claim->end;
    hasher->claim_count++;
    return true;
}

/* ---- digests of files that are gone -------------------------------------------------------------------- */

static bool is_in_set(void *context, const struct td_file_id *id)
{
    uint8_t sum[TD_SHA256_BYTES];
    return td_digest_log_find(context, id, sum);
}

/* Puts the identities of all files of the snapshot into the set. Returns false when it lacks one: memory is short. */
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

/* Drops the digests of files that are gone, once they outnumber the others. */
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

/* Flushes and compacts the log, and calls on_known, after all files of the snapshot have been looked at. Under the
 * lock, which is released meanwhile. */
static void report(struct td_hasher *hasher)
{
    hasher->work.has_news = false;
    struct td_snapshot *snapshot = td_snapshot_ref(hasher->snapshot);
    pthread_mutex_unlock(&hasher->work.lock);
    td_digest_log_flush(hasher->work.log);
    compact(hasher, snapshot);
    td_snapshot_unref(snapshot);
    if (hasher->config.on_known != NULL)
        hasher->config.on_known(hasher->config.context);
    pthread_mutex_lock(&hasher->work.lock);
}

/* ---- the background ------------------------------------------------------------------------------------ */

/* Notes that the worker hashes the file. Returns false when another thread hashes the same content, for a caller that
 * waits or under another name. */
static bool begin_file(struct td_hasher *hasher, struct worker *worker, const struct td_file *file)
{
    struct td_hash_work *work = &hasher->work;
    pthread_mutex_lock(&work->lock);
    bool is_taken = td_hash_work_is_running(work, &file->source.id);
    if (is_taken)
        hasher->was_skipped = true; /* a later pass finds it in the log */
    else
        td_hash_work_begin(work, &worker->run, file);
    pthread_mutex_unlock(&work->lock);
    return !is_taken;
}

/* Notes that the worker is done with a file. Returns false when there is a new snapshot, which is worked on from its
 * beginning. */
static bool end_file(struct td_hasher *hasher, struct worker *worker, const struct claim *claim)
{
    pthread_mutex_lock(&hasher->work.lock);
    td_hash_work_end(&hasher->work, &worker->run);
    bool is_current = hasher->snapshot == claim->snapshot;
    pthread_mutex_unlock(&hasher->work.lock);
    return is_current;
}

static void hash_claimed(struct td_hasher *hasher, struct worker *worker, const struct claim *claim)
{
    for (size_t i = claim->first; i < claim->end && !atomic_load(&hasher->work.stop); i++) {
        struct td_file *file = claim->snapshot->entries[i].file;
        const struct td_hash_job job = {.root = claim->snapshot->root, .file = file};
        bool small = file->source.id.size_bytes <= SMALL_BYTES;
        if (td_file_sha256(file) != NULL || small != claim->small || atomic_load(&file->hash_failed) ||
            !begin_file(hasher, worker, file))
            continue;
        (void)td_hash_work_do(&hasher->work, &worker->run, &job, &worker->reader);
        if (!end_file(hasher, worker, claim))
            return;
    }
}

static void *background_main(void *argument)
{
    struct worker *worker = argument;
    struct td_hasher *hasher = worker->hasher;
    struct claim claim;
    pthread_mutex_lock(&hasher->work.lock);
    while (!atomic_load(&hasher->work.stop)) {
        if (claim_files(hasher, &claim)) {
            pthread_mutex_unlock(&hasher->work.lock);
            hash_claimed(hasher, worker, &claim);
            td_snapshot_unref(claim.snapshot);
            pthread_mutex_lock(&hasher->work.lock);
            hasher->claim_count--;
        } else if (hasher->work.has_news && hasher->claim_count == 0 && hasher->snapshot != NULL) {
            report(hasher);
        } else {
            hasher->work.end_is_awaited = hasher->work.end_is_awaited || hasher->was_skipped;
            pthread_cond_wait(&hasher->work.work, &hasher->work.lock);
        }
    }
    pthread_mutex_unlock(&hasher->work.lock);
    return NULL;
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_hasher_wait(struct td_hasher *hasher, struct td_root *root, struct td_file *file,
                    const struct td_digest_wait *how)
{
    if (td_file_sha256(file) != NULL)
        return true;
    return hasher != NULL && hasher->waiters != NULL && td_may_wait(NULL) &&
           td_hash_waiters_wait(hasher->waiters, root, file, how);
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
    pthread_mutex_lock(&hasher->work.lock); /* under which files become known: each one counts once */
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        bool is_known = td_file_sha256(file) != NULL;
        file_bytes += file->source.id.size_bytes;
        known_count += is_known ? 1 : 0;
        known_bytes += is_known ? file->source.id.size_bytes : 0;
    }
    struct td_snapshot *old = hasher->snapshot;
    hasher->snapshot = td_snapshot_ref(snapshot);
    begin_pass(hasher);
    hasher->file_count = snapshot->entry_count;
    hasher->file_bytes = file_bytes;
    hasher->work.counts.known_count = known_count;
    hasher->work.counts.known_bytes = known_bytes;
    pthread_cond_broadcast(&hasher->work.work);
    pthread_mutex_unlock(&hasher->work.lock);
    td_snapshot_unref(old);
}

void td_hasher_get_status(struct td_hasher *hasher, struct td_hasher_status *status)
{
    memset(status, 0, sizeof *status);
    if (hasher == NULL)
        return;
    pthread_mutex_lock(&hasher->work.lock);
    const struct td_hash_counts *counts = &hasher->work.counts;
    *status = (struct td_hasher_status){
        .enabled = hasher->waiters != NULL,
        .file_count = hasher->file_count,
        .file_bytes = hasher->file_bytes,
        /* files of the snapshot before may have become known meanwhile */
        .known_count = counts->known_count < hasher->file_count ? counts->known_count : hasher->file_count,
        .known_bytes = counts->known_bytes < hasher->file_bytes ? counts->known_bytes : hasher->file_bytes,
        .hashed_bytes = td_hash_work_hashed_bytes(&hasher->work),
        .failed_count = counts->failed_count,
        .mismatch_count = counts->mismatch_count,
    };
    pthread_mutex_unlock(&hasher->work.lock);
    status->stored = td_digest_log_is_stored(hasher->work.log);
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

static bool start_worker(struct td_hasher *hasher)
{
    struct worker *worker = &hasher->workers[hasher->worker_count];
    worker->hasher = hasher;
    if (!td_idle_thread_start(&worker->reader))
        return false;
    if (pthread_create(&worker->thread, NULL, background_main, worker) != 0) {
        td_idle_thread_stop(&worker->reader);
        return false;
    }
    hasher->worker_count++;
    return true;
}

/* Starts the threads. */
static bool start_threads(struct td_hasher *hasher, struct td_error *err)
{
    size_t wanted = hasher->config.threads < TD_HASHER_MAX_THREADS ? hasher->config.threads : TD_HASHER_MAX_THREADS;
    if (wanted == 0)
        return true;
    if (!td_hash_waiters_create(&hasher->work, &hasher->waiters, err))
        return false;
    bool ok = true;
    while (ok && hasher->worker_count < wanted)
        ok = start_worker(hasher);
    return ok || td_error_set(err, TD_RESOURCE_EXHAUSTED, "cannot start %zu threads for --hash-threads", 2 * wanted);
}

bool td_hasher_create(const struct td_hasher_config *config, struct td_hasher **out, struct td_error *err)
{
    struct td_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL)
        return td_error_no_memory(err);
    hasher->config = *config;
    if (!td_hash_work_init(&hasher->work)) {
        free(hasher);
        return td_error_no_memory(err);
    }
    if (!td_digest_log_open(config->state_dir, config->root, TD_DIGEST_LOG_WRITE, &hasher->work.log, err) ||
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
    td_hash_work_stop(&hasher->work);
    for (size_t i = 0; i < hasher->worker_count; i++) {
        (void)pthread_join(hasher->workers[i].thread, NULL);
        td_idle_thread_stop(&hasher->workers[i].reader);
    }
    td_hash_waiters_destroy(hasher->waiters);
    td_snapshot_unref(hasher->snapshot);
    td_hash_work_fini(&hasher->work);
    free(hasher);
}
