/* Hard: whether a file will be hashed in time is an estimate, of the bytes ahead in its queue and the measured rate, or
 * of how far and how fast another thread is with the same content. A background thread may be kept from running at any
 * time. So a file that is left to another thread stays in its queue, and a queue's thread compares anew every 0.2 s. */
#include "catalog/digests/hash_waiters.h"

#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_WANTED = 256,
    MEASURED_BYTES = 1024 * 1024 /* smaller files tell more about opening than about reading */
};

static const uint64_t first_rate = 400; /* bytes per microsecond, until measured */

/* Files that callers wait for, and the thread that hashes them. */
struct wanted_queue {
    struct td_hash_waiters *waiters;
    pthread_t thread;
    struct td_hash_run run;
    struct td_hash_job jobs[MAX_WANTED]; /* each with references; under the lock of `work`, as the count */
    size_t count;
};

struct td_hash_waiters {
    struct td_hash_work *work;
    uint64_t rate; /* of the quick queue's thread, bytes per microsecond, at least 1; under the lock of `work` */
    struct wanted_queue quick, slow;
};

static void job_drop(struct td_hash_job *job)
{
    td_root_unref(job->root);
    td_file_unref(job->file);
}

/* ---- estimates; all under the lock --------------------------------------------------------------------- */

/* Returns how long a thread of ours takes to hash the whole file, in microseconds. */
static uint64_t whole_us(const struct td_hash_waiters *waiters, const struct td_file *file)
{
    return file->source.id.size_bytes / waiters->rate + 1;
}

/* Returns whether another thread hashes the same content already, and will be done in half the time that a thread of
 * ours would take. Sets *left_us to when, in microseconds. With less to gain it would not be worth the risk that a
 * background thread is kept from running. */
static bool is_left_to_others(const struct td_hash_waiters *waiters, const struct td_file *file, uint64_t now_ns,
                              uint64_t *left_us)
{
    *left_us = td_hash_work_left_us(waiters->work, &file->source.id, now_ns);
    return *left_us <= whole_us(waiters, file) / 2;
}

/* Returns in how many microseconds the file is hashed when its turn has come, by a thread of ours or another one. */
static uint64_t cost_us(const struct td_hash_waiters *waiters, const struct td_file *file, uint64_t now_ns)
{
    uint64_t left_us;
    return is_left_to_others(waiters, file, now_ns, &left_us) ? left_us : whole_us(waiters, file);
}

/* Returns in how many microseconds a file that one of our threads hashes now is hashed. */
static uint64_t rest_us(const struct td_hash_waiters *waiters, const struct td_file *file, uint64_t now_ns)
{
    uint64_t left_us = td_hash_work_left_us(waiters->work, &file->source.id, now_ns);
    uint64_t whole = whole_us(waiters, file);
    return left_us < whole ? left_us : whole;
}

static bool is_in_queue(const struct wanted_queue *queue, const struct td_file *file)
{
    bool found = queue->run.file == file;
    for (size_t i = 0; i < queue->count && !found; i++)
        found = queue->jobs[i].file == file;
    return found;
}

static bool is_wanted(const struct td_hash_waiters *waiters, const struct td_file *file)
{
    return is_in_queue(&waiters->quick, file) || is_in_queue(&waiters->slow, file);
}

/* Returns in how many microseconds the queue's thread is done with the file and all before it; with the whole queue
 * when the file is not in it. */
static uint64_t queue_us(const struct wanted_queue *queue, const struct td_file *file, uint64_t now_ns)
{
    const struct td_file *running = queue->run.file;
    uint64_t us = running != NULL ? rest_us(queue->waiters, running, now_ns) : 0;
    bool found = running != NULL && running == file;
    for (size_t i = 0; i < queue->count && !found; i++) {
        us += cost_us(queue->waiters, queue->jobs[i].file, now_ns);
        found = queue->jobs[i].file == file;
    }
    return us;
}

/* ---- queues; all under the lock ------------------------------------------------------------------------ */

/* Removes and returns job i, with its references. */
static struct td_hash_job take_job(struct wanted_queue *queue, size_t i)
{
    struct td_hash_job job = queue->jobs[i];
    memmove(&queue->jobs[i], &queue->jobs[i + 1], (--queue->count - i) * sizeof queue->jobs[0]);
    return job;
}

/* Takes the first job that is not left to another thread. Returns false when there is none. */
static bool next_wanted(struct wanted_queue *queue, struct td_hash_job *job)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t left_us;
    for (size_t i = 0; i < queue->count; i++)
        if (!is_left_to_others(queue->waiters, queue->jobs[i].file, now_ns, &left_us)) {
            *job = take_job(queue, i);
            return true;
        }
    return false;
}

/* Adds the job, whose references the queue takes over. The caller has made sure that there is room. */
static void add_job(struct wanted_queue *queue, struct td_hash_job job)
{
    queue->jobs[queue->count++] = job;
    pthread_cond_broadcast(&queue->waiters->work->work);
}

/* Moves the file, if it waits in the slow queue, to the quick one, which has room. Returns whether it did. */
static bool move_up(struct td_hash_waiters *waiters, const struct td_file *file)
{
    struct wanted_queue *slow = &waiters->slow;
    for (size_t i = 0; i < slow->count; i++)
        if (slow->jobs[i].file == file) {
            add_job(&waiters->quick, take_job(slow, i));
            return true;
        }
    return false;
}

/* Puts the file into the queue that it belongs in, unless it is in one. Returns whether the caller is to wait. */
static bool want(struct td_hash_waiters *waiters, struct td_root *root, struct td_file *file,
                 const struct td_digest_wait *how)
{
    struct wanted_queue *quick = &waiters->quick;
    struct wanted_queue *slow = &waiters->slow;
    uint64_t now_ns = td_clock_ns();
    uint64_t left_us = how->until_ns > now_ns ? (how->until_ns - now_ns) / 1000 : 0;
    if (is_in_queue(quick, file) || slow->run.file == file) {
        const struct wanted_queue *queue = slow->run.file == file ? slow : quick;
        return how->takes_any || queue_us(queue, file, now_ns) <= left_us;
    }
    bool is_quick =
        quick->count < MAX_WANTED && queue_us(quick, NULL, now_ns) + cost_us(waiters, file, now_ns) <= left_us;
    if (is_quick && move_up(waiters, file))
        return true;
    if (is_in_queue(slow, file))
        return how->takes_any || queue_us(slow, file, now_ns) <= left_us;
    struct wanted_queue *queue = is_quick ? quick : slow;
    if (queue->count == MAX_WANTED || (!is_quick && !how->takes_any))
        return false;
    add_job(queue, (struct td_hash_job){.root = td_root_ref(root), .file = td_file_ref(file)});
    return true;
}

/* ---- the threads --------------------------------------------------------------------------------------- */

/* Corrects the measured rate by a hash that took took_ns. Under the lock. */
static void measure(struct td_hash_waiters *waiters, uint64_t bytes, uint64_t took_ns)
{
    if (bytes >= MEASURED_BYTES && took_ns > 0) {
        uint64_t rate = bytes / (took_ns / 1000 + 1);
        waiters->rate = (waiters->rate * 3 + rate) / 4 + 1;
    }
}

/* Hashes the job's file, and drops the job. Under the lock, which is released meanwhile. */
static void hash_wanted(struct wanted_queue *queue, struct td_hash_job *job)
{
    struct td_hash_waiters *waiters = queue->waiters;
    struct td_hash_work *work = waiters->work;
    td_hash_work_begin(work, &queue->run, job->file);
    pthread_mutex_unlock(&work->lock);
    uint64_t started_ns = td_clock_ns();
    bool was_read = td_file_sha256(job->file) == NULL && td_hash_work_do(work, &queue->run, job, NULL);
    uint64_t took_ns = td_clock_ns() - started_ns;
    pthread_mutex_lock(&work->lock);
    if (was_read && queue == &waiters->quick)
        measure(waiters, job->file->source.id.size_bytes, took_ns);
    td_hash_work_end(work, &queue->run);
    pthread_cond_broadcast(&work->work); /* a background thread reports the digest */
    pthread_mutex_unlock(&work->lock);
    job_drop(job);
    pthread_mutex_lock(&work->lock);
}

static void *wanted_main(void *argument)
{
    struct wanted_queue *queue = argument;
    struct td_hash_work *work = queue->waiters->work;
    struct td_hash_job job;
    pthread_mutex_lock(&work->lock);
    while (!atomic_load(&work->stop)) {
        if (next_wanted(queue, &job)) {
            hash_wanted(queue, &job);
        } else if (queue->count > 0) { /* all are left to other threads, which may become slow */
            const struct timespec until = td_clock_timespec(td_clock_part_ns(UINT64_MAX));
            work->end_is_awaited = true;
            (void)pthread_cond_timedwait(&work->work, &work->lock, &until);
        } else {
            (void)pthread_cond_wait(&work->work, &work->lock);
        }
    }
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

bool td_hash_waiters_wait(struct td_hash_waiters *waiters, struct td_root *root, struct td_file *file,
                          const struct td_digest_wait *how)
{
    struct td_hash_work *work = waiters->work;
    pthread_mutex_lock(&work->lock);
    bool waits = want(waiters, root, file, how);
    while (waits && td_file_sha256(file) == NULL && is_wanted(waiters, file) && !atomic_load(&work->stop) &&
           td_clock_ns() < how->until_ns && !td_cancel_is_asked(how->cancel)) {
        const struct timespec until = td_clock_timespec(td_clock_part_ns(how->until_ns));
        (void)pthread_cond_timedwait(&work->done, &work->lock, &until);
    }
    pthread_mutex_unlock(&work->lock);
    return td_file_sha256(file) != NULL;
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

bool td_hash_waiters_create(struct td_hash_work *work, struct td_hash_waiters **out, struct td_error *err)
{
    struct td_hash_waiters *waiters = calloc(1, sizeof *waiters);
    if (waiters == NULL)
        return td_error_no_memory(err);
    waiters->work = work;
    waiters->rate = first_rate;
    waiters->quick.waiters = waiters->slow.waiters = waiters;
    bool has_quick = pthread_create(&waiters->quick.thread, NULL, wanted_main, &waiters->quick) == 0;
    if (has_quick && pthread_create(&waiters->slow.thread, NULL, wanted_main, &waiters->slow) == 0) {
        *out = waiters;
        return true;
    }
    td_hash_work_stop(work);
    if (has_quick)
        (void)pthread_join(waiters->quick.thread, NULL);
    free(waiters);
    return td_error_set(err, TD_RESOURCE_EXHAUSTED, "cannot start two threads that hash files for requests that wait");
}

static void drop_queue(struct wanted_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        job_drop(&queue->jobs[i]);
}

void td_hash_waiters_destroy(struct td_hash_waiters *waiters)
{
    if (waiters == NULL)
        return;
    (void)pthread_join(waiters->quick.thread, NULL);
    (void)pthread_join(waiters->slow.thread, NULL);
    drop_queue(&waiters->quick);
    drop_queue(&waiters->slow);
    free(waiters);
}
