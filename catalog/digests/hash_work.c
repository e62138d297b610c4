#include "catalog/digests/hash_work.h"

#include "catalog/model/content_hash.h"
#include "core/log.h"

#include <stdlib.h>

enum {
    LONG_BYTES = 64 * 1024 * 1024, /* hashing as much takes so long that known digests are flushed first */
    MAX_FAILURES_LOGGED = 10
};

/* One call of td_content_hash. */
struct task {
    const struct td_hash_job *job;
    struct td_content_hash_options options;
    struct td_content_sums sums;
    struct td_error err;
    bool ok;
};

/* ---- jobs ---------------------------------------------------------------------------------------------- */

struct td_hash_job *td_hash_job_of(const struct td_work_job *work)
{
    return (struct td_hash_job *)(uintptr_t)work;
}

struct td_hash_job *td_hash_job_create(struct td_root *root, struct td_file *file)
{
    struct td_hash_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    td_work_job_init(&job->work, 0, file->source.id.size_bytes);
    job->root = td_root_ref(root);
    job->file = td_file_ref(file);
    return job;
}

void td_hash_job_free(struct td_work_job *work)
{
    struct td_hash_job *job = td_hash_job_of(work);
    td_root_unref(job->root);
    td_file_unref(job->file);
    free(job);
}

static bool is_of(const struct td_work_job *work, const struct td_file_id *id)
{
    return td_file_id_equal(&td_hash_job_of(work)->file->source.id, id);
}

bool td_hash_work_is_running(const struct td_hash_work *work, const struct td_file_id *id)
{
    const struct td_work_job *job = td_work_queue_running(work->queue);
    while (job != NULL && !is_of(job, id))
        job = job->next;
    return job != NULL;
}

uint64_t td_hash_work_left_us(const struct td_hash_work *work, const struct td_file_id *id, uint64_t now_ns)
{
    uint64_t least_us = UINT64_MAX;
    for (const struct td_work_job *job = td_work_queue_running(work->queue); job != NULL; job = job->next) {
        uint64_t us = is_of(job, id) ? td_work_job_left_us(job, now_ns) : UINT64_MAX;
        least_us = us < least_us ? us : least_us;
    }
    return least_us;
}

/* ---- hashing one file ---------------------------------------------------------------------------------- */

static void set_known(struct td_hash_work *work, struct td_file *file, const uint8_t *sum)
{
    td_work_queue_lock(work->queue);
    if (td_file_set_sha256(file, sum)) {
        work->counts.known_count++;
        work->counts.known_bytes += file->source.id.size_bytes;
        work->has_news = true;
    }
    td_work_queue_unlock(work->queue);
}

static void note_failure(struct td_hash_work *work, struct td_file *file, const struct td_error *why)
{
    if (why->code != TD_RESOURCE_EXHAUSTED)
        atomic_store(&file->hash_failed, true);
    td_work_queue_lock(work->queue);
    uint64_t count = ++work->counts.failed_count;
    td_work_queue_unlock(work->queue);
    td_log(count <= MAX_FAILURES_LOGGED && why->code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot hash \"%s\": %s",
           file->source.path, why->message);
}

/* Compares a blob's content with the hash in its name, and warns if they differ. */
static void check_name(struct td_hash_work *work, const struct td_file *file, enum td_blob_name kind, const char *name,
                       const struct td_content_sums *sums)
{
    if (td_cache_blob_name_fits(kind, name, sums))
        return;
    td_work_queue_lock(work->queue);
    uint64_t count = ++work->counts.mismatch_count;
    td_work_queue_unlock(work->queue);
    if (count <= MAX_FAILURES_LOGGED)
        td_log(TD_LOG_WARN,
               "\"%s\" does not hash to its blob's name %s: this cache is damaged; tensord verify lists all",
               file->source.path, name);
}

static void run_task(void *context)
{
    struct task *task = context;
    const struct td_file_source *source = &task->job->file->source;
    td_error_init(&task->err);
    task->ok = td_content_hash(task->job->root, source->path, &source->id, &task->options, &task->sums, &task->err);
}

bool td_hash_work_do(struct td_hash_work *work, struct td_hash_job *job, struct td_idle_thread *idle)
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
        .git_sha1 = kind == TD_BLOB_NAME_GIT_SHA1, .stop = &job->work.stop, .hashed_bytes = &job->work.done_bytes};
    if (idle != NULL)
        td_idle_thread_run(idle, run_task, &task);
    else
        run_task(&task);
    if (!task.ok) {
        if (!atomic_load(&job->work.stop))
            note_failure(work, job->file, &task.err);
        return false;
    }
    check_name(work, job->file, kind, name, &task.sums);
    td_digest_log_add(work->log, id, task.sums.sha256);
    set_known(work, job->file, task.sums.sha256);
    td_digest_log_flush_if_due(work->log);
    return true;
}
