/* Requests that wait for a change, without connections. */
#include "server/serving/waiters.h"

#include "core/clock.h"
#include "tests/unit/unit.h"

#include <semaphore.h>
#include <stddef.h>
#include <string.h>

enum { FAR_S = 3600 };

/* A request. Its connection is the request itself. */
struct task {
    struct td_waiter waiter;
    _Atomic int tries, jobs, suspended, resumed; /* jobs: of the tries, those by a job */
    _Atomic enum td_retry result;
    _Atomic bool is_gone;
    struct td_cancel cancel;
    uint64_t tried_ns;
    sem_t tried, done; /* posted with each try, and when the connection is resumed */
    sem_t go_on;       /* what a job waits for */
};

static struct td_waiters *waiters;
static struct td_jobs *jobs;
static _Atomic uint64_t count;
static struct task *made[64]; /* those that jobs tried, in order */
static _Atomic size_t made_count;

static void suspend_task(void *connection)
{
    atomic_fetch_add(&((struct task *)connection)->suspended, 1);
}

static void resume_task(void *connection)
{
    struct task *task = connection;
    atomic_fetch_add(&task->resumed, 1);
    (void)sem_post(&task->done);
}

static const struct td_suspending suspending = {.suspend = suspend_task, .resume = resume_task};

static struct task *task_of(struct td_waiter *waiter)
{
    return (struct task *)(void *)((char *)waiter - offsetof(struct task, waiter));
}

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        continue;
}

static enum td_retry retry(struct td_waiter *waiter, bool may_wait)
{
    struct task *task = task_of(waiter);
    if (may_wait) {
        made[atomic_fetch_add(&made_count, 1)] = task;
        atomic_fetch_add(&task->jobs, 1);
        await(&task->go_on);
        return TD_RETRY_ANSWERED;
    }
    enum td_retry result = atomic_load(&task->result);
    waiter->seen = td_waiters_published(waiters);
    atomic_fetch_add(&task->tries, 1);
    task->tried_ns = td_clock_ns();
    if (result == TD_RETRY_WAITS && waiter->until_ns <= task->tried_ns)
        result = TD_RETRY_ANSWERED;
    (void)sem_post(&task->tried);
    return result;
}

static bool is_gone(void *context)
{
    return atomic_load(&((struct task *)context)->is_gone);
}

static void open_waiters(size_t max)
{
    struct td_error err = TD_ERROR_INIT;
    atomic_store(&count, 0);
    atomic_store(&made_count, 0);
    assert_true(td_jobs_create(64, &jobs, &err));
    const struct td_waiters_config config = {.max = max, .count = &count, .jobs = jobs};
    assert_true(td_waiters_create(&config, &waiters, &err));
}

static void close_waiters(void)
{
    td_waiters_close(waiters);
    td_jobs_close(jobs);
    td_jobs_destroy(jobs);
    td_waiters_destroy(waiters);
}

static void prepare(struct task *task, enum td_retry result)
{
    memset(task, 0, sizeof *task);
    atomic_init(&task->result, result);
    task->cancel = (struct td_cancel){.is_asked = is_gone, .context = task};
    task->waiter = (struct td_waiter){.retry = retry,
                                      .until_ns = td_clock_ns() + FAR_S * UINT64_C(1000000000),
                                      .seen = td_waiters_published(waiters),
                                      .cancel = &task->cancel};
    assert_int_equal(sem_init(&task->tried, 0, 0), 0);
    assert_int_equal(sem_init(&task->done, 0, 0), 0);
    assert_int_equal(sem_init(&task->go_on, 0, 0), 0);
}

static void park(struct task *task)
{
    assert_true(td_waiters_park(waiters, &task->waiter, &suspending, task));
    assert_int_equal(atomic_load(&task->suspended), 1);
}

static void a_publication_has_each_tried_again(void **state)
{
    (void)state;
    struct task waits, changed;
    open_waiters(2);
    prepare(&waits, TD_RETRY_WAITS);
    prepare(&changed, TD_RETRY_ANSWERED);
    park(&waits);
    park(&changed);
    assert_int_equal(atomic_load(&waits.tries) + atomic_load(&changed.tries), 0);
    td_waiters_publish(waiters);
    await(&changed.done);
    await(&waits.tried);
    assert_int_equal(atomic_load(&waits.resumed), 0);
    td_waiters_publish(waiters);
    await(&waits.tried);
    atomic_store(&waits.result, TD_RETRY_ANSWERED);
    close_waiters();
    assert_int_equal(atomic_load(&waits.resumed), 1);
    assert_int_equal(atomic_load(&changed.tries), 1);
}

/* A change is published after the request was tried, and before it waits. */
static void a_publication_before_the_wait_is_not_missed(void **state)
{
    (void)state;
    struct task task;
    open_waiters(1);
    prepare(&task, TD_RETRY_ANSWERED);
    td_waiters_publish(waiters);
    park(&task);
    await(&task.done);
    close_waiters();
}

static void each_is_tried_at_its_time(void **state)
{
    (void)state;
    struct task late, early;
    open_waiters(2);
    prepare(&late, TD_RETRY_WAITS);
    prepare(&early, TD_RETRY_WAITS);
    early.waiter.until_ns = td_clock_ns() + 30000000;
    park(&late);
    park(&early);
    await(&early.done);
    assert_true(early.tried_ns >= early.waiter.until_ns);
    assert_int_equal(atomic_load(&late.tries), 0);
    atomic_store(&late.result, TD_RETRY_ANSWERED);
    close_waiters();
}

static void a_client_that_is_gone_is_noticed(void **state)
{
    (void)state;
    struct task task;
    open_waiters(1);
    prepare(&task, TD_RETRY_ANSWERED);
    park(&task);
    atomic_store(&task.is_gone, true);
    await(&task.done);
    close_waiters();
}

/* Answers that may wait for a disk are made by few jobs at once, in the order in which the requests came, while others
 * are tried as before. */
/* shows: security.md host-waiters */
static void few_answers_are_made_at_once(void **state)
{
    (void)state;
    enum { COUNT = 3 * TD_WAITERS_MAKING };
    static struct task tasks[COUNT];
    open_waiters(COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        prepare(&tasks[i], TD_RETRY_REFUSED);
        park(&tasks[i]);
    }
    td_waiters_publish(waiters);
    for (size_t i = 0; i < COUNT; i++)
        await(&tasks[i].tried);
    struct task other;
    prepare(&other, TD_RETRY_ANSWERED);
    other.waiter.until_ns = 0;
    for (size_t ended = 0; ended < COUNT; ended++) {
        size_t most = ended + TD_WAITERS_MAKING < COUNT ? ended + TD_WAITERS_MAKING : COUNT;
        while (atomic_load(&made_count) < most)
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        if (ended == 0) {
            park(&other);
            await(&other.done);
        }
        assert_int_equal(atomic_load(&made_count), most);
        assert_int_equal(sem_post(&tasks[ended].go_on), 0);
        await(&tasks[ended].done);
    }
    close_waiters();
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(atomic_load(&tasks[i].tries), 1);
        assert_int_equal(atomic_load(&tasks[i].jobs), 1);
        assert_int_equal(atomic_load(&tasks[i].resumed), 1);
        if (i >= TD_WAITERS_MAKING) /* the first ones began side by side */
            assert_ptr_equal(made[i], &tasks[i]);
    }
}

static void at_most_max_enter(void **state)
{
    (void)state;
    open_waiters(2);
    assert_true(td_waiters_enter(waiters) && td_waiters_enter(waiters));
    assert_false(td_waiters_enter(waiters));
    td_waiters_leave(waiters);
    assert_true(td_waiters_enter(waiters));
    assert_int_equal(atomic_load(&count), 2);
    close_waiters();
}

static void *sleep_main(void *argument)
{
    struct task *task = argument;
    bool slept = td_waiters_sleep(waiters, &task->waiter);
    (void)sem_post(&task->done);
    return slept ? task : NULL;
}

static void a_thread_of_its_own_is_woken(void **state)
{
    (void)state;
    struct task task;
    pthread_t thread;
    void *slept;
    open_waiters(1);
    prepare(&task, TD_RETRY_REFUSED);
    assert_int_equal(pthread_create(&thread, NULL, sleep_main, &task), 0);
    nap_ms(5);
    assert_int_not_equal(sem_trywait(&task.done), 0);
    td_waiters_publish(waiters);
    assert_int_equal(pthread_join(thread, &slept), 0);
    assert_ptr_equal(slept, &task);
    assert_int_equal(atomic_load(&task.tries), 0); /* its own thread tries it */
    close_waiters();
}

static void nobody_waits_after_the_end(void **state)
{
    (void)state;
    struct task task;
    open_waiters(1);
    prepare(&task, TD_RETRY_ANSWERED);
    td_waiters_close(waiters);
    assert_false(td_waiters_park(waiters, &task.waiter, &suspending, &task));
    assert_int_equal(atomic_load(&task.suspended), 0);
    assert_false(td_waiters_sleep(waiters, &task.waiter));
    td_jobs_close(jobs);
    td_jobs_destroy(jobs);
    td_waiters_destroy(waiters);
    td_waiters_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_publication_has_each_tried_again),
        cmocka_unit_test(a_publication_before_the_wait_is_not_missed),
        cmocka_unit_test(each_is_tried_at_its_time),
        cmocka_unit_test(a_client_that_is_gone_is_noticed),
        cmocka_unit_test(few_answers_are_made_at_once),
        cmocka_unit_test(at_most_max_enter),
        cmocka_unit_test(a_thread_of_its_own_is_woken),
        cmocka_unit_test(nobody_waits_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
