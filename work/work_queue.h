/* Background work: a queue of jobs, and the threads that run them.
 *
 * Jobs wait in numbered levels. A thread takes the first job that may begin, from the first of its levels that has one.
 * So levels order jobs by class: a thread with the levels small and large runs small jobs first, and a thread that has
 * the level of small jobs alone is always there for them. Within a level, owners take turns: every owner's
 * first job runs before anybody's second, and so on; jobs of one owner keep the order in which they were added.
 *
 * Ownership: a job is the first member of a struct of the user, who allocates it. Jobs are reference-counted: the queue
 * holds one reference from td_work_queue_add until the job is done or withdrawn. A thread that waits for a job may hold
 * another one.
 *
 * Threads and the lock: any thread may call these functions. "Under the lock" means between td_work_queue_lock and
 * td_work_queue_unlock. Users may keep data of their own under this lock, such as what their callbacks compare. No
 * other lock of this module exists; what a callback may lock follows from where it is called. */
#ifndef TD_WORK_WORK_QUEUE_H
#define TD_WORK_WORK_QUEUE_H

#include "core/cancel.h"
#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_WORK_LEVELS = 4 /* most levels of a queue */ };

enum td_work_state {
    TD_WORK_WAITING, /* in a level */
    TD_WORK_RUNNING,
    TD_WORK_DONE, /* was run to its end, or withdrawn */
};

struct td_work_job {
    /* set by the user before the job is added */
    uint64_t owner;              /* takes turns with other owners */
    _Atomic uint64_t size_bytes; /* of the whole work; the user's callback may correct it */

    /* while the job runs */
    _Atomic uint64_t done_bytes; /* progress; raised by the user's callback, read by any thread */
    _Atomic bool stop;           /* the callback is to return soon; set by any thread, and when the queue stops */

    /* set by the queue; read under the lock */
    enum td_work_state state;
    unsigned level;           /* in which the job waits, or waited until it was taken */
    uint64_t turn, number;    /* order of the jobs in a level; `number` also that of equal turns in different levels */
    struct td_work_job *next; /* in its level, or in the list of running jobs; NULL: the last */

    /* for the queue alone */
    struct td_work_job *previous;
    uint64_t due_ns, since_ns;
    bool is_withdrawn;
    _Atomic int refs;
};

/* A thread that runs tasks only when nothing else wants the processor or the disk (SCHED_IDLE, idle class of ioprio),
 * as far as the host allows. While other work keeps it from running, threads that want a lock that it holds would wait.
 * So a task takes no lock that other threads take. */
struct td_idle_thread;

/* Calls run(context) on the idle thread, and waits for its end. One caller at a time. */
void td_idle_thread_run(struct td_idle_thread *idle, void (*run)(void *context), void *context);

/* The thread that a callback runs on. */
struct td_work_thread {
    size_t number;               /* of the thread in its queue, from 0, in the order in which they were started */
    struct td_idle_thread *idle; /* of this thread; NULL: its pool has no idle threads */
};

struct td_work_config {
    /* Runs the job, without the lock. Returns whether the job is done; if not, and unless it was withdrawn since, it
     * waits in retry_level for retry_ns and runs again. */
    bool (*run)(void *context, struct td_work_job *job, const struct td_work_thread *thread);

    /* Frees a job without references. Called by the thread that drops the last one, without the lock. */
    void (*free)(struct td_work_job *job);

    /* Returns whether a job may begin now. Else it keeps its place, and the queue asks again when a job ends, and after
     * at most 0.2 s. Under the lock. NULL: all jobs may. */
    bool (*may_begin)(void *context, const struct td_work_job *job);

    void *context; /* for all callbacks; borrowed */
    uint64_t retry_ns;
    unsigned retry_level; /* for these jobs alone: they run in the order of their times, without turns */
};

/* Threads of one kind. */
struct td_work_pool {
    const char *purpose; /* "hash files", for the message when they cannot be started */
    size_t thread_count;
    unsigned levels[TD_WORK_LEVELS]; /* from which the threads take jobs, the first ones first */
    size_t level_count;
    int nice;     /* the nice value of the threads; 0: that of the thread that starts them */
    bool is_idle; /* each thread has a td_idle_thread besides */

    /* Called under the lock when a thread finds no job that may begin: adds jobs, or does the work that comes after the
     * last job, for which it may release the lock and take it again. Returns whether it has done anything; the thread
     * then searches for a job again. NULL: no such work. */
    bool (*more)(void *context);
};

struct td_work_queue;

/* Creates a queue without threads. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_work_queue_create(const struct td_work_config *config, struct td_work_queue **out, struct td_error *err);

/* Starts the pool's threads, which live as long as the queue. Errors: TD_RESOURCE_EXHAUSTED; some of the threads may
 * then run, and the caller destroys the queue. One thread, before others use the queue. */
bool td_work_queue_start(struct td_work_queue *queue, const struct td_work_pool *pool, struct td_error *err);

/* Has running jobs stop, waits for the end of all threads, drops the jobs that wait, and frees the queue. Nobody may
 * wait for a job any more. NULL: does nothing. */
void td_work_queue_destroy(struct td_work_queue *queue);

void td_work_queue_lock(struct td_work_queue *queue);
void td_work_queue_unlock(struct td_work_queue *queue);

/* Returns whether the queue is being destroyed. */
bool td_work_queue_is_stopping(const struct td_work_queue *queue);

/* ---- jobs ---------------------------------------------------------------------------------------------- */

/* Prepares a job with one reference, the caller's, and memory of zeros. */
void td_work_job_init(struct td_work_job *job, uint64_t owner, uint64_t size_bytes);

/* Takes one more reference. Returns the job. */
struct td_work_job *td_work_job_ref(struct td_work_job *job);

/* Drops a reference. Without the lock, unless others remain. NULL: does nothing. */
void td_work_job_unref(const struct td_work_queue *queue, struct td_work_job *job);

/* Drops the references of a list that td_work_queue_clear returned. Without the lock. */
void td_work_jobs_drop(const struct td_work_queue *queue, struct td_work_job *list);

/* Returns in how many microseconds a running job ends if it continues as fast as until now; UINT64_MAX when that
 * is unknown, since it has not begun. now_ns is a time of td_clock_ns. Under the lock. */
uint64_t td_work_job_left_us(const struct td_work_job *job, uint64_t now_ns);

/* Returns a number below 0 if job a comes before job b in the order of turns, above 0 if after it, 0 if they are the
 * same; jobs of different levels with equal turns are in the order in which they were added. Under the lock. */
int td_work_job_compare(const struct td_work_job *a, const struct td_work_job *b);

/* ---- the queue; all under the lock ---------------------------------------------------------------------- */

/* Adds a job to a level by its owner's turn, takes over the caller's reference, and wakes the threads. */
void td_work_queue_add(struct td_work_queue *queue, struct td_work_job *job, unsigned level);

/* Moves a waiting job to another level, as if it was added there. */
void td_work_queue_move(struct td_work_queue *queue, struct td_work_job *job, unsigned level);

/* Removes a waiting job, which counts as done. The caller takes over the queue's reference. */
void td_work_queue_withdraw(struct td_work_queue *queue, struct td_work_job *job);

/* Removes all jobs that wait in this level, and returns them as a list with the queue's references. A running job that
 * was taken from the level continues, and is not run again. */
struct td_work_job *td_work_queue_clear(struct td_work_queue *queue, unsigned level);

/* Returns the first job that waits in the level, or NULL; its `next` is the one after it. */
struct td_work_job *td_work_queue_first(const struct td_work_queue *queue, unsigned level);

/* Returns the first running job, or NULL; its `next` is another one. */
struct td_work_job *td_work_queue_running(const struct td_work_queue *queue);

/* Returns the number of jobs that wait in the level. */
size_t td_work_queue_count(const struct td_work_queue *queue, unsigned level);

/* Returns the job after this one among all jobs of the queue: those that run, then those that wait, level by level.
 * job NULL: returns the first one. Returns NULL after the last. */
struct td_work_job *td_work_queue_next(const struct td_work_queue *queue, const struct td_work_job *job);

/* Returns the sum of done_bytes over all jobs since the start, also over those that run. */
uint64_t td_work_queue_done_bytes(const struct td_work_queue *queue);

/* Wakes the threads, since `more` may have something to do. */
void td_work_queue_wake(struct td_work_queue *queue);

/* Waits until a job has ended or was withdrawn, but at most 0.2 s; the lock is released during the wait. Returns false
 * at once when the time until_ns (monotonic) has come, `cancel` (NULL: none) is asked, or the queue stops. */
bool td_work_queue_wait(struct td_work_queue *queue, uint64_t until_ns, const struct td_cancel *cancel);

#endif
