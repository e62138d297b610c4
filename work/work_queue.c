/* Plan: a level is a list of waiting jobs, sorted by turns; running jobs form a list of their own. A job's turn is one
 * more than the turn of the job that its owner added before it to this level, and at least the turn of the job that was
 * last taken from the level. So no job waits forever. The search for the owner's last job begins at the end of the
 * list, so that adding a job takes constant time in a level with one owner. Jobs that wait for another try have one
 * turn, so they are in the order of their times, and a search ends at the first job whose time has not come.
 *
 * What is hard: when a job ends, waiting threads are woken only if a thread has passed over a job that could not begin
 * yet; else all idle threads would wake for each of many short jobs. */
#include "work/work_queue.h"

#include "core/clock.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct list {
    struct td_work_job *first, *last;
    size_t count;
};

struct level {
    struct list jobs;
    uint64_t turn; /* of the job that was taken last */
};

/* Two semaphores pass tasks and results between the owner and this thread. */
struct td_idle_thread {
    pthread_t thread;
    sem_t go, done;
    void (*run)(void *context); /* NULL ends the thread */
    void *context;
};

/* A thread of a pool. */
struct worker {
    struct td_work_thread thread;
    struct td_work_queue *queue;
    struct td_work_pool pool;
    struct td_idle_thread idle;
    pthread_t id;
    struct worker *next;
};

struct td_work_queue {
    struct td_work_config config;
    struct worker *workers; /* changes only before other threads use the queue, as the next one */
    size_t worker_count;
    _Atomic bool stop;

    pthread_mutex_t lock;
    pthread_cond_t work; /* there may be something to run; timed waits take times of td_clock_ns, as for `ended` */
    pthread_cond_t ended;
    /* under the lock */
    struct level levels[TD_WORK_LEVELS];
    struct list running;
    uint64_t last_number;
    uint64_t ended_bytes; /* done_bytes of all that has ended */
    bool end_is_awaited;  /* a thread has passed over a job that may begin when another one ends */
};

/* ---- lists --------------------------------------------------------------------------------------------- */

/* Inserts the job after another one; NULL: as the first. */
static void list_insert(struct list *list, struct td_work_job *after, struct td_work_job *job)
{
    job->previous = after;
    job->next = after == NULL ? list->first : after->next;
    *(job->previous == NULL ? &list->first : &job->previous->next) = job;
    *(job->next == NULL ? &list->last : &job->next->previous) = job;
    list->count++;
}

static void list_remove(struct list *list, struct td_work_job *job)
{
    *(job->previous == NULL ? &list->first : &job->previous->next) = job->next;
    *(job->next == NULL ? &list->last : &job->next->previous) = job->previous;
    job->previous = job->next = NULL;
    list->count--;
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

void td_work_job_init(struct td_work_job *job, uint64_t owner, uint64_t size_bytes)
{
    job->owner = owner;
    atomic_init(&job->size_bytes, size_bytes);
    atomic_init(&job->refs, 1);
}

struct td_work_job *td_work_job_ref(struct td_work_job *job)
{
    atomic_fetch_add(&job->refs, 1);
    return job;
}

void td_work_job_unref(const struct td_work_queue *queue, struct td_work_job *job)
{
    if (job != NULL && atomic_fetch_sub(&job->refs, 1) == 1)
        queue->config.free(job);
}

void td_work_jobs_drop(const struct td_work_queue *queue, struct td_work_job *list)
{
    for (struct td_work_job *next; list != NULL; list = next) {
        next = list->next;
        td_work_job_unref(queue, list);
    }
}

int td_work_job_compare(const struct td_work_job *a, const struct td_work_job *b)
{
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Bytes and microseconds are divided in floating point, which neither overflows nor divides by zero. */
uint64_t td_work_job_left_us(const struct td_work_job *job, uint64_t now_ns)
{
    uint64_t size_bytes = atomic_load(&job->size_bytes);
    uint64_t done_bytes = atomic_load(&job->done_bytes);
    if (done_bytes == 0)
        return UINT64_MAX;
    double left = done_bytes < size_bytes ? (double)(size_bytes - done_bytes) : 0;
    double us = left / (double)done_bytes * (double)(now_ns - job->since_ns) / 1000;
    return us < (double)INT64_MAX ? (uint64_t)us : UINT64_MAX;
}

/* ---- levels; all under the lock ------------------------------------------------------------------------- */

/* Returns the last job in the list that belongs to this owner and waits, or waited, in the level; NULL if none does. */
static const struct td_work_job *last_of_owner(const struct list *list, unsigned level, uint64_t owner)
{
    const struct td_work_job *job = list->last;
    while (job != NULL && (job->owner != owner || job->level != level))
        job = job->previous;
    return job;
}

/* Returns the turn of the next job that the owner adds to the level. */
static uint64_t next_turn(const struct td_work_queue *queue, unsigned number, uint64_t owner)
{
    const struct level *level = &queue->levels[number];
    const struct td_work_job *waiting = last_of_owner(&level->jobs, number, owner);
    const struct td_work_job *running = last_of_owner(&queue->running, number, owner);
    const struct td_work_job *before = waiting != NULL ? waiting : running;
    return before != NULL && before->turn >= level->turn ? before->turn + 1 : level->turn;
}

/* Puts the job into a level by its turn, behind jobs of the same turn. */
static void enter_level(struct td_work_queue *queue, struct td_work_job *job, unsigned number, uint64_t turn)
{
    struct list *jobs = &queue->levels[number].jobs;
    job->turn = turn;
    job->level = number;
    job->number = ++queue->last_number;
    job->state = TD_WORK_WAITING;
    struct td_work_job *after = jobs->last;
    while (after != NULL && after->turn > turn)
        after = after->previous;
    list_insert(jobs, after, job);
}

static void leave_level(struct td_work_queue *queue, struct td_work_job *job)
{
    list_remove(&queue->levels[job->level].jobs, job);
}

void td_work_queue_add(struct td_work_queue *queue, struct td_work_job *job, unsigned level)
{
    job->due_ns = 0;
    enter_level(queue, job, level, next_turn(queue, level, job->owner));
    td_work_queue_wake(queue);
}

void td_work_queue_move(struct td_work_queue *queue, struct td_work_job *job, unsigned level)
{
    leave_level(queue, job);
    td_work_queue_add(queue, job, level);
}

void td_work_queue_withdraw(struct td_work_queue *queue, struct td_work_job *job)
{
    leave_level(queue, job);
    job->state = TD_WORK_DONE;
    (void)pthread_cond_broadcast(&queue->ended);
}

struct td_work_job *td_work_queue_clear(struct td_work_queue *queue, unsigned level)
{
    struct list *jobs = &queue->levels[level].jobs;
    struct td_work_job *list = jobs->first;
    for (struct td_work_job *job = list; job != NULL; job = job->next)
        job->state = TD_WORK_DONE;
    for (struct td_work_job *job = queue->running.first; job != NULL; job = job->next)
        job->is_withdrawn = job->is_withdrawn || job->level == level;
    *jobs = (struct list){.first = NULL};
    (void)pthread_cond_broadcast(&queue->ended);
    return list;
}

struct td_work_job *td_work_queue_first(const struct td_work_queue *queue, unsigned level)
{
    return queue->levels[level].jobs.first;
}

struct td_work_job *td_work_queue_running(const struct td_work_queue *queue)
{
    return queue->running.first;
}

size_t td_work_queue_count(const struct td_work_queue *queue, unsigned level)
{
    return queue->levels[level].jobs.count;
}

struct td_work_job *td_work_queue_next(const struct td_work_queue *queue, const struct td_work_job *job)
{
    struct td_work_job *next = job == NULL ? queue->running.first : job->next;
    unsigned level = job == NULL || job->state == TD_WORK_RUNNING ? 0 : job->level + 1;
    for (; next == NULL && level < TD_WORK_LEVELS; level++)
        next = queue->levels[level].jobs.first;
    return next;
}

uint64_t td_work_queue_done_bytes(const struct td_work_queue *queue)
{
    uint64_t bytes = queue->ended_bytes;
    for (const struct td_work_job *job = queue->running.first; job != NULL; job = job->next)
        bytes += atomic_load(&job->done_bytes);
    return bytes;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

void td_work_queue_lock(struct td_work_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
}

void td_work_queue_unlock(struct td_work_queue *queue)
{
    pthread_mutex_unlock(&queue->lock);
}

bool td_work_queue_is_stopping(const struct td_work_queue *queue)
{
    return atomic_load(&queue->stop);
}

void td_work_queue_wake(struct td_work_queue *queue)
{
    (void)pthread_cond_broadcast(&queue->work);
}

bool td_work_queue_wait(struct td_work_queue *queue, uint64_t until_ns, const struct td_cancel *cancel)
{
    if (atomic_load(&queue->stop) || td_clock_ns() >= until_ns || td_cancel_is_asked(cancel))
        return false;
    const struct timespec until = td_clock_timespec(td_clock_part_ns(until_ns));
    (void)pthread_cond_timedwait(&queue->ended, &queue->lock, &until);
    return true;
}

/* ---- idle threads -------------------------------------------------------------------------------------- */

/* Makes this thread run only when nothing else wants the processor or the disk. Ignores what the host does not allow.
 */
static void lower_priority(void)
{
    enum { IOPRIO_WHO_PROCESS = 1, IOPRIO_IDLE = 3 << 13 };
    const struct sched_param none = {0};
    (void)sched_setscheduler(0, SCHED_IDLE, &none);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        continue; /* a signal */
}

static void *idle_main(void *argument)
{
    struct td_idle_thread *idle = argument;
    lower_priority();
    for (;;) {
        wait_for(&idle->go);
        if (idle->run == NULL)
            return NULL;
        idle->run(idle->context);
        (void)sem_post(&idle->done);
    }
}

/* Starts the thread. Returns false, with nothing to stop, when the system refuses. */
static bool idle_thread_start(struct td_idle_thread *idle)
{
    if (sem_init(&idle->go, 0, 0) != 0)
        return false;
    if (sem_init(&idle->done, 0, 0) == 0) {
        if (pthread_create(&idle->thread, NULL, idle_main, idle) == 0)
            return true;
        (void)sem_destroy(&idle->done);
    }
    (void)sem_destroy(&idle->go);
    return false;
}

void td_idle_thread_run(struct td_idle_thread *idle, void (*run)(void *context), void *context)
{
    idle->run = run;
    idle->context = context;
    (void)sem_post(&idle->go);
    wait_for(&idle->done);
}

/* Ends the thread, which runs no task, and waits for its end. */
static void idle_thread_stop(struct td_idle_thread *idle)
{
    idle->run = NULL;
    (void)sem_post(&idle->go);
    (void)pthread_join(idle->thread, NULL);
    (void)sem_destroy(&idle->go);
    (void)sem_destroy(&idle->done);
}

/* ---- the threads --------------------------------------------------------------------------------------- */

/* Returns the first job that the worker may begin, or NULL. Sets *again_ns to the time of the next search; UINT64_MAX:
 * when woken. Under the lock. */
static struct td_work_job *find_job(struct worker *worker, uint64_t *again_ns)
{
    struct td_work_queue *queue = worker->queue;
    const struct td_work_config *config = &queue->config;
    uint64_t now_ns = td_clock_ns();
    *again_ns = UINT64_MAX;
    for (size_t i = 0; i < worker->pool.level_count; i++) {
        struct td_work_job *job = queue->levels[worker->pool.levels[i]].jobs.first;
        for (; job != NULL && job->due_ns <= now_ns; job = job->next) {
            if (config->may_begin == NULL || config->may_begin(config->context, job))
                return job;
            *again_ns = td_clock_part_ns(*again_ns);
            queue->end_is_awaited = true;
        }
        if (job != NULL && job->due_ns < *again_ns) /* the time of the jobs after it comes later */
            *again_ns = job->due_ns;
    }
    return NULL;
}

static void begin_job(struct td_work_queue *queue, struct td_work_job *job)
{
    struct level *level = &queue->levels[job->level];
    leave_level(queue, job);
    level->turn = job->turn > level->turn ? job->turn : level->turn;
    list_insert(&queue->running, queue->running.last, job);
    atomic_store(&job->done_bytes, 0);
    job->since_ns = td_clock_ns();
    job->state = TD_WORK_RUNNING;
}

/* Ends a running job, or queues it for a retry. Returns whether the queue is to drop its reference. */
static bool end_job(struct td_work_queue *queue, struct td_work_job *job, bool is_done)
{
    bool is_over = is_done || job->is_withdrawn;
    list_remove(&queue->running, job);
    queue->ended_bytes += atomic_load(&job->done_bytes);
    if (is_over) {
        job->state = TD_WORK_DONE;
    } else {
        job->due_ns = td_clock_ns() + queue->config.retry_ns;
        enter_level(queue, job, queue->config.retry_level, 0);
    }
    (void)pthread_cond_broadcast(&queue->ended);
    if (!is_over || queue->end_is_awaited)
        td_work_queue_wake(queue);
    queue->end_is_awaited = false;
    return is_over;
}

/* Runs a waiting job. Under the lock, which is released while the job runs. */
static void run_job(struct worker *worker, struct td_work_job *job)
{
    struct td_work_queue *queue = worker->queue;
    begin_job(queue, job);
    td_work_queue_unlock(queue);
    bool is_done = queue->config.run(queue->config.context, job, &worker->thread);
    td_work_queue_lock(queue);
    if (!end_job(queue, job, is_done))
        return;
    td_work_queue_unlock(queue);
    td_work_job_unref(queue, job);
    td_work_queue_lock(queue);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct td_work_queue *queue = worker->queue;
    const struct td_work_pool *pool = &worker->pool;
    if (pool->nice != 0)
        (void)setpriority(PRIO_PROCESS, 0, pool->nice); /* of this thread alone */
    td_work_queue_lock(queue);
    while (!atomic_load(&queue->stop)) {
        uint64_t again_ns;
        struct td_work_job *job = find_job(worker, &again_ns);
        if (job != NULL) {
            run_job(worker, job);
        } else if (pool->more != NULL && pool->more(queue->config.context)) {
            continue;
        } else if (again_ns == UINT64_MAX) {
            (void)pthread_cond_wait(&queue->work, &queue->lock);
        } else {
            const struct timespec again = td_clock_timespec(again_ns);
            (void)pthread_cond_timedwait(&queue->work, &queue->lock, &again);
        }
    }
    td_work_queue_unlock(queue);
    return NULL;
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

bool td_work_queue_create(const struct td_work_config *config, struct td_work_queue **out, struct td_error *err)
{
    struct td_work_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return td_error_no_memory(err);
    queue->config = *config;
    bool has_work = td_clock_condition_init(&queue->work);
    bool has_ended = has_work && td_clock_condition_init(&queue->ended);
    if (has_ended && pthread_mutex_init(&queue->lock, NULL) == 0) {
        *out = queue;
        return true;
    }
    if (has_ended)
        (void)pthread_cond_destroy(&queue->ended);
    if (has_work)
        (void)pthread_cond_destroy(&queue->work);
    free(queue);
    return td_error_no_memory(err);
}

/* Starts one thread of the pool. Returns false, with nothing to undo, when the system refuses. */
static bool start_worker(struct td_work_queue *queue, const struct td_work_pool *pool)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return false;
    worker->queue = queue;
    worker->pool = *pool;
    worker->thread =
        (struct td_work_thread){.number = queue->worker_count, .idle = pool->is_idle ? &worker->idle : NULL};
    if (!pool->is_idle || idle_thread_start(&worker->idle)) {
        if (pthread_create(&worker->id, NULL, worker_main, worker) == 0) {
            worker->next = queue->workers;
            queue->workers = worker;
            queue->worker_count++;
            return true;
        }
        if (pool->is_idle)
            idle_thread_stop(&worker->idle);
    }
    free(worker);
    return false;
}

bool td_work_queue_start(struct td_work_queue *queue, const struct td_work_pool *pool, struct td_error *err)
{
    for (size_t i = 0; i < pool->thread_count; i++)
        if (!start_worker(queue, pool))
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "cannot start %zu threads that %s",
                                pool->is_idle ? 2 * pool->thread_count : pool->thread_count, pool->purpose);
    return true;
}

static void stop_threads(struct td_work_queue *queue)
{
    td_work_queue_lock(queue);
    atomic_store(&queue->stop, true);
    for (struct td_work_job *job = queue->running.first; job != NULL; job = job->next)
        atomic_store(&job->stop, true);
    td_work_queue_wake(queue);
    (void)pthread_cond_broadcast(&queue->ended);
    td_work_queue_unlock(queue);
}

void td_work_queue_destroy(struct td_work_queue *queue)
{
    if (queue == NULL)
        return;
    stop_threads(queue);
    for (struct worker *next, *worker = queue->workers; worker != NULL; worker = next) {
        next = worker->next;
        (void)pthread_join(worker->id, NULL);
        if (worker->pool.is_idle)
            idle_thread_stop(&worker->idle);
        free(worker);
    }
    for (unsigned level = 0; level < TD_WORK_LEVELS; level++)
        td_work_jobs_drop(queue, queue->levels[level].jobs.first);
    (void)pthread_cond_destroy(&queue->work);
    (void)pthread_cond_destroy(&queue->ended);
    (void)pthread_mutex_destroy(&queue->lock);
    free(queue);
}
