#include "catalog/digests/hash_work.h"

#include "catalog/model/content_hash.h"
#include "core/clock.h"
#include "core/log.h"

#include <string.h>

enum {
    LONG_BYTES = 64 * 1024 * 1024, /* hashing as much takes so long that known digests are flushed first */
    MAX_FAILURES_LOGGED = 10
};

static const uint64_t flush_ns = 1000000000;

/* One call of td_content_hash. */
struct task {
    const struct td_hash_job *job;
    struct td_content_hash_options options;
    struct td_content_sums sums;
    struct td_error err;
    bool ok;
};

bool td_hash_work_init(struct td_hash_work *work)
{
    if (!td_clock_condition_init(&work->work))
        return false;
    if (td_clock_condition_init(&work->done)) {
        if (pthread_mutex_init(&work->lock, NULL) == 0)
            return true;
        (void)pthread_cond_destroy(&work->done);
    }
    (void)pthread_cond_destroy(&work->work);
    return false;
}

void td_hash_work_fini(struct td_hash_work *work)
{
    td_digest_log_close(work->log);
    (void)pthread_cond_destroy(&work->work);
    (void)pthread_cond_destroy(&work->done);
    (void)pthread_mutex_destroy(&work->lock);
}

void td_hash_work_stop(struct td_hash_work *work)
{
    pthread_mutex_lock(&work->lock);
    atomic_store(&work->stop, true);
    pthread_cond_broadcast(&work->work);
    pthread_cond_broadcast(&work->done);
    pthread_mutex_unlock(&work->lock);
}

/* ---- files that are being hashed ----------------------------------------------------------------------- */

void td_hash_work_begin(struct td_hash_work *work, struct td_hash_run *run, const struct td_file *file)
{
    run->file = file;
    run->since_ns = td_clock_ns();
    run->next = work->runs;
    atomic_store(&run->done_bytes, 0);
    work->runs = run;
}

void td_hash_work_end(struct td_hash_work *work, struct td_hash_run *run)
{
    struct td_hash_run **at = &work->runs;
    while (*at != run)
        at = &(*at)->next;
    *at = run->next;
    run->file = NULL;
    work->counts.hashed_bytes += atomic_load(&run->done_bytes);
    pthread_cond_broadcast(&work->done);
    if (work->end_is_awaited) /* else idle threads would wake for each of many small files */
        pthread_cond_broadcast(&work->work);
    work->end_is_awaited = false;
}

bool td_hash_work_is_running(const struct td_hash_work *work, const struct td_file_id *id)
{
    for (const struct td_hash_run *run = work->runs; run != NULL; run = run->next)
        if (td_file_id_equal(&run->file->source.id, id))
            return true;
    return false;
}

/* Returns the same as td_hash_work_left_us for one run. Bytes and microseconds are divided in floating point, which
 * neither overflows nor divides by zero. */
static uint64_t left_us(const struct td_hash_run *run, uint64_t now_ns)
{
    uint64_t size_bytes = run->file->source.id.size_bytes;
    uint64_t done_bytes = atomic_load(&run->done_bytes);
    if (done_bytes == 0)
        return UINT64_MAX;
    double left = done_bytes < size_bytes ? (double)(size_bytes - done_bytes) : 0;
    double us = left / (double)done_bytes * (double)(now_ns - run->since_ns) / 1000;
    return us < (double)INT64_MAX ? (uint64_t)us : UINT64_MAX;
}

uint64_t td_hash_work_left_us(const struct td_hash_work *work, const struct td_file_id *id, uint64_t now_ns)
{
    uint64_t least_us = UINT64_MAX;
    for (const struct td_hash_run *run = work->runs; run != NULL; run = run->next) {
        uint64_t us = td_file_id_equal(&run->file->source.id, id) ? left_us(run, now_ns) : UINT64_MAX;
        least_us = us < least_us ? us : least_us;
    }
    return least_us;
}

uint64_t td_hash_work_hashed_bytes(const struct td_hash_work *work)
{
    uint64_t bytes = work->counts.hashed_bytes;
    for (const struct td_hash_run *run = work->runs; run != NULL; run = run->next)
        bytes += atomic_load(&run->done_bytes);
    return bytes;
}

/* ---- hashing one file ---------------------------------------------------------------------------------- */

static void set_known(struct td_hash_work *work, struct td_file *file, const uint8_t *sum)
{
    pthread_mutex_lock(&work->lock);
    if (td_file_set_sha256(file, sum)) {
        work->counts.known_count++;
        work->counts.known_bytes += file->source.id.size_bytes;
        work->has_news = true;
    }
    pthread_mutex_unlock(&work->lock);
}

static void note_failure(struct td_hash_work *work, struct td_file *file, const struct td_error *why)
{
    if (why->code != TD_RESOURCE_EXHAUSTED)
        atomic_store(&file->hash_failed, true);
    pthread_mutex_lock(&work->lock);
    uint64_t count = ++work->counts.failed_count;
    pthread_mutex_unlock(&work->lock);
    td_log(count <= MAX_FAILURES_LOGGED && why->code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot hash \"%s\": %s",
           file->source.path, why->message);
}

/* Compares a blob's content with the hash in its name, and warns if they differ. */
static void check_name(struct td_hash_work *work, const struct td_file *file, enum td_blob_name kind, const char *name,
                       const struct td_content_sums *sums)
{
    if (td_cache_blob_name_fits(kind, name, sums))
        return;
    pthread_mutex_lock(&work->lock);
    uint64_t count = ++work->counts.mismatch_count;
    pthread_mutex_unlock(&work->lock);
    if (count <= MAX_FAILURES_LOGGED)
        td_log(TD_LOG_WARN,
               "\"%s\" does not hash to its blob's name %s: this cache is damaged; tensord verify lists all",
               file->source.path, name);
}

static void flush_now_and_then(struct td_hash_work *work)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t last_ns = atomic_load(&work->last_flush_ns);
    if (now_ns - last_ns >= flush_ns && atomic_compare_exchange_strong(&work->last_flush_ns, &last_ns, now_ns))
        td_digest_log_flush(work->log);
}

static void run_task(void *context)
{
    struct task *task = context;
    const struct td_file_source *source = &task->job->file->source;
    td_error_init(&task->err);
    task->ok = td_content_hash(task->job->root, source->path, &source->id, &task->options, &task->sums, &task->err);
}

bool td_hash_work_do(struct td_hash_work *work, struct td_hash_run *run, const struct td_hash_job *job,
                     struct td_idle_thread *idle)
{
    const struct td_file_id *id = &job->file->source.id;
    char name[TD_SHA256_TEXT_BYTES];
    struct task task = {.job = job};
    if (td_digest_log_find(work->log, id, task.sums.sha256)) { /* another path to the same content was hashed */
        set_known(work, job->file, task.sums.sha256);
        return false;
    }
    if (id->size_bytes >= LONG_BYTES)
        td_digest_log_flush(work->log);
    enum td_blob_name kind = td_cache_blob_name_of(job->root, job->file->source.path, name);
    task.options = (struct td_content_hash_options){
        .git_sha1 = kind == TD_BLOB_NAME_GIT_SHA1, .stop = &work->stop, .hashed_bytes = &run->done_bytes};
    if (idle != NULL)
        td_idle_thread_run(idle, run_task, &task);
    else
        run_task(&task);
    if (!task.ok) {
        if (!atomic_load(&work->stop))
            note_failure(work, job->file, &task.err);
        return false;
    }
    check_name(work, job->file, kind, name, &task.sums);
    td_digest_log_add(work->log, id, task.sums.sha256);
    set_known(work, job->file, task.sums.sha256);
    flush_now_and_then(work);
    return true;
}
