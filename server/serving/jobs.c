/* A queue and threads that wait for it. A thread that gets no job for idle_ns ends, except for the last one. What is
 * hard: after its connection is resumed, a job may be freed at any moment, so no code uses it then. */
#include "server/serving/jobs.h"

#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t idle_ns = TD_NS_PER_S;
static const uint64_t stuck_ns = TD_NS_PER_S;

struct td_jobs {
    pthread_mutex_t lock;
    pthread_cond_t wake;  /* there is a job, or the threads must end */
    pthread_cond_t ended; /* a job or a thread has ended */
    struct td_job *first, *last;
    size_t queued, running;
    size_t threads, idle, max_threads;
    bool closed, stop;
    uint64_t warned_ns; /* when it was last logged that no thread could be started; 0: never */
};

static struct td_job *take_job(struct td_jobs *jobs)
{
    struct td_job *job = jobs->first;
    jobs->first = job->next;
    if (jobs->first == NULL)
        jobs->last = NULL;
    jobs->queued--;
    jobs->running++;
    return job;
}

static void run_job(struct td_job *job)
{
    const struct td_suspending *how = job->how;
    void *connection = job->connection;
    job->run(job);
    if (how != NULL)
        how->resume(connection);
}

/* Waits for a job. Returns false when the thread must end. Under the lock. */
static bool wait_job(struct td_jobs *jobs)
{
    bool in_time = true;
    jobs->idle++;
    while (jobs->first == NULL && !jobs->stop && (in_time || jobs->threads == 1)) {
        const struct timespec until = td_clock_timespec(td_clock_ns() + idle_ns);
        in_time = pthread_cond_timedwait(&jobs->wake, &jobs->lock, &until) == 0;
    }
    jobs->idle--;
    return jobs->first != NULL;
}

static void *jobs_main(void *argument)
{
    struct td_jobs *jobs = argument;
    pthread_mutex_lock(&jobs->lock);
    while (wait_job(jobs)) {
        struct td_job *job = take_job(jobs);
        pthread_mutex_unlock(&jobs->lock);
        run_job(job);
        pthread_mutex_lock(&jobs->lock);
        jobs->running--;
        pthread_cond_broadcast(&jobs->ended);
    }
    jobs->threads--;
    pthread_cond_broadcast(&jobs->ended);
    pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

/* Starts one more thread, which is detached. Returns 0 or an error number. Under the lock. */
static int start_thread(struct td_jobs *jobs)
{
    int sys = td_small_thread_start(jobs_main, jobs, NULL);
    if (sys == 0)
        jobs->threads++;
    return sys;
}

/* Logs, once a minute, that no thread could be started, so that the job waits for an existing one. */
static void warn_of_threads(struct td_jobs *jobs, int sys)
{
    uint64_t now_ns = td_clock_ns();
    if (sys == 0 || (jobs->warned_ns != 0 && now_ns - jobs->warned_ns < UINT64_C(60000000000)))
        return;
    jobs->warned_ns = now_ns;
    td_log(
        TD_LOG_WARN,
        "no further thread could be started for what has to wait: %s; %zu thread%s do%s all of it; raise the limit on "
        "processes (ulimit -u, or the container's pids limit)",
        strerror(sys), jobs->threads, td_plural(jobs->threads), jobs->threads == 1 ? "es" : "");
}

bool td_jobs_create(size_t max_threads, struct td_jobs **out, struct td_error *err)
{
    struct td_jobs *jobs = calloc(1, sizeof *jobs);
    if (jobs == NULL)
        return td_error_no_memory(err);
    jobs->max_threads = max_threads < 1 ? 1 : max_threads;
    if (pthread_mutex_init(&jobs->lock, NULL) != 0 || !td_clock_condition_init(&jobs->wake) ||
        !td_clock_condition_init(&jobs->ended)) {
        free(jobs);
        return td_error_no_memory(err);
    }
    pthread_mutex_lock(&jobs->lock);
    int sys = start_thread(jobs);
    pthread_mutex_unlock(&jobs->lock);
    if (sys != 0) {
        td_jobs_destroy(jobs);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start a thread for jobs");
    }
    *out = jobs;
    return true;
}

/* Appends the job, and starts one more thread if none is free for it. Under the lock. */
static void queue_job(struct td_jobs *jobs, struct td_job *job)
{
    job->since_ns = td_clock_ns();
    job->next = NULL;
    *(jobs->last != NULL ? &jobs->last->next : &jobs->first) = job;
    jobs->last = job;
    jobs->queued++;
    if (jobs->queued > jobs->idle && jobs->threads < jobs->max_threads)
        warn_of_threads(jobs, start_thread(jobs));
    pthread_cond_signal(&jobs->wake);
}

bool td_jobs_run(struct td_jobs *jobs, const struct td_suspending *how, void *connection, struct td_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    bool is_open = !jobs->closed;
    job->how = how;
    job->connection = connection;
    if (is_open && how != NULL && how->suspend != NULL)
        how->suspend(connection);
    if (is_open)
        queue_job(jobs, job);
    pthread_mutex_unlock(&jobs->lock);
    return is_open;
}

bool td_jobs_are_stuck(struct td_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
    bool are_stuck = jobs->first != NULL && td_clock_ns() - jobs->first->since_ns > stuck_ns;
    pthread_mutex_unlock(&jobs->lock);
    return are_stuck;
}

void td_jobs_close(struct td_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
    jobs->closed = true;
    while (jobs->queued + jobs->running > 0)
        pthread_cond_wait(&jobs->ended, &jobs->lock);
    pthread_mutex_unlock(&jobs->lock);
}

void td_jobs_destroy(struct td_jobs *jobs)
{
    if (jobs == NULL)
        return;
    pthread_mutex_lock(&jobs->lock);
    jobs->stop = true;
    pthread_cond_broadcast(&jobs->wake);
    while (jobs->threads > 0)
        pthread_cond_wait(&jobs->ended, &jobs->lock);
    pthread_mutex_unlock(&jobs->lock);
    (void)pthread_cond_destroy(&jobs->wake);
    (void)pthread_cond_destroy(&jobs->ended);
    (void)pthread_mutex_destroy(&jobs->lock);
    free(jobs);
}
