/* Work on a thread of its own with a lower priority, and short time slices. */
#include "core/scheduling.h"

#include "core/waiting.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

static bool no_thread; /* none can be started */

/* The linker gives us the calls (--wrap). */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return no_thread ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

struct seen {
    pthread_t thread;
    int nice, calls;
};

static void look(void *argument)
{
    struct seen *seen = argument;
    seen->thread = pthread_self();
    seen->nice = getpriority(PRIO_PROCESS, 0);
    seen->calls++;
}

static void long_work_has_a_lower_priority(void **state)
{
    (void)state;
    struct seen seen = {0};
    int nice = getpriority(PRIO_PROCESS, 0);
    assert_true(td_run_in_background(look, &seen, NULL));
    assert_int_equal(seen.calls, 1);
    assert_false(pthread_equal(seen.thread, pthread_self()));
    assert_int_equal(seen.nice, nice > 5 ? nice : 5);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
}

static void without_a_thread_it_is_done_here(void **state)
{
    (void)state;
    struct seen seen = {0};
    no_thread = true;
    assert_true(td_run_in_background(look, &seen, NULL));
    no_thread = false;
    assert_int_equal(seen.calls, 1);
    assert_true(pthread_equal(seen.thread, pthread_self()));
}

static void a_thread_that_must_not_wait_is_refused(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct seen seen = {0};
    td_waiting_forbid();
    assert_false(td_run_in_background(look, &seen, &err));
    assert_true(td_waiting_allow());
    assert_int_equal(seen.calls, 0);
}

static void short_slices_change_nothing_else(void **state)
{
    (void)state;
    int nice = getpriority(PRIO_PROCESS, 0);
    td_thread_prefer_short_slices();
    assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_work_has_a_lower_priority),
        cmocka_unit_test(without_a_thread_it_is_done_here),
        cmocka_unit_test(a_thread_that_must_not_wait_is_refused),
        cmocka_unit_test(short_slices_change_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
