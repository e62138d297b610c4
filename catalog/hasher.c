/* Plan: background workers go over the entries of the snapshot twice, first over the files up to 1 MiB, then over the
 * rest. A worker claims a few entries under the lock, and hashes them without it. When all are done and a digest is
 * new, one worker flushes and compacts the log of digests and calls on_known, which rescans so that tags use the
 * digests. Two further threads serve td_hasher_wait(), each from a queue of its own.
 *
 * Hard: (1) background reading runs at SCHED_IDLE. A thread that the scheduler starves must not hold a lock, so each
 * worker has a reader thread that only reads and hashes, takes no lock of ours, and talks to its worker by two
 * semaphores. (2) One content under several names: a worker skips a file whose identity another worker is hashing, and
 * looks for it in the log in a later pass. (3) A waiter that cannot be served in time must not queue before those
 * that can: can_be_done() compares the bytes ahead with a measured rate, and the others have the long queue. */
#include "catalog/hasher.h"

#include "catalog/content_hash.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SMALL_BYTES = 1024 * 1024,     /* files up to this size come first, because clients look at them first */
    LONG_BYTES = 64 * 1024 * 1024, /* hashing as much takes so long that known digests are flushed first */
    MAX_WANTED = 256,
    MAX_THREADS = 64,
    MAX_FAILURES_LOGGED = 10
};

static const uint64_t flush_ns = 1000000000;
static const uint64_t first_rate = 400; /* bytes per microsecond, until measured */

/* A file and the root that it is in; holds a reference on both. */
struct job {
    struct td_root *root;
    struct td_file *file;
};

/* One call of td_content_hash. */
struct hashing_task {
    const struct job *job;
    struct td_content_hash_options options;
    struct td_content_sums sums;
    struct td_error err;
    bool ok;
};

/* A background thread, and the reader thread that reads and hashes for it when nothing else wants to run. The reader
 * takes no lock of ours: while others keep it from running, everybody who wants that lock would wait. So the reader
 * only waits for a task, and the background thread for the end of the task. */
struct worker {
    struct td_hasher *hasher;
    pthread_t thread, reader;
    sem_t go, done;
    struct hashing_task *task;  /* NULL ends the reader */
    const struct td_file *busy; /* the file that is being hashed; under the hasher's lock */
};

/* Files that callers wait for, and the thread that hashes them. */
struct wanted_queue {
    struct td_hasher *hasher;
    pthread_t thread;
    bool has_thread;
    struct job jobs[MAX_WANTED]; /* under the hasher's lock, as what follows */
    size_t count;
    const struct td_file *running; /* the file that the thread hashes */
};

struct td_hasher {
    struct td_hasher_config config;
    struct td_digest_log *log;
    struct worker workers[MAX_THREADS];
    size_t worker_count;
    struct wanted_queue quick; /* files that are hashed in time */
    struct wanted_queue slow;  /* the others */
    _Atomic bool stop;
    _Atomic uint64_t hashed_bytes;
    _Atomic uint64_t last_flush_ns;

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    /* under the lock */
    struct td_snapshot *snapshot;
    size_t next_entry;   /* the next entry of this pass */
    bool small_are_done; /* the pass over small files is over */
    bool was_skipped;    /* a file was skipped, because another path to its content was being hashed */
    bool has_news;       /* a digest became known after the last call of on_known */
    size_t claim_count;  /* background threads at work */
    uint64_t rate;       /* of the quick queue's thread, bytes per microsecond */
    struct td_hasher_status status;
};

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static void job_drop(struct job *job)
{
    td_root_unref(job->root);
    td_file_unref(job->file);
}

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
    if (hasher->next_entry >= snapshot->entry_count && hasher->was_skipped && hasher->claim_count == 0)
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

/* Takes the first job of a queue of td_hasher_wait. Returns false when the queue is empty. Under the lock. */
static bool next_wanted(struct wanted_queue *queue, struct job *job)
{
    if (queue->count == 0)
        return false;
    *job = queue->jobs[0];
    memmove(&queue->jobs[0], &queue->jobs[1], --queue->count * sizeof queue->jobs[0]);
    return true;
}

/* ---- hashing ------------------------------------------------------------------------------------------- */

static void count_known(struct td_hasher *hasher, const struct td_file *file)
{
    pthread_mutex_lock(&hasher->lock);
    hasher->status.known_count++;
    hasher->status.known_bytes += file->source.id.size_bytes;
    hasher->has_news = true;
    pthread_mutex_unlock(&hasher->lock);
}

static void note_failure(struct td_hasher *hasher, struct td_file *file, const struct td_error *why)
{
    if (why->code != TD_RESOURCE_EXHAUSTED)
        atomic_store(&file->hash_failed, true);
    pthread_mutex_lock(&hasher->lock);
    uint64_t count = ++hasher->status.failed_count;
    pthread_mutex_unlock(&hasher->lock);
    td_log(count <= MAX_FAILURES_LOGGED && why->code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot hash \"%s\": %s",
           file->source.path, why->message);
}

/* Compares a blob's content with the hash in its name, and warns if they differ. */
static void check_name(struct td_hasher *hasher, const struct td_file *file, enum td_blob_name kind, const char *name,
                       const struct td_content_sums *sums)
{
    if (td_cache_blob_name_fits(kind, name, sums))
        return;
    pthread_mutex_lock(&hasher->lock);
    uint64_t count = ++hasher->status.mismatch_count;
    pthread_mutex_unlock(&hasher->lock);
    if (count <= MAX_FAILURES_LOGGED)
        td_log(TD_LOG_WARN,
               "\"%s\" does not hash to its blob's name %s: this cache is damaged; tensord verify lists all",
               file->source.path, name);
}

static void flush_now_and_then(struct td_hasher *hasher)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t last_ns = atomic_load(&hasher->last_flush_ns);
    if (now_ns - last_ns >= flush_ns && atomic_compare_exchange_strong(&hasher->last_flush_ns, &last_ns, now_ns))
        td_digest_log_flush(hasher->log);
}

static void run_task(struct hashing_task *task)
{
    const struct td_file_source *source = &task->job->file->source;
    td_error_init(&task->err);
    task->ok = td_content_hash(task->job->root, source->path, &source->id, &task->options, &task->sums, &task->err);
}

/* Runs the task on the worker's reader; without a worker, on this thread. */
static void do_task(struct hashing_task *task, struct worker *worker)
{
    if (worker == NULL) {
        run_task(task);
        return;
    }
    worker->task = task;
    (void)sem_post(&worker->go);
    while (sem_wait(&worker->done) != 0)
        continue; /* a signal */
}

static void set_known(struct td_hasher *hasher, struct td_file *file, const uint8_t *sum)
{
    if (td_file_set_sha256(file, sum))
        count_known(hasher, file);
}

/* Makes the file's digest known. Returns whether the file was read to its end. */
static bool hash_file(struct td_hasher *hasher, const struct job *job, struct worker *worker)
{
    const struct td_file_id *id = &job->file->source.id;
    char name[TD_SHA256_TEXT_BYTES];
    struct hashing_task task = {.job = job};
    if (td_digest_log_find(hasher->log, id, task.sums.sha256)) { /* another path to the same content was hashed */
        set_known(hasher, job->file, task.sums.sha256);
        return false;
    }
    if (id->size_bytes >= LONG_BYTES)
        td_digest_log_flush(hasher->log);
    enum td_blob_name kind = td_cache_blob_name_of(job->root, job->file->source.path, name);
    task.options.git_sha1 = kind == TD_BLOB_NAME_GIT_SHA1;
    task.options.stop = &hasher->stop;
    task.options.hashed_bytes = &hasher->hashed_bytes;
    do_task(&task, worker);
    if (!task.ok) {
        if (!atomic_load(&hasher->stop))
            note_failure(hasher, job->file, &task.err);
        return false;
    }
    check_name(hasher, job->file, kind, name, &task.sums);
    td_digest_log_add(hasher->log, id, task.sums.sha256);
    set_known(hasher, job->file, task.sums.sha256);
    flush_now_and_then(hasher);
    return true;
}

/* ---- digests of files that are gone -------------------------------------------------------------------- */

static bool is_in_set(void *context, const struct td_file_id *id)
{
    uint8_t sum[TD_SHA256_BYTES];
    return td_digest_log_find(context, id, sum);
}

/* Drops the digests of files that are gone, once they outnumber the others. */
static void compact(struct td_hasher *hasher, const struct td_snapshot *snapshot)
{
    enum { SLACK = 10000 };
    static const uint8_t none[TD_SHA256_BYTES];
    struct td_digest_log *set;
    if (td_digest_log_count(hasher->log) < 2 * snapshot->entry_count + SLACK ||
        !td_digest_log_open(NULL, NULL, TD_DIGEST_LOG_READ, &set, NULL))
        return;
    for (size_t i = 0; i < snapshot->entry_count; i++)
        td_digest_log_add(set, &snapshot->entries[i].file->source.id, none);
    if (td_digest_log_count(set) <= snapshot->entry_count)
        td_digest_log_compact(hasher->log, is_in_set, set);
    td_digest_log_close(set);
}

/* Flushes and compacts the log, and calls on_known, after all files of the snapshot have been looked at. Under the
 * lock, which is released meanwhile. */
static void report(struct td_hasher *hasher)
{
    hasher->has_news = false;
    struct td_snapshot *snapshot = td_snapshot_ref(hasher->snapshot);
    pthread_mutex_unlock(&hasher->lock);
    td_digest_log_flush(hasher->log);
    compact(hasher, snapshot);
    td_snapshot_unref(snapshot);
    if (hasher->config.on_known != NULL)
        hasher->config.on_known(hasher->config.context);
    pthread_mutex_lock(&hasher->lock);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

/* Makes this thread run only when nothing else wants the processor or the disk. Ignores what the host does not allow.
 */
static void step_back(void)
{
    enum { IOPRIO_WHO_PROCESS = 1, IOPRIO_IDLE = 3 << 13 };
    const struct sched_param none = {0};
    (void)sched_setscheduler(0, SCHED_IDLE, &none);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
}

static void *reader_main(void *argument)
{
    struct worker *worker = argument;
    step_back();
    for (;;) {
        while (sem_wait(&worker->go) != 0)
            continue; /* a signal */
        if (worker->task == NULL)
            return NULL;
        run_task(worker->task);
        (void)sem_post(&worker->done);
    }
}

/* Notes the file that the worker hashes. Returns false when another worker hashes the same content under another name.
 */
static bool begin_file(struct td_hasher *hasher, struct worker *worker, const struct td_file *file)
{
    bool taken = false;
    pthread_mutex_lock(&hasher->lock);
    for (size_t i = 0; i < hasher->worker_count && !taken; i++) {
        const struct td_file *other = hasher->workers[i].busy;
        taken = other != NULL && td_file_id_equal(&other->source.id, &file->source.id);
    }
    if (taken)
        hasher->was_skipped = true; /* a later pass finds it in the log */
    else
        worker->busy = file;
    pthread_mutex_unlock(&hasher->lock);
    return !taken;
}

/* Notes that the worker is done with a file. Returns false when there is a new snapshot, which is worked on from its
 * beginning. */
static bool end_file(struct td_hasher *hasher, struct worker *worker, const struct claim *claim)
{
    pthread_mutex_lock(&hasher->lock);
    worker->busy = NULL;
    bool current = hasher->snapshot == claim->snapshot;
    pthread_mutex_unlock(&hasher->lock);
    return current;
}

static void hash_claimed(struct td_hasher *hasher, struct worker *worker, const struct claim *claim)
{
    for (size_t i = claim->first; i < claim->end && !atomic_load(&hasher->stop); i++) {
        struct td_file *file = claim->snapshot->entries[i].file;
        const struct job job = {.root = claim->snapshot->root, .file = file};
        bool small = file->source.id.size_bytes <= SMALL_BYTES;
        if (td_file_sha256(file) != NULL || small != claim->small || atomic_load(&file->hash_failed) ||
            !begin_file(hasher, worker, file))
            continue;
        (void)hash_file(hasher, &job, worker);
        if (!end_file(hasher, worker, claim))
            return;
    }
}

static void *background_main(void *argument)
{
    struct worker *worker = argument;
    struct td_hasher *hasher = worker->hasher;
    struct claim claim;
    pthread_mutex_lock(&hasher->lock);
    while (!atomic_load(&hasher->stop)) {
        if (claim_files(hasher, &claim)) {
            pthread_mutex_unlock(&hasher->lock);
            hash_claimed(hasher, worker, &claim);
            td_snapshot_unref(claim.snapshot);
            pthread_mutex_lock(&hasher->lock);
            hasher->claim_count--;
        } else if (hasher->has_news && hasher->claim_count == 0 && hasher->snapshot != NULL) {
            report(hasher);
        } else {
            pthread_cond_wait(&hasher->work, &hasher->lock);
        }
    }
    pthread_mutex_unlock(&hasher->lock);
    return NULL;
}

/* Corrects the measured rate by a hash that took took_ns. Under the lock. */
static void measure(struct td_hasher *hasher, uint64_t bytes, uint64_t took_ns)
{
    if (bytes >= SMALL_BYTES && took_ns > 0) {
        uint64_t rate = bytes / (took_ns / 1000 + 1);
        hasher->rate = (hasher->rate * 3 + rate) / 4 + 1;
    }
}

static void *wanted_main(void *argument)
{
    struct wanted_queue *queue = argument;
    struct td_hasher *hasher = queue->hasher;
    struct job job;
    pthread_mutex_lock(&hasher->lock);
    while (!atomic_load(&hasher->stop)) {
        if (!next_wanted(queue, &job)) {
            pthread_cond_wait(&hasher->work, &hasher->lock);
            continue;
        }
        queue->running = job.file;
        pthread_mutex_unlock(&hasher->lock);
        uint64_t started_ns = td_clock_ns();
        bool was_read = td_file_sha256(job.file) == NULL && hash_file(hasher, &job, NULL);
        uint64_t took_ns = td_clock_ns() - started_ns;
        pthread_mutex_lock(&hasher->lock);
        if (was_read && queue == &hasher->quick)
            measure(hasher, job.file->source.id.size_bytes, took_ns);
        queue->running = NULL;
        pthread_cond_broadcast(&hasher->done);
        pthread_cond_broadcast(&hasher->work); /* a worker reports the digest */
        pthread_mutex_unlock(&hasher->lock);
        job_drop(&job);
        pthread_mutex_lock(&hasher->lock);
    }
    pthread_mutex_unlock(&hasher->lock);
    return NULL;
}

/* ---- waiting for a digest ------------------------------------------------------------------------------ */

/* Returns whether the queue's thread hashes the file or will. Under the lock. */
static bool is_in_queue(const struct wanted_queue *queue, const struct td_file *file)
{
    bool found = queue->running == file;
    for (size_t i = 0; i < queue->count && !found; i++)
        found = queue->jobs[i].file == file;
    return found;
}

/* Does the same for both queues. */
static bool is_wanted(const struct td_hasher *hasher, const struct td_file *file)
{
    return is_in_queue(&hasher->quick, file) || is_in_queue(&hasher->slow, file);
}

/* Returns the bytes that the queue's thread hashes before a new job. Under the lock. */
static uint64_t bytes_ahead(const struct wanted_queue *queue)
{
    uint64_t bytes = queue->running != NULL ? queue->running->source.id.size_bytes : 0;
    for (size_t i = 0; i < queue->count; i++)
        bytes += queue->jobs[i].file->source.id.size_bytes;
    return bytes;
}

/* Returns whether the quick queue can hash the file until until_ns, at its measured rate. Under the lock. */
static bool can_be_done(const struct td_hasher *hasher, const struct td_file *file, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t left_us = until_ns > now_ns ? (until_ns - now_ns) / 1000 : 0;
    uint64_t bytes = file->source.id.size_bytes;
    return bytes <= left_us * hasher->rate && bytes_ahead(&hasher->quick) <= left_us * hasher->rate - bytes;
}

/* Puts the file into the queue that it belongs in, unless that is full or the file is in one. Under the lock. */
static void want(struct td_hasher *hasher, struct td_root *root, struct td_file *file, const struct td_digest_wait *how)
{
    bool is_quick = can_be_done(hasher, file, td_clock_ns(), how->until_ns);
    struct wanted_queue *queue = is_quick ? &hasher->quick : &hasher->slow;
    if (is_wanted(hasher, file) || queue->count == MAX_WANTED || (!is_quick && !how->takes_any))
        return;
    queue->jobs[queue->count++] = (struct job){.root = td_root_ref(root), .file = td_file_ref(file)};
    pthread_cond_broadcast(&hasher->work);
}

bool td_hasher_wait(struct td_hasher *hasher, struct td_root *root, struct td_file *file,
                    const struct td_digest_wait *how)
{
    if (td_file_sha256(file) != NULL)
        return true;
    if (hasher == NULL || !hasher->slow.has_thread || !td_may_wait(NULL))
        return false;
    pthread_mutex_lock(&hasher->lock);
    want(hasher, root, file, how);
    while (td_file_sha256(file) == NULL && is_wanted(hasher, file) && !atomic_load(&hasher->stop) &&
           td_clock_ns() < how->until_ns && !td_cancel_is_asked(how->cancel)) {
        const struct timespec until = td_clock_timespec(td_clock_part_ns(how->until_ns));
        (void)pthread_cond_timedwait(&hasher->done, &hasher->lock, &until);
    }
    pthread_mutex_unlock(&hasher->lock);
    return td_file_sha256(file) != NULL;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

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
    struct td_hasher_status counted = {.file_count = snapshot->entry_count};
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        bool known = td_file_sha256(file) != NULL;
        counted.file_bytes += file->source.id.size_bytes;
        counted.known_count += known ? 1 : 0;
        counted.known_bytes += known ? file->source.id.size_bytes : 0;
    }
    pthread_mutex_lock(&hasher->lock);
    struct td_snapshot *old = hasher->snapshot;
    hasher->snapshot = td_snapshot_ref(snapshot);
    begin_pass(hasher);
    hasher->status.file_count = counted.file_count;
    hasher->status.file_bytes = counted.file_bytes;
    hasher->status.known_count = counted.known_count;
    hasher->status.known_bytes = counted.known_bytes;
    pthread_cond_broadcast(&hasher->work);
    pthread_mutex_unlock(&hasher->lock);
    td_snapshot_unref(old);
}

void td_hasher_get_status(struct td_hasher *hasher, struct td_hasher_status *status)
{
    memset(status, 0, sizeof *status);
    if (hasher == NULL)
        return;
    pthread_mutex_lock(&hasher->lock);
    *status = hasher->status;
    pthread_mutex_unlock(&hasher->lock);
    if (status->known_count > status->file_count) /* files of the snapshot before became known meanwhile */
        status->known_count = status->file_count;
    if (status->known_bytes > status->file_bytes)
        status->known_bytes = status->file_bytes;
    status->enabled = hasher->slow.has_thread;
    status->stored = td_digest_log_is_stored(hasher->log);
    status->hashed_bytes = atomic_load(&hasher->hashed_bytes);
}

static bool init_sync(struct td_hasher *hasher)
{
    return pthread_cond_init(&hasher->work, NULL) == 0 && td_clock_condition_init(&hasher->done) &&
           pthread_mutex_init(&hasher->lock, NULL) == 0;
}

static bool start_worker(struct td_hasher *hasher)
{
    struct worker *worker = &hasher->workers[hasher->worker_count];
    worker->hasher = hasher;
    if (sem_init(&worker->go, 0, 0) != 0 || sem_init(&worker->done, 0, 0) != 0 ||
        pthread_create(&worker->reader, NULL, reader_main, worker) != 0)
        return false;
    if (pthread_create(&worker->thread, NULL, background_main, worker) != 0) {
        (void)sem_post(&worker->go);
        (void)pthread_join(worker->reader, NULL);
        return false;
    }
    hasher->worker_count++;
    return true;
}

static bool start_queue(struct td_hasher *hasher, struct wanted_queue *queue)
{
    queue->hasher = hasher;
    queue->has_thread = pthread_create(&queue->thread, NULL, wanted_main, queue) == 0;
    return queue->has_thread;
}

/* Starts the threads. Workers look at each other only under the lock, and there is nothing to hash yet. */
static bool start_threads(struct td_hasher *hasher, struct td_error *err)
{
    size_t wanted = hasher->config.threads < MAX_THREADS ? hasher->config.threads : MAX_THREADS;
    if (wanted == 0)
        return true;
    bool ok = start_queue(hasher, &hasher->quick) && start_queue(hasher, &hasher->slow);
    pthread_mutex_lock(&hasher->lock);
    while (ok && hasher->worker_count < wanted)
        ok = start_worker(hasher);
    pthread_mutex_unlock(&hasher->lock);
    return ok ||
           td_error_set(err, TD_RESOURCE_EXHAUSTED, "cannot start %zu threads for --hash-threads", 2 * wanted + 2);
}

static void join_threads(struct td_hasher *hasher)
{
    if (hasher->quick.has_thread)
        (void)pthread_join(hasher->quick.thread, NULL);
    if (hasher->slow.has_thread)
        (void)pthread_join(hasher->slow.thread, NULL);
    for (size_t i = 0; i < hasher->worker_count; i++) {
        struct worker *worker = &hasher->workers[i];
        (void)pthread_join(worker->thread, NULL);
        worker->task = NULL;
        (void)sem_post(&worker->go);
        (void)pthread_join(worker->reader, NULL);
        (void)sem_destroy(&worker->go);
        (void)sem_destroy(&worker->done);
    }
}

bool td_hasher_create(const struct td_hasher_config *config, struct td_hasher **out, struct td_error *err)
{
    struct td_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL)
        return td_error_no_memory(err);
    hasher->config = *config;
    hasher->rate = first_rate;
    if (!init_sync(hasher)) {
        free(hasher);
        return td_error_no_memory(err);
    }
    if (!td_digest_log_open(config->state_dir, config->root, TD_DIGEST_LOG_WRITE, &hasher->log, err) ||
        !start_threads(hasher, err)) {
        td_hasher_destroy(hasher);
        return false;
    }
    *out = hasher;
    return true;
}

static void drop_queue(struct wanted_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        job_drop(&queue->jobs[i]);
}

void td_hasher_destroy(struct td_hasher *hasher)
{
    if (hasher == NULL)
        return;
    pthread_mutex_lock(&hasher->lock);
    atomic_store(&hasher->stop, true);
    pthread_cond_broadcast(&hasher->work);
    pthread_cond_broadcast(&hasher->done);
    pthread_mutex_unlock(&hasher->lock);
    join_threads(hasher);
    drop_queue(&hasher->quick);
    drop_queue(&hasher->slow);
    td_snapshot_unref(hasher->snapshot);
    td_digest_log_close(hasher->log);
    (void)pthread_cond_destroy(&hasher->work);
    (void)pthread_cond_destroy(&hasher->done);
    (void)pthread_mutex_destroy(&hasher->lock);
    free(hasher);
}
