/* Hard: whether a file will be hashed in time is an estimate. It follows from the bytes ahead in its level and the
 * measured rate, or from the progress of another thread that hashes the same content. The scheduler may keep a
 * background thread from running at any time. So a file that is left to another thread stays in its level, and the
 * queue makes the estimate again every 0.2 s. */
#include "catalog/digests/hash_waiters.h"

#include "core/clock.h"

enum {
    MAX_WANTED = 256,            /* files in each level */
    MEASURED_BYTES = 1024 * 1024 /* the time for smaller files depends more on opening than on reading */
};

static const uint64_t first_rate = 400; /* bytes per microsecond, until measured */

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

/* Returns how many microseconds hashing the file takes once its turn has come, on a thread of ours or on another
 * one. */
static uint64_t cost_us(const struct td_hash_waiters *waiters, const struct td_file *file, uint64_t now_ns)
{
    uint64_t left_us;
    return is_left_to_others(waiters, file, now_ns, &left_us) ? left_us : whole_us(waiters, file);
}

/* Returns in how many microseconds one of our threads will be done with a file that it hashes now. */
static uint64_t rest_us(const struct td_hash_waiters *waiters, const struct td_file *file, uint64_t now_ns)
{
    uint64_t left_us = td_hash_work_left_us(waiters->work, &file->source.id, now_ns);
    uint64_t whole = whole_us(waiters, file);
    return left_us < whole ? left_us : whole;
}

/* Returns in how many microseconds the level's thread is done with the job and all before it; with the whole level when
 * the job is NULL. */
static uint64_t level_us(const struct td_hash_waiters *waiters, unsigned level, const struct td_work_job *job,
                         uint64_t now_ns)
{
    const struct td_work_job *at = td_work_queue_running(waiters->work->queue);
    while (at != NULL && at->level != level)
        at = at->next;
    uint64_t us = at != NULL ? rest_us(waiters, td_hash_job_of(at)->file, now_ns) : 0;
    bool is_found = at != NULL && at == job;
    for (at = td_work_queue_first(waiters->work->queue, level); at != NULL && !is_found; at = at->next) {
        us += cost_us(waiters, td_hash_job_of(at)->file, now_ns);
        is_found = at == job;
    }
    return us;
}

bool td_hash_waiters_may_begin(const struct td_hash_waiters *waiters, const struct td_hash_job *job)
{
    uint64_t left_us;
    return !is_left_to_others(waiters, job->file, td_clock_ns(), &left_us);
}

/* ---- the levels; all under the lock --------------------------------------------------------------------- */

/* Returns the job of the file in one of the two levels, or NULL. */
static struct td_work_job *find_wanted(const struct td_hash_waiters *waiters, const struct td_file *file)
{
    const struct td_work_queue *queue = waiters->work->queue;
    struct td_work_job *job = td_work_queue_next(queue, NULL);
    while (job != NULL && (job->level == TD_HASH_BACKGROUND || td_hash_job_of(job)->file != file))
        job = td_work_queue_next(queue, job);
    return job;
}

/* Adds a job for the file, if the level has room. */
static bool add_wanted(struct td_hash_waiters *waiters, struct td_root *root, struct td_file *file, unsigned level)
{
    struct td_work_queue *queue = waiters->work->queue;
    struct td_hash_job *job = td_work_queue_count(queue, level) < MAX_WANTED ? td_hash_job_create(root, file) : NULL;
    if (job != NULL)
        td_work_queue_add(queue, &job->work, level);
    return job != NULL;
}

/* Puts the file into the quick level if it will be hashed in time, else into the slow one, unless a level has it
 * already. Returns whether the caller is to wait. */
static bool want(struct td_hash_waiters *waiters, struct td_root *root, struct td_file *file,
                 const struct td_digest_wait *how)
{
    struct td_work_queue *queue = waiters->work->queue;
    struct td_work_job *job = find_wanted(waiters, file);
    uint64_t now_ns = td_clock_ns();
    uint64_t left_us = how->until_ns > now_ns ? (how->until_ns - now_ns) / 1000 : 0;
    if (job == NULL || (job->level == TD_HASH_SLOW && job->state == TD_WORK_WAITING)) {
        bool is_quick = td_work_queue_count(queue, TD_HASH_QUICK) < MAX_WANTED &&
                        level_us(waiters, TD_HASH_QUICK, NULL, now_ns) + cost_us(waiters, file, now_ns) <= left_us;
        if (job == NULL)
            return (is_quick || how->takes_any) &&
                   add_wanted(waiters, root, file, is_quick ? TD_HASH_QUICK : TD_HASH_SLOW);
        if (is_quick) {
            td_work_queue_move(queue, job, TD_HASH_QUICK);
            return true;
        }
    }
    return how->takes_any || level_us(waiters, job->level, job, now_ns) <= left_us;
}

/* ---- use ----------------------------------------------------------------------------------------------- */

/* Corrects the measured rate by a hash that took took_ns. Under the lock. */
static void measure(struct td_hash_waiters *waiters, uint64_t bytes, uint64_t took_ns)
{
    if (bytes >= MEASURED_BYTES && took_ns > 0) {
        uint64_t rate = bytes / (took_ns / 1000 + 1);
        waiters->rate = (waiters->rate * 3 + rate) / 4 + 1;
    }
}

void td_hash_waiters_run(struct td_hash_waiters *waiters, struct td_hash_job *job)
{
    struct td_hash_work *work = waiters->work;
    uint64_t began_ns = td_clock_ns();
    bool was_read = td_file_sha256(job->file) == NULL && td_hash_work_do(work, job, NULL);
    uint64_t took_ns = td_clock_ns() - began_ns;
    td_work_queue_lock(work->queue);
    if (was_read && job->work.level == TD_HASH_QUICK)
        measure(waiters, job->file->source.id.size_bytes, took_ns);
    td_work_queue_wake(work->queue); /* a background thread reports the digest */
    td_work_queue_unlock(work->queue);
}

bool td_hash_waiters_wait(struct td_hash_waiters *waiters, struct td_root *root, struct td_file *file,
                          const struct td_digest_wait *how)
{
    struct td_work_queue *queue = waiters->work->queue;
    td_work_queue_lock(queue);
    bool waits = want(waiters, root, file, how);
    while (waits && td_file_sha256(file) == NULL && find_wanted(waiters, file) != NULL)
        waits = td_work_queue_wait(queue, how->until_ns, how->cancel);
    td_work_queue_unlock(queue);
    return td_file_sha256(file) != NULL;
}

void td_hash_waiters_init(struct td_hash_waiters *waiters, struct td_hash_work *work)
{
    *waiters = (struct td_hash_waiters){.work = work, .rate = first_rate};
}

bool td_hash_waiters_start(const struct td_hash_waiters *waiters, struct td_error *err)
{
    struct td_work_pool pool = {.purpose = "hash files for requests that wait", .thread_count = 1, .level_count = 1};
    bool ok = true;
    for (unsigned level = TD_HASH_QUICK; ok && level <= TD_HASH_SLOW; level++) {
        pool.levels[0] = level;
        ok = td_work_queue_start(waiters->work->queue, &pool, err);
    }
    return ok;
}
