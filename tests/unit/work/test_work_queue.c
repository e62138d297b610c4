/* The queue of background jobs: order, turns, retries, waiters, and its end in the middle of a job. */
#include "work/work_queue.h"

#include "core/clock.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"
#include "tests/unit/work.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/resource.h>

enum { SMALL, LARGE, RETRY };

/* A queue, and what its callbacks do. The gate's lock is taken inside the queue's. */
struct place {
    struct td_work_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open;  /* under the lock: jobs that run wait until the gate is open or they are to stop */
    int begun[64]; /* under the lock: the numbers of jobs in the order in which they began */
    size_t begun_count;
    _Atomic int created, freed; /* jobs */
    /* under the lock of the queue */
    int held;       /* the number of a job that may not begin; 0: none */
    int more_count; /* jobs that `more` is to add */
    int more_calls;
    uint64_t more_work; /* the thread's work_now() at the last call */
};

struct job {
    struct td_work_job work; /* first */
    struct place *place;
    int number;
    int failures; /* how often it is to be run again */
};

static const uint64_t second = 1000000000;

static struct job *job_of(const struct td_work_job *work)
{
    return (struct job *)(uintptr_t)work;
}

/* Waits until the condition holds; fails after 60 s, which are never needed. */
#define WAIT_FOR(condition)                                                 \
    do {                                                                    \
        uint64_t give_up_ns = td_clock_ns() + 60 * second;                  \
        while (!(condition)) {                                              \
            CHECK(td_clock_ns() < give_up_ns, "%s never came", #condition); \
            nap_ms(1);                                                      \
        }                                                                   \
    } while (0)

/* ---- callbacks ----------------------------------------------------------------------------------------- */

static bool run_job(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct place *place = context;
    struct job *job = job_of(work);
    (void)thread;
    pthread_mutex_lock(&place->lock);
    if (place->begun_count < COUNT_OF(place->begun))
        place->begun[place->begun_count++] = job->number;
    while (!place->is_open && !atomic_load(&work->stop)) {
        const struct timespec until = td_clock_timespec(td_clock_ns() + 1000000);
        (void)pthread_cond_timedwait(&place->changed, &place->lock, &until);
    }
    pthread_mutex_unlock(&place->lock);
    atomic_store(&work->done_bytes, atomic_load(&work->size_bytes));
    return job->failures-- <= 0;
}

static void free_job(struct td_work_job *work)
{
    atomic_fetch_add(&job_of(work)->place->freed, 1);
    free(job_of(work));
}

static bool may_begin(void *context, const struct td_work_job *work)
{
    return job_of(work)->number != ((struct place *)context)->held;
}

/* ---- places -------------------------------------------------------------------------------------------- */

static void place_open_for(struct place *place, uint64_t retry_ns)
{
    memset(place, 0, sizeof *place);
    assert_int_equal(pthread_mutex_init(&place->lock, NULL), 0);
    assert_true(td_clock_condition_init(&place->changed));
    const struct td_work_config config = {.run = run_job,
                                          .free = free_job,
                                          .may_begin = may_begin,
                                          .context = place,
                                          .retry_ns = retry_ns,
                                          .retry_level = RETRY};
    assert_true(td_work_queue_create(&config, &place->queue, NULL));
}

static void place_open(struct place *place)
{
    place_open_for(place, second / 20);
}

/* Checks that every job was freed. */
static void place_close(struct place *place)
{
    td_work_queue_destroy(place->queue);
    assert_int_equal(atomic_load(&place->freed), atomic_load(&place->created));
    (void)pthread_mutex_destroy(&place->lock);
    (void)pthread_cond_destroy(&place->changed);
}

FIXTURE(place, struct place, place_open, place_close)

static void start_threads(struct place *place, size_t threads, unsigned first, unsigned second_level, size_t levels,
                          bool (*more)(void *context))
{
    const struct td_work_pool pool = {.purpose = "test",
                                      .thread_count = threads,
                                      .levels = {first, second_level, RETRY},
                                      .level_count = levels,
                                      .more = more};
    assert_true(td_work_queue_start(place->queue, &pool, NULL));
}

static struct job *create_job(struct place *place, int number, uint64_t owner, int failures)
{
    struct job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    place->created++;
    job->place = place;
    job->number = number;
    job->failures = failures;
    td_work_job_init(&job->work, owner, 100);
    return job;
}

/* Adds a job that fails so often, and returns it without a reference. */
static struct job *add_failing_job(struct place *place, int number, uint64_t owner, int failures, unsigned level)
{
    struct job *job = create_job(place, number, owner, failures);
    td_work_queue_lock(place->queue);
    td_work_queue_add(place->queue, &job->work, level);
    td_work_queue_unlock(place->queue);
    return job;
}

static struct job *add_job(struct place *place, int number, uint64_t owner, unsigned level)
{
    return add_failing_job(place, number, owner, 0, level);
}

static void set_gate(struct place *place, bool is_open)
{
    pthread_mutex_lock(&place->lock);
    place->is_open = is_open;
    (void)pthread_cond_broadcast(&place->changed);
    pthread_mutex_unlock(&place->lock);
}

static size_t begun_count(struct place *place)
{
    pthread_mutex_lock(&place->lock);
    size_t count = place->begun_count;
    pthread_mutex_unlock(&place->lock);
    return count;
}

/* Checks in which order jobs began, when as many have begun. */
static void check_begun(struct place *place, const int *numbers, size_t count)
{
    WAIT_FOR(begun_count(place) >= count);
    pthread_mutex_lock(&place->lock);
    assert_int_equal(place->begun_count, count);
    for (size_t i = 0; i < count; i++)
        CHECK(place->begun[i] == numbers[i], "job %d began as number %zu", place->begun[i], i);
    pthread_mutex_unlock(&place->lock);
}

/* Checks the order of the jobs that wait in a level. */
static void check_level(struct place *place, unsigned level, const int *numbers, size_t count)
{
    td_work_queue_lock(place->queue);
    assert_int_equal(td_work_queue_count(place->queue, level), count);
    const struct td_work_job *job = td_work_queue_first(place->queue, level);
    for (size_t i = 0; i < count; i++, job = job->next)
        assert_int_equal(job_of(job)->number, numbers[i]);
    assert_null(job);
    td_work_queue_unlock(place->queue);
}

static enum td_work_state state_of(struct place *place, const struct job *job)
{
    td_work_queue_lock(place->queue);
    enum td_work_state state = job->work.state;
    td_work_queue_unlock(place->queue);
    return state;
}

/* ---- order --------------------------------------------------------------------------------------------- */

static void owners_take_turns(void **state)
{
    static const int order[] = {10, 20, 30, 11, 21, 12, 13}, late[] = {40, 14};
    struct place *place = *state;
    for (int i = 10; i < 14; i++)
        (void)add_job(place, i, 1, SMALL);
    (void)add_job(place, 20, 2, SMALL);
    (void)add_job(place, 21, 2, SMALL);
    (void)add_job(place, 30, 3, SMALL);
    check_level(place, SMALL, order, COUNT_OF(order));
    start_threads(place, 1, SMALL, 0, 1, NULL);
    set_gate(place, true);
    check_begun(place, order, COUNT_OF(order));
    set_gate(place, false);
    struct job *running = add_job(place, 13, 1, SMALL);
    WAIT_FOR(state_of(place, running) == TD_WORK_RUNNING);
    (void)add_job(place, 14, 1, SMALL); /* the second of its owner, whose first runs */
    (void)add_job(place, 40, 4, SMALL);
    check_level(place, SMALL, late, COUNT_OF(late));
}

/* Turns in one level do not count in another. */
static void each_level_has_its_own_turns(void **state)
{
    static const int order[] = {10, 20, 11};
    struct place *place = *state;
    for (int i = 0; i < 20; i++)
        (void)add_job(place, i, 1, SMALL);
    (void)add_job(place, 10, 1, LARGE);
    (void)add_job(place, 11, 1, LARGE);
    (void)add_job(place, 20, 2, LARGE);
    check_level(place, LARGE, order, COUNT_OF(order));
    td_work_queue_lock(place->queue);
    const struct td_work_job *small = td_work_queue_first(place->queue, SMALL);
    const struct td_work_job *large = td_work_queue_first(place->queue, LARGE); /* of the same turn, but added later */
    assert_true(td_work_job_compare(small, large) < 0 && td_work_job_compare(large, small) > 0);
    assert_true(td_work_job_compare(small->next, large) > 0 && td_work_job_compare(small, small) == 0);
    td_work_queue_unlock(place->queue);
}

/* A thread prefers its first level; another one is always there for the second. */
static void levels_are_classes(void **state)
{
    static const int order[] = {1, 4, 5, 2, 3};
    struct place *place = *state;
    start_threads(place, 1, LARGE, SMALL, 2, NULL);
    (void)add_job(place, 1, 1, LARGE);
    WAIT_FOR(begun_count(place) == 1);
    (void)add_job(place, 2, 2, SMALL);
    (void)add_job(place, 3, 1, SMALL);
    (void)add_job(place, 4, 1, LARGE);
    (void)add_job(place, 5, 1, LARGE);
    set_gate(place, true);
    check_begun(place, order, COUNT_OF(order));
    set_gate(place, false);
    (void)add_job(place, 6, 1, LARGE);
    WAIT_FOR(begun_count(place) == 6);
    struct job *waits = add_job(place, 7, 1, SMALL);
    nap_ms(1);
    assert_int_equal(state_of(place, waits), TD_WORK_WAITING);
    start_threads(place, 1, SMALL, 0, 1, NULL);
    WAIT_FOR(begun_count(place) == 7);
}

/* The time to add jobs of one owner to a level grows only in proportion to their number. */
static void many_jobs_of_one_owner(void **state)
{
    enum { MANY = 100000 };
    struct place *place = *state;
    double before = cpu_seconds();
    for (int i = 0; i < MANY; i++)
        (void)add_job(place, i, 0, SMALL);
    assert_true(cpu_seconds() - before < 20); /* 5 * 10^9 steps would take longer */
    td_work_queue_lock(place->queue);
    struct td_work_job *list = td_work_queue_clear(place->queue, SMALL);
    assert_int_equal(td_work_queue_count(place->queue, SMALL), 0);
    td_work_queue_unlock(place->queue);
    for (int i = 0; i < MANY; i++) {
        struct td_work_job *next = list->next;
        assert_int_equal(job_of(list)->number, i);
        td_work_job_unref(place->queue, list);
        list = next;
    }
    assert_null(list);
}

/* ---- jobs that wait for a time or for others ------------------------------------------------------------ */

static void a_job_is_tried_again(void **state)
{
    static const int order[] = {1, 2, 1, 1};
    struct place *place = *state;
    set_gate(place, true);
    struct job *job = create_job(place, 1, 0, 2);
    (void)td_work_job_ref(&job->work);
    uint64_t began_ns = td_clock_ns();
    td_work_queue_lock(place->queue);
    td_work_queue_add(place->queue, &job->work, SMALL);
    td_work_queue_unlock(place->queue);
    (void)add_job(place, 2, 0, SMALL);
    start_threads(place, 1, SMALL, LARGE, 3, NULL);
    check_begun(place, order, COUNT_OF(order));
    assert_true(td_clock_ns() - began_ns >= second / 10); /* twice the time between two tries */
    WAIT_FOR(state_of(place, job) == TD_WORK_DONE);
    td_work_queue_lock(place->queue);
    assert_int_equal(job->work.level, RETRY);
    assert_int_equal(td_work_queue_done_bytes(place->queue), 4 * 100); /* each try has done all */
    td_work_queue_unlock(place->queue);
    td_work_job_unref(place->queue, &job->work);
}

/* Jobs that are tried again run in the order of their times, of all owners. */
static void retries_keep_their_order(void **state)
{
    static const int order[] = {1, 3, 2, 1, 3, 2};
    struct place *place = *state;
    set_gate(place, true);
    for (int i = 1; i <= 3; i++)
        (void)add_failing_job(place, i, i == 3 ? 2 : 1, 1, SMALL);
    start_threads(place, 1, SMALL, LARGE, 3, NULL);
    check_begun(place, order, COUNT_OF(order));
}

static bool note_work(void *context)
{
    struct place *place = context;
    place->more_calls++;
    place->more_work = work_now();
    return false;
}

static size_t retry_count(struct place *place)
{
    td_work_queue_lock(place->queue);
    size_t count = td_work_queue_count(place->queue, RETRY);
    td_work_queue_unlock(place->queue);
    return count;
}

/* Has the thread search once more. Returns the number of its work after that. */
static uint64_t search_again(struct place *place)
{
    td_work_queue_lock(place->queue);
    int calls = place->more_calls;
    uint64_t work = 0;
    td_work_queue_wake(place->queue);
    for (int now = calls; now == calls;) {
        td_work_queue_unlock(place->queue);
        nap_ms(1);
        td_work_queue_lock(place->queue);
        now = place->more_calls;
        work = place->more_work;
    }
    td_work_queue_unlock(place->queue);
    return work;
}

/* Returns the work of a search that finds no job, while this many jobs wait for another try. */
static uint64_t search_beside_retries(size_t count)
{
    struct place place;
    place_open_for(&place, 3600 * second);
    set_gate(&place, true);
    start_threads(&place, 1, SMALL, LARGE, 3, note_work);
    for (size_t i = 0; i < count; i++)
        (void)add_failing_job(&place, (int)i + 1, i, 1, SMALL);
    WAIT_FOR(retry_count(&place) == count);
    (void)search_again(&place); /* after which no search before this one is left */
    uint64_t before = search_again(&place);
    uint64_t work = search_again(&place) - before;
    place_close(&place);
    return work;
}

/* Searches pass none of the jobs whose time has not come. */
static void waiting_retries_cost_no_work(void **state)
{
    (void)state;
    uint64_t few = search_beside_retries(2);
    uint64_t many = search_beside_retries(2000);
    CHECK(few > 0 && many <= 3 * few, "%" PRIu64 " blocks beside 2 retries, %" PRIu64 " beside 2000", few, many);
}

static void a_job_that_may_not_begin_is_passed_over(void **state)
{
    static const int order[] = {2, 3, 1};
    struct place *place = *state;
    place->held = 1;
    (void)add_job(place, 1, 0, SMALL);
    (void)add_job(place, 2, 0, SMALL);
    start_threads(place, 2, SMALL, 0, 1, NULL);
    WAIT_FOR(begun_count(place) == 1);
    (void)add_job(place, 3, 0, SMALL);
    WAIT_FOR(begun_count(place) == 2);
    td_work_queue_lock(place->queue);
    place->held = 0; /* which nobody reports: the queue looks again by itself */
    td_work_queue_unlock(place->queue);
    set_gate(place, true);
    check_begun(place, order, COUNT_OF(order));
}

/* ---- withdrawing ---------------------------------------------------------------------------------------- */

static void jobs_are_withdrawn_and_moved(void **state)
{
    static const int order[] = {3}, moved[] = {2, 1};
    struct place *place = *state;
    struct job *jobs[4];
    for (int i = 0; i < 4; i++)
        jobs[i] = add_job(place, i, 0, SMALL);
    td_work_queue_lock(place->queue);
    td_work_queue_withdraw(place->queue, &jobs[0]->work);
    assert_int_equal(jobs[0]->work.state, TD_WORK_DONE);
    td_work_queue_move(place->queue, &jobs[2]->work, LARGE);
    td_work_queue_move(place->queue, &jobs[1]->work, LARGE);
    td_work_queue_unlock(place->queue);
    check_level(place, SMALL, order, COUNT_OF(order));
    check_level(place, LARGE, moved, COUNT_OF(moved));
    assert_int_equal(atomic_load(&place->freed), 0);
    td_work_job_unref(place->queue, &jobs[0]->work);
    assert_int_equal(atomic_load(&place->freed), 1);
    td_work_job_unref(place->queue, NULL);
    set_gate(place, false);
    start_threads(place, 1, SMALL, 0, 1, NULL);
    WAIT_FOR(begun_count(place) == 1); /* job 3 */
    (void)add_job(place, 4, 0, RETRY);
    static const int all[] = {3, 2, 1, 4};
    const struct td_work_job *job = NULL;
    td_work_queue_lock(place->queue);
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        job = td_work_queue_next(place->queue, job);
        assert_int_equal(job_of(job)->number, all[i]);
    }
    assert_null(td_work_queue_next(place->queue, job));
    td_work_queue_unlock(place->queue);
}

/* A job that runs while its level is cleared continues to its end, and is not tried again. */
static void a_running_job_survives_its_level(void **state)
{
    struct place *place = *state;
    struct job *job = create_job(place, 1, 0, 5);
    (void)td_work_job_ref(&job->work);
    td_work_queue_lock(place->queue);
    td_work_queue_add(place->queue, &job->work, SMALL);
    td_work_queue_unlock(place->queue);
    start_threads(place, 1, SMALL, LARGE, 3, NULL);
    WAIT_FOR(begun_count(place) == 1);
    (void)add_job(place, 2, 0, SMALL);
    td_work_queue_lock(place->queue);
    struct td_work_job *list = td_work_queue_clear(place->queue, SMALL);
    assert_ptr_equal(td_work_queue_running(place->queue), job);
    td_work_queue_unlock(place->queue);
    td_work_jobs_drop(place->queue, list);
    assert_int_equal(atomic_load(&place->freed), 1);
    assert_false(atomic_load(&job->work.stop));
    set_gate(place, true);
    WAIT_FOR(state_of(place, job) == TD_WORK_DONE);
    td_work_job_unref(place->queue, &job->work);
    assert_int_equal(begun_count(place), 1);
}

/* ---- more ------------------------------------------------------------------------------------------------ */

/* Adds the jobs that the test asks for, one by one. */
static bool more(void *context)
{
    struct place *place = context;
    place->more_calls++;
    if (place->more_count == 0)
        return false;
    struct job *job = create_job(place, 100 - place->more_count--, 0, 0);
    td_work_queue_unlock(place->queue); /* it may */
    td_work_queue_lock(place->queue);
    td_work_queue_add(place->queue, &job->work, SMALL);
    return true;
}

static void a_thread_without_a_job_asks_for_more(void **state)
{
    static const int order[] = {1, 97, 98, 99};
    struct place *place = *state;
    set_gate(place, true);
    (void)add_job(place, 1, 0, SMALL);
    place->more_count = 3;
    start_threads(place, 1, SMALL, 0, 1, more);
    check_begun(place, order, COUNT_OF(order));
    td_work_queue_lock(place->queue);
    assert_true(place->more_calls >= 3);
    place->more_count = 1;
    td_work_queue_unlock(place->queue);
    nap_ms(1);
    assert_int_equal(begun_count(place), 4); /* nobody is awake */
    td_work_queue_lock(place->queue);
    td_work_queue_wake(place->queue);
    td_work_queue_unlock(place->queue);
    WAIT_FOR(begun_count(place) == 5);
}

/* ---- waiters and progress -------------------------------------------------------------------------------- */

static bool is_asked(void *context)
{
    return atomic_load((_Atomic bool *)context);
}

static void whoever_waits_learns_of_the_end(void **state)
{
    struct place *place = *state;
    _Atomic bool asked = false;
    const struct td_cancel cancel = {.is_asked = is_asked, .context = &asked};
    struct job *job = add_job(place, 1, 0, SMALL);
    (void)td_work_job_ref(&job->work);
    start_threads(place, 1, SMALL, 0, 1, NULL);
    td_work_queue_lock(place->queue);
    assert_false(td_work_queue_wait(place->queue, 0, NULL));
    assert_false(td_work_queue_wait(place->queue, td_clock_ns(), NULL));
    uint64_t until_ns = td_clock_ns() + second / 50;
    while (td_work_queue_wait(place->queue, until_ns, &cancel))
        assert_int_not_equal(job->work.state, TD_WORK_DONE);
    assert_true(td_clock_ns() >= until_ns);
    atomic_store(&asked, true);
    assert_false(td_work_queue_wait(place->queue, td_clock_ns() + 60 * second, &cancel));
    td_work_queue_unlock(place->queue);
    set_gate(place, true);
    td_work_queue_lock(place->queue);
    while (job->work.state != TD_WORK_DONE)
        assert_true(td_work_queue_wait(place->queue, td_clock_ns() + 60 * second, NULL));
    assert_null(td_work_queue_running(place->queue));
    td_work_queue_unlock(place->queue);
    td_work_job_unref(place->queue, &job->work);
}

static void progress_tells_the_rest(void **state)
{
    struct place *place = *state;
    struct job *job = add_job(place, 1, 0, SMALL);
    start_threads(place, 1, SMALL, 0, 1, NULL);
    WAIT_FOR(begun_count(place) == 1);
    td_work_queue_lock(place->queue);
    uint64_t began_ns = td_clock_ns(); /* at least when the job began */
    assert_int_equal(td_work_job_left_us(&job->work, began_ns), UINT64_MAX);
    atomic_store(&job->work.done_bytes, 25);
    assert_int_equal(td_work_queue_done_bytes(place->queue), 25);
    uint64_t left_us = td_work_job_left_us(&job->work, began_ns + second);
    assert_true(left_us >= 3000000 && left_us < 3 * 60000000); /* three times as long as until then */
    atomic_store(&job->work.size_bytes, 20);                   /* an estimate that was too small */
    assert_int_equal(td_work_job_left_us(&job->work, began_ns + second), 0);
    atomic_store(&job->work.size_bytes, UINT64_MAX);
    atomic_store(&job->work.done_bytes, 1);
    assert_int_equal(td_work_job_left_us(&job->work, began_ns + 60 * second), UINT64_MAX);
    td_work_queue_unlock(place->queue);
}

/* ---- threads --------------------------------------------------------------------------------------------- */

struct seen {
    pthread_t thread, idle;
    int nice;
    size_t number;
    bool has_idle;
    _Atomic bool is_done;
};

static void look(void *context)
{
    ((struct seen *)context)->idle = pthread_self();
}

static bool run_and_look(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct seen *seen = context;
    (void)work;
    seen->thread = pthread_self();
    seen->nice = getpriority(PRIO_PROCESS, 0);
    seen->number = thread->number;
    seen->has_idle = thread->idle != NULL;
    if (seen->has_idle)
        td_idle_thread_run(thread->idle, look, seen);
    atomic_store(&seen->is_done, true);
    return true;
}

static void pools_have_priorities(void **state)
{
    (void)state;
    int nice = getpriority(PRIO_PROCESS, 0);
    for (int is_idle = 0; is_idle < 2; is_idle++) {
        struct place place = {0};
        struct seen seen = {0};
        const struct td_work_config config = {.run = run_and_look, .free = free_job, .context = &seen};
        const struct td_work_pool pool = {.purpose = "test",
                                          .thread_count = 1,
                                          .level_count = 1,
                                          .nice = is_idle ? 0 : nice + 3,
                                          .is_idle = is_idle != 0};
        assert_true(td_work_queue_create(&config, &place.queue, NULL));
        const struct td_work_pool other = {.purpose = "test", .thread_count = 1, .levels = {LARGE}, .level_count = 1};
        assert_true(td_work_queue_start(place.queue, &other, NULL));
        assert_true(td_work_queue_start(place.queue, &pool, NULL));
        (void)add_job(&place, 1, 0, SMALL);
        WAIT_FOR(atomic_load(&seen.is_done));
        assert_int_equal(seen.has_idle, is_idle);
        assert_int_equal(seen.number, 1);
        assert_true(!seen.has_idle || !pthread_equal(seen.thread, seen.idle));
        assert_int_equal(seen.nice, is_idle ? nice : nice + 3);
        td_work_queue_destroy(place.queue);
    }
}

static void it_ends_in_the_middle_of_a_job(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    start_threads(&place, 2, SMALL, LARGE, 3, NULL);
    for (int i = 0; i < 10; i++)
        (void)add_job(&place, i + 1, (uint64_t)i, i % 2 == 0 ? SMALL : RETRY);
    WAIT_FOR(begun_count(&place) == 2);
    assert_false(td_work_queue_is_stopping(place.queue));
    place_close(&place);
    td_work_queue_destroy(NULL);
}

static void memory_is_short(void **state)
{
    (void)state;
    const struct td_work_config config = {.run = run_job, .free = free_job};
    const struct td_work_pool pool = {.purpose = "test", .thread_count = 2, .level_count = 1};
    struct td_work_queue *queue;
    struct td_error err = TD_ERROR_INIT;
    alloc_count_start();
    alloc_fail_at(1);
    assert_false(td_work_queue_create(&config, &queue, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_true(td_work_queue_create(&config, &queue, NULL));
    alloc_fail_at(1);
    td_error_init(&err);
    assert_false(td_work_queue_start(queue, &pool, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_string_equal(err.message, "cannot start 2 threads that test");
    td_work_queue_destroy(queue);
}

/* ---- all at once ----------------------------------------------------------------------------------------- */

enum { CROWD = 4, EACH = 200 };

struct member {
    struct place *place;
    pthread_t thread;
    uint64_t seed;
};

static void *crowd_main(void *argument)
{
    struct member *member = argument;
    struct td_work_queue *queue = member->place->queue;
    for (int i = 0; i < EACH; i++) {
        uint64_t random = random_next(&member->seed);
        struct job *job = create_job(member->place, i + 1, random % 3, random % 7 == 0 ? 1 : 0);
        (void)td_work_job_ref(&job->work);
        struct td_work_job *cleared = NULL;
        td_work_queue_lock(queue);
        td_work_queue_add(queue, &job->work, random % 2 == 0 ? SMALL : LARGE);
        if (random % 5 == 0)
            td_work_queue_move(queue, &job->work, LARGE);
        if (random % 50 == 1)
            cleared = td_work_queue_clear(queue, SMALL);
        bool is_withdrawn = random % 11 == 0 && job->work.state == TD_WORK_WAITING;
        if (is_withdrawn)
            td_work_queue_withdraw(queue, &job->work);
        while (i % 20 == 0 && job->work.state != TD_WORK_DONE)
            assert_true(td_work_queue_wait(queue, td_clock_ns() + 60 * second, NULL));
        (void)td_work_queue_done_bytes(queue);
        td_work_queue_unlock(queue);
        td_work_jobs_drop(queue, cleared);
        if (is_withdrawn)
            td_work_job_unref(queue, &job->work);
        td_work_job_unref(queue, &job->work);
    }
    return NULL;
}

static void many_threads_at_once(void **state)
{
    struct place *place = *state;
    struct member members[CROWD];
    set_gate(place, true);
    start_threads(place, 2, LARGE, SMALL, 3, NULL);
    start_threads(place, 1, SMALL, 0, 1, more);
    for (size_t i = 0; i < CROWD; i++) {
        members[i] = (struct member){.place = place, .seed = i + 1};
        assert_int_equal(pthread_create(&members[i].thread, NULL, crowd_main, &members[i]), 0);
    }
    for (size_t i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
    WAIT_FOR(atomic_load(&place->freed) == CROWD * EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, owners_take_turns),
        TEST_IN(place, each_level_has_its_own_turns),
        TEST_IN(place, levels_are_classes),
        TEST_IN(place, many_jobs_of_one_owner),
        TEST_IN(place, a_job_is_tried_again),
        TEST_IN(place, retries_keep_their_order),
        cmocka_unit_test(waiting_retries_cost_no_work),
        TEST_IN(place, a_job_that_may_not_begin_is_passed_over),
        TEST_IN(place, jobs_are_withdrawn_and_moved),
        TEST_IN(place, a_running_job_survives_its_level),
        TEST_IN(place, a_thread_without_a_job_asks_for_more),
        TEST_IN(place, whoever_waits_learns_of_the_end),
        TEST_IN(place, progress_tells_the_rest),
        cmocka_unit_test(pools_have_priorities),
        cmocka_unit_test(it_ends_in_the_middle_of_a_job),
        cmocka_unit_test(memory_is_short),
        TEST_IN(place, many_threads_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
