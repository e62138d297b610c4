/* The section in which a thread must not wait. */
#include "core/waiting.h"

#include "tests/unit/unit.h"

#include <pthread.h>

static void a_thread_may_wait_at_first(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_waiting_is_forbidden());
    assert_true(td_may_wait(&err));
    assert_int_equal(err.code, TD_OK);
    assert_false(td_waiting_was_refused());
}

static void a_refusal_is_told_at_the_end_of_the_section(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    td_waiting_forbid();
    assert_true(td_waiting_is_forbidden());
    assert_false(td_waiting_was_refused());
    assert_false(td_may_wait(&err));
    assert_int_equal(err.code, TD_INTERNAL);
    assert_false(td_may_wait(NULL));
    assert_true(td_waiting_was_refused());
    assert_true(td_waiting_allow());
    assert_false(td_waiting_was_refused());
    assert_true(td_may_wait(NULL));
    td_waiting_forbid();
    assert_false(td_waiting_was_refused());
    assert_false(td_waiting_allow());
}

static void *other_thread(void *argument)
{
    *(bool *)argument = td_may_wait(NULL);
    return NULL;
}

static void other_threads_are_not_concerned(void **state)
{
    (void)state;
    pthread_t thread;
    bool may = false;
    td_waiting_forbid();
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &may), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(may);
    assert_true(td_waiting_is_forbidden());
    assert_false(td_waiting_allow());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_may_wait_at_first),
        cmocka_unit_test(a_refusal_is_told_at_the_end_of_the_section),
        cmocka_unit_test(other_threads_are_not_concerned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
