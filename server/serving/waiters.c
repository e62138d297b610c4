/* Plan: a request that waits is in the list `parked`. The waker takes those that are due out of the list, tries each
 * without the lock, and puts it back, resumes it, or appends it to `ready`, from which jobs (makers) take requests. A
 * request with a thread of its own is only woken; the thread retries it and waits again. What is hard:
 *   - A change may be published after a request was tried and before it waits. So each request remembers the number of
 *     publications before its try, and is due when more have followed.
 *   - After its connection is resumed, a waiter may be freed at any moment, so no code uses it then.
 *   - Nobody notices that a client has gone while its request waits, so the waker asks all (`cancel`) every 1 s. */
#include "server/serving/waiters.h"

#include "core/clock.h"
#include "core/thread.h"

#include <assert.h>
#include <stdlib.h>

static const uint64_t look_ns = TD_NS_PER_S;

struct waiter_list {
    struct td_waiter *first, *last;
};

/* A job that tries requests which are ready. */
struct maker {
    struct td_job job; /* first: on the way back a job is a maker */
    struct td_waiters *waiters;
    bool is_busy;
};

struct td_waiters {
    struct td_waiters_config config;
    pthread_t waker;
    _Atomic uint64_t published;
    uint64_t looked_ns; /* when the waker last looked for clients that are gone; used by the waker alone */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* of the waker: there may be something to do */
    pthread_cond_t left; /* no request is inside any more, or no maker is busy */
    /* under the lock */
    struct waiter_list parked;
    struct waiter_list ready; /* for jobs */
    size_t inside;            /* requests that are in a list, being tried, or being made */
    struct maker makers[TD_WAITERS_MAKING];
    size_t makers_busy;
    uint64_t wake_ns; /* when the waker wakes by itself */
    bool closed, stop;
};

static void append_waiter(struct waiter_list *list, struct td_waiter *waiter)
{
    waiter->next = NULL;
    *(list->last != NULL ? &list->last->next : &list->first) = waiter;
    list->last = waiter;
}

static struct td_waiter *take_first(struct waiter_list *list)
{
    struct td_waiter *waiter = list->first;
    list->first = waiter->next;
    if (list->first == NULL)
        list->last = NULL;
    return waiter;
}

/* Counts a request that does not wait any more. Under the lock. */
static void count_out(struct td_waiters *waiters)
{
    waiters->inside--;
    if (waiters->inside == 0)
        pthread_cond_broadcast(&waiters->left);
}

/* The waiters that were parked, sorted out. */
struct sorted {
    struct waiter_list due;   /* suspended */
    struct waiter_list woken; /* with threads of their own */
    struct waiter_list kept;
    uint64_t wake_ns; /* when the first of the kept ones is due, or clients are checked */
};

/* Sorts the waiters of a list. Called by the waker, which alone takes waiters out of `parked`, and without the lock,
 * since checking a client is a system call. */
static struct sorted sort_out(struct td_waiters *waiters, struct waiter_list all, uint64_t published)
{
    struct sorted sorted = {.wake_ns = UINT64_MAX};
    uint64_t now_ns = td_clock_ns();
    bool looks = now_ns - waiters->looked_ns >= look_ns;
    waiters->looked_ns = looks ? now_ns : waiters->looked_ns;
    if (all.first != NULL)
        sorted.wake_ns = waiters->looked_ns + look_ns;
    while (all.first != NULL) {
        struct td_waiter *waiter = take_first(&all);
        if (waiter->seen == published && waiter->until_ns > now_ns && !(looks && td_cancel_is_asked(waiter->cancel))) {
            append_waiter(&sorted.kept, waiter);
            if (waiter->until_ns < sorted.wake_ns)
                sorted.wake_ns = waiter->until_ns;
        } else {
            append_waiter(waiter->how != NULL ? &sorted.due : &sorted.woken, waiter);
        }
    }
    return sorted;
}

/* Takes the due waiters out of `parked`. Wakes those with threads of their own, and returns the others. */
static struct waiter_list take_due(struct td_waiters *waiters)
{
    pthread_mutex_lock(&waiters->lock);
    struct waiter_list all = waiters->parked;
    uint64_t published = atomic_load(&waiters->published);
    waiters->parked = (struct waiter_list){0};
    waiters->wake_ns = UINT64_MAX;
    pthread_mutex_unlock(&waiters->lock);
    struct sorted sorted = sort_out(waiters, all, published);
    pthread_mutex_lock(&waiters->lock);
    while (waiters->parked.first != NULL) /* parked during the sorting */
        append_waiter(&sorted.kept, take_first(&waiters->parked));
    waiters->parked = sorted.kept;
    if (sorted.wake_ns < waiters->wake_ns)
        waiters->wake_ns = sorted.wake_ns;
    while (sorted.woken.first != NULL) {
        struct td_waiter *waiter = take_first(&sorted.woken);
        waiter->is_due = true;
        pthread_cond_signal(waiter->wake);
    }
    pthread_mutex_unlock(&waiters->lock);
    return sorted.due;
}

/* Wakes the waker if it would wake too late for this waiter. Under the lock. */
static void wake_by(struct td_waiters *waiters, const struct td_waiter *waiter)
{
    uint64_t wake_ns = td_clock_ns() + look_ns;
    if (waiter->seen != atomic_load(&waiters->published))
        wake_ns = 0;
    else if (waiter->until_ns < wake_ns)
        wake_ns = waiter->until_ns;
    if (wake_ns >= waiters->wake_ns)
        return;
    waiters->wake_ns = wake_ns;
    pthread_cond_signal(&waiters->wake);
}

/* Parks the request again. Under the lock. */
static void put_back(struct td_waiters *waiters, struct td_waiter *waiter)
{
    append_waiter(&waiters->parked, waiter);
    wake_by(waiters, waiter);
}

/* Retries the request. Resumes it when its answer is made, parks it again when it has to wait further, or appends it to
 * `ready` when the try may wait for a disk, for a job to try again. may_wait: a job calls this function, so that the
 * try itself may wait; the waker passes false. Without the lock. */
static void retry_one(struct td_waiters *waiters, struct td_waiter *waiter, bool may_wait)
{
    enum td_retry result = waiter->retry(waiter, may_wait);
    assert(result != TD_RETRY_REFUSED || !may_wait);
    if (result == TD_RETRY_ANSWERED)
        waiter->how->resume(waiter->connection);
    pthread_mutex_lock(&waiters->lock);
    if (result == TD_RETRY_ANSWERED)
        count_out(waiters);
    else if (result == TD_RETRY_WAITS)
        put_back(waiters, waiter);
    else
        append_waiter(&waiters->ready, waiter);
    pthread_mutex_unlock(&waiters->lock);
}

/* Retries the ready requests one after the other, until the list is empty. */
static void run_maker(struct td_job *job)
{
    struct maker *maker = (struct maker *)(void *)job;
    struct td_waiters *waiters = maker->waiters;
    pthread_mutex_lock(&waiters->lock);
    while (waiters->ready.first != NULL) {
        struct td_waiter *waiter = take_first(&waiters->ready);
        pthread_mutex_unlock(&waiters->lock);
        retry_one(waiters, waiter, true);
        pthread_mutex_lock(&waiters->lock);
    }
    maker->is_busy = false;
    waiters->makers_busy--;
    if (waiters->makers_busy == 0)
        pthread_cond_broadcast(&waiters->left);
    pthread_mutex_unlock(&waiters->lock);
}

/* Starts jobs for the requests that are ready. */
static void start_makers(struct td_waiters *waiters)
{
    pthread_mutex_lock(&waiters->lock);
    const struct td_waiter *waiter = waiters->ready.first;
    for (size_t i = 0; i < TD_WAITERS_MAKING && waiter != NULL; i++, waiter = waiter->next) {
        struct maker *maker = &waiters->makers[i];
        if (maker->is_busy)
            continue;
        maker->is_busy = true;
        waiters->makers_busy++;
        bool runs = td_jobs_run(waiters->config.jobs, NULL, NULL, &maker->job);
        assert(runs); /* the jobs are closed after the waiters; else td_waiters_close would wait without end */
        (void)runs;
    }
    pthread_mutex_unlock(&waiters->lock);
}

/* Returns whether the waker has something to do now, or must end. Under the lock. */
static bool has_work(const struct td_waiters *waiters, uint64_t published)
{
    return waiters->stop || atomic_load(&waiters->published) != published || waiters->wake_ns <= td_clock_ns();
}

/* Waits until there is something to do. Under the lock. */
static void wait_work(struct td_waiters *waiters, uint64_t published)
{
    while (!has_work(waiters, published)) {
        if (waiters->wake_ns == UINT64_MAX) {
            pthread_cond_wait(&waiters->wake, &waiters->lock);
        } else {
            const struct timespec until = td_clock_timespec(waiters->wake_ns);
            (void)pthread_cond_timedwait(&waiters->wake, &waiters->lock, &until);
        }
    }
}

static void *waker_main(void *argument)
{
    struct td_waiters *waiters = argument;
    bool goes_on = true;
    while (goes_on) {
        uint64_t published = atomic_load(&waiters->published);
        struct waiter_list due = take_due(waiters);
        while (due.first != NULL)
            retry_one(waiters, take_first(&due), false);
        start_makers(waiters);
        pthread_mutex_lock(&waiters->lock);
        wait_work(waiters, published);
        goes_on = !waiters->stop;
        pthread_mutex_unlock(&waiters->lock);
    }
    return NULL;
}

bool td_waiters_create(const struct td_waiters_config *config, struct td_waiters **out, struct td_error *err)
{
    struct td_waiters *waiters = calloc(1, sizeof *waiters);
    if (waiters == NULL)
        return td_error_no_memory(err);
    waiters->config = *config;
    waiters->wake_ns = UINT64_MAX;
    for (size_t i = 0; i < TD_WAITERS_MAKING; i++)
        waiters->makers[i] = (struct maker){.job.run = run_maker, .waiters = waiters};
    if (pthread_mutex_init(&waiters->lock, NULL) != 0 || !td_clock_condition_init(&waiters->wake) ||
        !td_clock_condition_init(&waiters->left)) {
        free(waiters);
        return td_error_no_memory(err);
    }
    int sys = td_small_thread_start(waker_main, waiters, &waiters->waker);
    if (sys != 0) {
        free(waiters);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the thread that wakes waiting requests");
    }
    *out = waiters;
    return true;
}

bool td_waiters_enter(struct td_waiters *waiters)
{
    uint64_t count = atomic_load(waiters->config.count);
    while (count < waiters->config.max)
        if (atomic_compare_exchange_weak(waiters->config.count, &count, count + 1))
            return true;
    return false;
}

void td_waiters_leave(struct td_waiters *waiters)
{
    atomic_fetch_sub(waiters->config.count, 1);
}

uint64_t td_waiters_published(const struct td_waiters *waiters)
{
    return atomic_load(&waiters->published);
}

void td_waiters_publish(struct td_waiters *waiters)
{
    pthread_mutex_lock(&waiters->lock);
    atomic_fetch_add(&waiters->published, 1);
    pthread_cond_signal(&waiters->wake);
    pthread_mutex_unlock(&waiters->lock);
}

/* Adds a request that begins to wait. Under the lock. */
static void add_waiter(struct td_waiters *waiters, struct td_waiter *waiter)
{
    waiters->inside++;
    put_back(waiters, waiter);
}

bool td_waiters_park(struct td_waiters *waiters, struct td_waiter *waiter, const struct td_suspending *how,
                     void *connection)
{
    pthread_mutex_lock(&waiters->lock);
    bool may_wait = !waiters->closed;
    if (may_wait) {
        if (how->suspend != NULL)
            how->suspend(connection);
        waiter->how = how;
        waiter->connection = connection;
        add_waiter(waiters, waiter);
    }
    pthread_mutex_unlock(&waiters->lock);
    return may_wait;
}

bool td_waiters_sleep(struct td_waiters *waiters, struct td_waiter *waiter)
{
    pthread_cond_t wake;
    if (pthread_cond_init(&wake, NULL) != 0)
        return false;
    pthread_mutex_lock(&waiters->lock);
    bool may_wait = !waiters->closed;
    if (may_wait) {
        waiter->how = NULL;
        waiter->wake = &wake;
        waiter->is_due = false;
        add_waiter(waiters, waiter);
        while (!waiter->is_due)
            pthread_cond_wait(&wake, &waiters->lock);
        count_out(waiters);
    }
    pthread_mutex_unlock(&waiters->lock);
    (void)pthread_cond_destroy(&wake);
    return may_wait;
}

void td_waiters_close(struct td_waiters *waiters)
{
    td_waiters_publish(waiters);
    pthread_mutex_lock(&waiters->lock);
    waiters->closed = true;
    while (waiters->inside > 0 || waiters->makers_busy > 0)
        pthread_cond_wait(&waiters->left, &waiters->lock);
    pthread_mutex_unlock(&waiters->lock);
}

void td_waiters_destroy(struct td_waiters *waiters)
{
    if (waiters == NULL)
        return;
    pthread_mutex_lock(&waiters->lock);
    waiters->stop = true;
    pthread_cond_signal(&waiters->wake);
    pthread_mutex_unlock(&waiters->lock);
    (void)pthread_join(waiters->waker, NULL);
    (void)pthread_cond_destroy(&waiters->wake);
    (void)pthread_cond_destroy(&waiters->left);
    (void)pthread_mutex_destroy(&waiters->lock);
    free(waiters);
}
