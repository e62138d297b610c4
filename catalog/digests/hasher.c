/* Plan: one queue (work/work_queue) has all jobs. The background goes over the entries of the snapshot twice, first
 * over the files up to 1 MiB, then over the rest: a background thread without a job adds jobs for the next few entries.
 * When all are done and a digest is new, one of these threads flushes and compacts the log of digests and calls
 * on_known, which rescans so that tags use the digests.
 *
 * Files that callers wait for have two levels, with a thread each. The quick level has the files that will be hashed
 * before their callers' time is over; the slow level has the others. So callers that can be served in time never wait
 * for files of callers that cannot. If another thread hashes a file already and will be done in half the time, the file
 * is left to that thread.
 *
 * What is hard: (1) background reading runs at SCHED_IDLE. A thread that the scheduler starves must not hold a lock, so
 * each background thread has another one that only reads and hashes (td_idle_thread). (2) One content under several
 * names, or one that a caller waits for: a background job whose identity another thread is hashing may not begin before
 * that thread is done; it then finds the digest in the log. (3) Whether a file will be hashed in time is an estimate.
 * It follows from the bytes ahead in its level and the measured rate, or from the progress of another thread that
 * hashes the same content. The scheduler may keep a background thread from running at any time. So a file that is left
 * to another thread stays in its level, and the queue makes the estimate again every 0.2 s. */
#include "catalog/digests/hasher.h"

#include "catalog/digests/digest_log.h"
#include "catalog/model/content_hash.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"
#include "work/work_queue.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL_BYTES = 1024 * 1024,     /* files up to this size come first, because clients read them first */
    LONG_BYTES = 64 * 1024 * 1024, /* hashing as much takes so long that known digests are flushed first */
    MEASURED_BYTES = 1024 * 1024,  /* the time for smaller files depends more on opening than on reading */
    MAX_WANTED = 256,              /* files in each level of those that callers wait for */
    MAX_FAILURES_LOGGED = 10
};

static const uint64_t first_rate = 400; /* bytes per microsecond, until measured */

/* The levels of the queue; each of the first two has a thread of its own. */
enum { QUICK, SLOW, BACKGROUND };

/* The passes of the background over the entries of a snapshot. */
enum { SMALL_FILES, LARGE_FILES, PASSES };

/* A file that is to be hashed, and the root that it is in. */
struct hash_job {
    struct td_work_job work; /* first */
    struct td_root *root;
    struct td_file *file;
};

/* Counts for the current snapshot and, from `failed_count` on, since the start of the process. */
struct counts {
    size_t known_count;
    uint64_t known_bytes;
    uint64_t failed_count;   /* files that could not be read, or changed while they were read */
    uint64_t mismatch_count; /* blobs of a cache whose content does not have the hash in their name */
};

struct td_hasher {
    struct td_hasher_config config;
    bool is_enabled; /* threads run */
    struct td_digest_log *log;
    struct td_work_queue *queue;
    /* under the lock of the queue */
    bool has_news; /* a digest became known that on_known has not reported yet */
    struct counts counts;
    uint64_t rate; /* of the quick level's thread, bytes per microsecond, at least 1 */
    struct td_snapshot *snapshot;
    int pass;
    size_t next_entry; /* the next entry of this pass */
    size_t file_count; /* of the snapshot */
    uint64_t file_bytes;
};

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static struct hash_job *job_of(const struct td_work_job *work)
{
    return (struct hash_job *)(uintptr_t)work;
}

/* Creates a job with references on root and file. Returns NULL when memory is short. */
static struct hash_job *create_job(struct td_root *root, struct td_file *file)
{
    struct hash_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    td_work_job_init(&job->work, 0, file->source.id.size_bytes);
    job->root = td_root_ref(root);
    job->file = td_file_ref(file);
    return job;
}

static void free_job(struct td_work_job *work)
{
    struct hash_job *job = job_of(work);
    td_root_unref(job->root);
    td_file_unref(job->file);
    free(job);
}

static bool is_of(const struct td_work_job *work, const struct td_file_id *id)
{
    return td_file_id_equal(&job_of(work)->file->source.id, id);
}

/* Returns whether a thread hashes content of this identity, by any name. Under the lock. */
static bool is_being_hashed(const struct td_hasher *hasher, const struct td_file_id *id)
{
    const struct td_work_job *job = td_work_queue_running(hasher->queue);
    while (job != NULL && !is_of(job, id))
        job = job->next;
    return job != NULL;
}

/* Returns in how many microseconds a thread will have hashed content of this identity if it continues at its mean rate
 * so far. Returns UINT64_MAX when that is unknown, or no thread hashes it. Under the lock. */
static uint64_t running_left_us(const struct td_hasher *hasher, const struct td_file_id *id, uint64_t now_ns)
{
    uint64_t least_us = UINT64_MAX;
    for (const struct td_work_job *job = td_work_queue_running(hasher->queue); job != NULL; job = job->next) {
        uint64_t us = is_of(job, id) ? td_work_job_left_us(job, now_ns) : UINT64_MAX;
        least_us = us < least_us ? us : least_us;
    }
    return least_us;
}

/* ---- hashing one file ---------------------------------------------------------------------------------- */

/* One call of td_content_hash. */
struct task {
    const struct hash_job *job;
    struct td_content_hash_options options;
    struct td_content_sums sums;
    struct td_error err;
    bool ok;
};

static void set_known(struct td_hasher *hasher, struct td_file *file, const uint8_t *sum)
{
    td_work_queue_lock(hasher->queue);
    if (td_file_set_sha256(file, sum)) {
        hasher->counts.known_count++;
        hasher->counts.known_bytes += file->source.id.size_bytes;
        hasher->has_news = true;
    }
    td_work_queue_unlock(hasher->queue);
}

static void note_failure(struct td_hasher *hasher, struct td_file *file, const struct td_error *why)
{
    if (why->code != TD_RESOURCE_EXHAUSTED)
        atomic_store(&file->hash_failed, true);
    td_work_queue_lock(hasher->queue);
    uint64_t count = ++hasher->counts.failed_count;
    td_work_queue_unlock(hasher->queue);
    td_log(count <= MAX_FAILURES_LOGGED && why->code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot hash \"%s\": %s",
           file->source.path, why->message);
}

/* Compares a blob's content with the hash in its name, and warns if they differ. */
static void check_name(struct td_hasher *hasher, const struct td_file *file, enum td_blob_name kind, const char *name,
                       const struct td_content_sums *sums)
{
    if (td_cache_blob_name_fits(kind, name, sums))
        return;
    td_work_queue_lock(hasher->queue);
    uint64_t count = ++hasher->counts.mismatch_count;
    td_work_queue_unlock(hasher->queue);
    if (count <= MAX_FAILURES_LOGGED)
        td_log(TD_LOG_WARN,
               "\"%s\" does not hash to its blob's name %s: this cache is damaged; tensord verify lists all",
               file->source.path, name);
}

static void hash_content(void *context)
{
    struct task *task = context;
    const struct td_file_source *source = &task->job->file->source;
    td_error_init(&task->err);
    task->ok = td_content_hash(task->job->root, source->path, &source->id, &task->options, &task->sums, &task->err);
}

/* Makes the digest of the job's file known: from the log or, if that lacks it, by reading the file. Reads on the idle
 * thread, or on this one when `idle` is NULL. Returns whether the file was read to its end. Without the lock. */
static bool hash_file(struct td_hasher *hasher, struct hash_job *job, struct td_idle_thread *idle)
{
    const struct td_file_id *id = &job->file->source.id;
    char name[TD_SHA256_TEXT_BYTES];
    struct task task = {.job = job};
    if (td_digest_log_find(hasher->log, id, task.sums.sha256)) { /* another path to the same content was hashed */
        set_known(hasher, job->file, task.sums.sha256);
        return false;
    }
    if (id->size_bytes >= LONG_BYTES)
        td_digest_log_flush(hasher->log);
    enum td_blob_name kind = td_cache_blob_name_of(job->root, job->file->source.path, name);
    task.options = (struct td_content_hash_options){
        .git_sha1 = kind == TD_BLOB_NAME_GIT_SHA1, .stop = &job->work.stop, .hashed_bytes = &job->work.done_bytes};
    if (idle != NULL)
        td_idle_thread_run(idle, hash_content, &task);
    else
        hash_content(&task);
    if (!task.ok) {
        if (!atomic_load(&job->work.stop))
            note_failure(hasher, job->file, &task.err);
        return false;
    }
    check_name(hasher, job->file, kind, name, &task.sums);
    td_digest_log_add(hasher->log, id, task.sums.sha256);
    set_known(hasher, job->file, task.sums.sha256);
    td_digest_log_flush_if_due(hasher->log);
    return true;
}

/* ---- estimates for files that callers wait for; all under the lock ------------------------------------- */

/* Returns how long a thread of ours takes to hash the whole file, in microseconds. */
static uint64_t whole_us(const struct td_hasher *hasher, const struct td_file *file)
{
    return file->source.id.size_bytes / hasher->rate + 1;
}

/* Returns whether another thread hashes the same content already, and will be done in half the time that a thread of
 * ours would take. Sets *left_us to when, in microseconds. With less to gain it would not be worth the risk that a
 * background thread is kept from running. */
static bool is_left_to_others(const struct td_hasher *hasher, const struct td_file *file, uint64_t now_ns,
                              uint64_t *left_us)
{
    *left_us = running_left_us(hasher, &file->source.id, now_ns);
    return *left_us <= whole_us(hasher, file) / 2;
}

/* Returns how many microseconds hashing the file takes once its turn has come, on a thread of ours or on another
 * one. */
static uint64_t cost_us(const struct td_hasher *hasher, const struct td_file *file, uint64_t now_ns)
{
    uint64_t left_us;
    return is_left_to_others(hasher, file, now_ns, &left_us) ? left_us : whole_us(hasher, file);
}

/* Returns in how many microseconds one of our threads will be done with a file that it hashes now. */
static uint64_t rest_us(const struct td_hasher *hasher, const struct td_file *file, uint64_t now_ns)
{
    uint64_t left_us = running_left_us(hasher, &file->source.id, now_ns);
    uint64_t whole = whole_us(hasher, file);
    return left_us < whole ? left_us : whole;
}

/* Returns in how many microseconds the level's thread is done with the job and all before it; with the whole level when
 * the job is NULL. */
static uint64_t level_us(const struct td_hasher *hasher, unsigned level, const struct td_work_job *job, uint64_t now_ns)
{
    const struct td_work_job *at = td_work_queue_running(hasher->queue);
    while (at != NULL && at->level != level)
        at = at->next;
    uint64_t us = at != NULL ? rest_us(hasher, job_of(at)->file, now_ns) : 0;
    bool is_found = at != NULL && at == job;
    for (at = td_work_queue_first(hasher->queue, level); at != NULL && !is_found; at = at->next) {
        us += cost_us(hasher, job_of(at)->file, now_ns);
        is_found = at == job;
    }
    return us;
}

/* Returns whether a job of one of the two levels is not left to another thread. */
static bool may_begin_wanted(const struct td_hasher *hasher, const struct hash_job *job)
{
    uint64_t left_us;
    return !is_left_to_others(hasher, job->file, td_clock_ns(), &left_us);
}

/* ---- levels of these files; all under the lock --------------------------------------------------------- */

/* Returns the job of the file in one of the two levels, or NULL. */
static struct td_work_job *find_wanted(const struct td_hasher *hasher, const struct td_file *file)
{
    const struct td_work_queue *queue = hasher->queue;
    struct td_work_job *job = td_work_queue_next(queue, NULL);
    while (job != NULL && (job->level == BACKGROUND || job_of(job)->file != file))
        job = td_work_queue_next(queue, job);
    return job;
}

/* Adds a job for the file, if the level has room. */
static bool add_wanted(struct td_hasher *hasher, struct td_root *root, struct td_file *file, unsigned level)
{
    struct td_work_queue *queue = hasher->queue;
    struct hash_job *job = td_work_queue_count(queue, level) < MAX_WANTED ? create_job(root, file) : NULL;
    if (job != NULL)
        td_work_queue_add(queue, &job->work, level);
    return job != NULL;
}

/* Puts the file into the quick level if it will be hashed in time, else into the slow one, unless a level has it
 * already. Returns whether the caller is to wait. */
static bool want(struct td_hasher *hasher, struct td_root *root, struct td_file *file, const struct td_digest_wait *how)
{
    struct td_work_queue *queue = hasher->queue;
    struct td_work_job *job = find_wanted(hasher, file);
    uint64_t now_ns = td_clock_ns();
    uint64_t left_us = how->until_ns > now_ns ? (how->until_ns - now_ns) / 1000 : 0;
    if (job == NULL || (job->level == SLOW && job->state == TD_WORK_WAITING)) {
        bool is_quick = td_work_queue_count(queue, QUICK) < MAX_WANTED &&
                        level_us(hasher, QUICK, NULL, now_ns) + cost_us(hasher, file, now_ns) <= left_us;
        if (job == NULL)
            return (is_quick || how->takes_any) && add_wanted(hasher, root, file, is_quick ? QUICK : SLOW);
        if (is_quick) {
            td_work_queue_move(queue, job, QUICK);
            return true;
        }
    }
    return how->takes_any || level_us(hasher, job->level, job, now_ns) <= left_us;
}

/* ---- running them -------------------------------------------------------------------------------------- */

/* Corrects the measured rate by a hash that took took_ns. Under the lock. */
static void measure(struct td_hasher *hasher, uint64_t bytes, uint64_t took_ns)
{
    if (bytes >= MEASURED_BYTES && took_ns > 0) {
        uint64_t rate = bytes / (took_ns / 1000 + 1);
        hasher->rate = (hasher->rate * 3 + rate) / 4 + 1;
    }
}

/* Runs a job of one of the two levels. Without the lock. */
static void run_wanted(struct td_hasher *hasher, struct hash_job *job)
{
    uint64_t began_ns = td_clock_ns();
    bool was_read = td_file_sha256(job->file) == NULL && hash_file(hasher, job, NULL);
    uint64_t took_ns = td_clock_ns() - began_ns;
    td_work_queue_lock(hasher->queue);
    if (was_read && job->work.level == QUICK)
        measure(hasher, job->file->source.id.size_bytes, took_ns);
    td_work_queue_wake(hasher->queue); /* a background thread reports the digest */
    td_work_queue_unlock(hasher->queue);
}

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
    if (td_digest_log_count(hasher->log) < 2 * snapshot->entry_count + SLACK ||
        !td_digest_log_open(NULL, NULL, TD_RECORD_LOG_READ, &set, NULL))
        return;
    if (fill_set(set, snapshot))
        td_digest_log_compact(hasher->log, is_in_set, set);
    td_digest_log_close(set);
}

/* Flushes and compacts the log, and calls on_known, after all files of the snapshot have been hashed or given up. Call
 * under the lock; the function releases it while it works, and takes it again. */
static void report_known(struct td_hasher *hasher)
{
    hasher->has_news = false;
    struct td_snapshot *snapshot = td_snapshot_ref(hasher->snapshot);
    td_work_queue_unlock(hasher->queue);
    td_digest_log_flush(hasher->log);
    compact(hasher, snapshot);
    td_snapshot_unref(snapshot);
    if (hasher->config.on_known != NULL)
        hasher->config.on_known(hasher->config.context);
    td_work_queue_lock(hasher->queue);
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

/* Returns whether a job of the background may begin: no thread hashes the same content. */
static bool may_begin_background(const struct td_hasher *hasher, const struct hash_job *job)
{
    return !is_being_hashed(hasher, &job->file->source.id);
}

/* Returns the number of the background's waiting jobs that may begin. */
static size_t count_ready(const struct td_hasher *hasher)
{
    size_t count = 0;
    for (struct td_work_job *job = td_work_queue_first(hasher->queue, BACKGROUND); job != NULL; job = job->next)
        count += may_begin_background(hasher, job_of(job)) ? 1 : 0;
    return count;
}

/* Adds jobs for the next files while few jobs may begin. Other names of a content that is being hashed wait beside
 * these; they are bounded too, since each search of a thread passes them. Looks at so few entries that others get the
 * lock soon. Returns whether it added a job or stopped among the entries. When memory is short, files are left out
 * until the next snapshot. */
static bool add_next_files(struct td_hasher *hasher)
{
    enum { MOST_READY = 128, MOST_WAITING = 1024, ENTRIES_AT_ONCE = 4096 };
    size_t entries = ENTRIES_AT_ONCE;
    size_t ready = count_ready(hasher);
    bool has_added = false;
    while (ready < MOST_READY && td_work_queue_count(hasher->queue, BACKGROUND) < MOST_WAITING) {
        struct td_file *file = next_file(hasher, &entries);
        struct hash_job *job = file == NULL ? NULL : create_job(hasher->snapshot->root, file);
        if (file == NULL)
            break;
        if (job == NULL)
            continue;
        ready += may_begin_background(hasher, job) ? 1 : 0;
        td_work_queue_add(hasher->queue, &job->work, BACKGROUND);
        has_added = true;
    }
    return has_added || entries == 0;
}

/* Returns whether the background has no job, neither running nor waiting. */
static bool is_background_done(const struct td_hasher *hasher)
{
    const struct td_work_job *job = td_work_queue_next(hasher->queue, NULL);
    while (job != NULL && job->level != BACKGROUND)
        job = td_work_queue_next(hasher->queue, job);
    return job == NULL;
}

/* Adds more jobs of the background, or reports when all are done. */
static bool add_or_report(void *context)
{
    struct td_hasher *hasher = context;
    if (add_next_files(hasher)) {
        /* for those that wait for the lock; without the yield this thread would mostly have it again first */
        td_work_queue_unlock(hasher->queue);
        (void)sched_yield();
        td_work_queue_lock(hasher->queue);
        return true;
    }
    bool is_due = hasher->has_news && hasher->snapshot != NULL && is_background_done(hasher);
    if (is_due)
        report_known(hasher);
    return is_due;
}

static bool may_begin(void *context, const struct td_work_job *work)
{
    const struct td_hasher *hasher = context;
    const struct hash_job *job = job_of(work);
    return work->level == BACKGROUND ? may_begin_background(hasher, job) : may_begin_wanted(hasher, job);
}

/* Runs a job, without the lock. */
static bool run_job(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct td_hasher *hasher = context;
    struct hash_job *job = job_of(work);
    if (work->level != BACKGROUND)
        run_wanted(hasher, job);
    else if (td_file_sha256(job->file) == NULL && !atomic_load(&job->file->hash_failed))
        (void)hash_file(hasher, job, thread->idle);
    return true;
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_hasher_wait(struct td_hasher *hasher, struct td_root *root, struct td_file *file,
                    const struct td_digest_wait *how)
{
    if (td_file_sha256(file) != NULL)
        return true;
    if (hasher == NULL || !hasher->is_enabled || !td_may_wait(NULL))
        return false;
    td_work_queue_lock(hasher->queue);
    bool waits = want(hasher, root, file, how);
    while (waits && td_file_sha256(file) == NULL && find_wanted(hasher, file) != NULL)
        waits = td_work_queue_wait(hasher->queue, how->until_ns, how->cancel);
    td_work_queue_unlock(hasher->queue);
    return td_file_sha256(file) != NULL;
}

void td_hasher_recall(struct td_hasher *hasher, struct td_file *file)
{
    uint8_t sum[TD_SHA256_BYTES];
    if (hasher != NULL && td_digest_log_find(hasher->log, &file->source.id, sum))
        (void)td_file_set_sha256(file, sum);
}

void td_hasher_note(struct td_hasher *hasher, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES])
{
    if (hasher != NULL)
        td_digest_log_add(hasher->log, id, sum);
}

void td_hasher_set_snapshot(struct td_hasher *hasher, struct td_snapshot *snapshot)
{
    if (hasher == NULL)
        return;
    size_t known_count = 0;
    uint64_t file_bytes = 0;
    uint64_t known_bytes = 0;
    td_work_queue_lock(hasher->queue); /* under which files become known: each one counts once */
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        bool is_known = td_file_sha256(file) != NULL;
        file_bytes += file->source.id.size_bytes;
        known_count += is_known ? 1 : 0;
        known_bytes += is_known ? file->source.id.size_bytes : 0;
    }
    struct td_snapshot *old = hasher->snapshot;
    struct td_work_job *old_jobs = td_work_queue_clear(hasher->queue, BACKGROUND);
    hasher->snapshot = td_snapshot_ref(snapshot);
    begin_passes(hasher);
    hasher->file_count = snapshot->entry_count;
    hasher->file_bytes = file_bytes;
    hasher->counts.known_count = known_count;
    hasher->counts.known_bytes = known_bytes;
    td_work_queue_wake(hasher->queue);
    td_work_queue_unlock(hasher->queue);
    td_work_jobs_drop(hasher->queue, old_jobs);
    td_snapshot_unref(old);
}

void td_hasher_get_status(struct td_hasher *hasher, struct td_hasher_status *status)
{
    memset(status, 0, sizeof *status);
    if (hasher == NULL)
        return;
    td_work_queue_lock(hasher->queue);
    const struct counts *counts = &hasher->counts;
    *status = (struct td_hasher_status){
        .enabled = hasher->is_enabled,
        .file_count = hasher->file_count,
        .file_bytes = hasher->file_bytes,
        /* digests of files that only the snapshot before has may have become known since */
        .known_count = counts->known_count < hasher->file_count ? counts->known_count : hasher->file_count,
        .known_bytes = counts->known_bytes < hasher->file_bytes ? counts->known_bytes : hasher->file_bytes,
        .hashed_bytes = td_work_queue_done_bytes(hasher->queue),
        .failed_count = counts->failed_count,
        .mismatch_count = counts->mismatch_count,
    };
    td_work_queue_unlock(hasher->queue);
    status->stored = td_digest_log_is_stored(hasher->log);
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

/* Starts a thread of ordinary priority for each of the two levels of files that callers wait for. */
static bool start_wanted(const struct td_hasher *hasher, struct td_error *err)
{
    struct td_work_pool pool = {.purpose = "hash files for requests that wait", .thread_count = 1, .level_count = 1};
    bool ok = true;
    for (unsigned level = QUICK; ok && level <= SLOW; level++) {
        pool.levels[0] = level;
        ok = td_work_queue_start(hasher->queue, &pool, err);
    }
    return ok;
}

/* Starts the threads. */
static bool start_threads(struct td_hasher *hasher, struct td_error *err)
{
    const struct td_work_pool background = {
        .purpose = "hash files (--hash-threads)",
        .thread_count = hasher->config.threads < TD_HASHER_MAX_THREADS ? hasher->config.threads : TD_HASHER_MAX_THREADS,
        .levels = {BACKGROUND},
        .level_count = 1,
        .is_idle = true,
        .more = add_or_report};
    hasher->is_enabled = background.thread_count > 0;
    return !hasher->is_enabled || (start_wanted(hasher, err) && td_work_queue_start(hasher->queue, &background, err));
}

bool td_hasher_create(const struct td_hasher_config *config, struct td_hasher **out, struct td_error *err)
{
    struct td_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL)
        return td_error_no_memory(err);
    const struct td_work_config queue = {.run = run_job, .free = free_job, .may_begin = may_begin, .context = hasher};
    hasher->config = *config;
    hasher->rate = first_rate;
    if (!td_work_queue_create(&queue, &hasher->queue, err) ||
        !td_digest_log_open(config->state_dir, config->root, TD_RECORD_LOG_WRITE, &hasher->log, err) ||
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
    td_work_queue_destroy(hasher->queue);
    td_digest_log_close(hasher->log);
    td_snapshot_unref(hasher->snapshot);
    free(hasher);
}
