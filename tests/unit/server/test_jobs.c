/* Jobs when the system allows few threads. */
#include "server/serving/jobs.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

/* How many threads may still be started. */
static _Atomic int threads_left;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    if (atomic_fetch_sub(&threads_left, 1) <= 0)
        return EAGAIN;
    return __real_pthread_create(thread, attributes, run, argument);
}

/* A job that waits until the test releases it. */
struct task {
    struct td_job job; /* first: on the way back a job is a task */
    sem_t begun, go_on, done;
};

static void run_task(struct td_job *job)
{
    struct task *task = (struct task *)(void *)job;
    (void)sem_post(&task->begun);
    while (sem_wait(&task->go_on) != 0)
        continue;
    (void)sem_post(&task->done);
}

static void begin_task(struct td_jobs *jobs, struct task *task)
{
    *task = (struct task){.job = {.run = run_task}};
    assert_int_equal(sem_init(&task->begun, 0, 0), 0);
    assert_int_equal(sem_init(&task->go_on, 0, 0), 0);
    assert_int_equal(sem_init(&task->done, 0, 0), 0);
    assert_true(td_jobs_run(jobs, NULL, NULL, &task->job));
}

static void finish(struct td_jobs *jobs)
{
    td_jobs_close(jobs);
    td_jobs_destroy(jobs);
}

static void without_any_thread_nothing_begins(void **state)
{
    (void)state;
    struct td_jobs *jobs = NULL;
    struct td_error err = TD_ERROR_INIT;
    atomic_store(&threads_left, 0);
    assert_false(td_jobs_create(8, &jobs, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
}

static void jobs_that_wait_hold_up_no_other(void **state)
{
    (void)state;
    struct td_jobs *jobs = NULL;
    struct td_error err = TD_ERROR_INIT;
    struct task slow[3], quick;
    atomic_store(&threads_left, 8);
    assert_true(td_jobs_create(8, &jobs, &err));
    for (size_t i = 0; i < 3; i++)
        begin_task(jobs, &slow[i]);
    begin_task(jobs, &quick);
    assert_int_equal(sem_post(&quick.go_on), 0);
    assert_int_equal(sem_wait(&quick.done), 0);
    assert_false(td_jobs_are_stuck(jobs));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(sem_post(&slow[i].go_on), 0);
    finish(jobs);
}

/* When no further thread can be started, a job waits for a busy one. The jobs are stuck only while no thread becomes
 * free. */
/* shows: security.md host-answer-threads */
static void few_threads_do_all_jobs(void **state)
{
    (void)state;
    struct td_jobs *jobs = NULL;
    struct td_error err = TD_ERROR_INIT;
    struct task first, second;
    atomic_store(&threads_left, 1);
    assert_true(td_jobs_create(8, &jobs, &err));
    begin_task(jobs, &first);
    assert_int_equal(sem_wait(&first.begun), 0);
    assert_false(td_jobs_are_stuck(jobs)); /* nobody waits for a thread */
    begin_task(jobs, &second);
    while (!td_jobs_are_stuck(jobs))
        nap_ms(2);
    assert_int_not_equal(sem_trywait(&second.begun), 0);
    assert_int_equal(sem_post(&first.go_on), 0);
    assert_int_equal(sem_wait(&second.begun), 0);
    assert_false(td_jobs_are_stuck(jobs));
    assert_int_equal(sem_post(&second.go_on), 0);
    finish(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_any_thread_nothing_begins),
        cmocka_unit_test(jobs_that_wait_hold_up_no_other),
        cmocka_unit_test(few_threads_do_all_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
