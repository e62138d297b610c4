/* Threads with a small stack. */
#include "core/thread.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <semaphore.h>

/* The errors that the wrapped functions return, and the attributes of the last thread that was started. */
static int create_error, init_error, detach_state;
static size_t stack_bytes;

/* The linker gives us the calls (--wrap). */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __real_pthread_attr_init(pthread_attr_t *attributes);
int __wrap_pthread_attr_init(pthread_attr_t *attributes);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    assert_non_null(attributes);
    assert_int_equal(pthread_attr_getstacksize(attributes, &stack_bytes), 0);
    assert_int_equal(pthread_attr_getdetachstate(attributes, &detach_state), 0);
    return create_error != 0 ? create_error : __real_pthread_create(thread, attributes, run, argument);
}

int __wrap_pthread_attr_init(pthread_attr_t *attributes)
{
    return init_error != 0 ? init_error : __real_pthread_attr_init(attributes);
}

struct seen {
    int calls;
    pthread_t thread;
    sem_t done;
};

static void *look(void *argument)
{
    struct seen *seen = argument;
    seen->calls++;
    seen->thread = pthread_self();
    (void)sem_post(&seen->done);
    return seen;
}

static int start(void **state)
{
    static struct seen seen;
    seen = (struct seen){0};
    *state = &seen;
    create_error = init_error = 0;
    stack_bytes = 0;
    detach_state = -1;
    return sem_init(&seen.done, 0, 0);
}

static void a_thread_can_be_joined(void **state)
{
    struct seen *seen = *state;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(td_small_thread_start(look, seen, &thread), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, seen);
    assert_int_equal(seen->calls, 1);
    assert_true(pthread_equal(seen->thread, thread));
    assert_int_equal(stack_bytes, 256 * 1024);
    assert_int_equal(detach_state, PTHREAD_CREATE_JOINABLE);
}

static void a_thread_that_nobody_joins_is_detached(void **state)
{
    struct seen *seen = *state;
    assert_int_equal(td_small_thread_start(look, seen, NULL), 0);
    while (sem_wait(&seen->done) != 0)
        continue;
    assert_int_equal(seen->calls, 1);
    assert_int_equal(stack_bytes, 256 * 1024);
    assert_int_equal(detach_state, PTHREAD_CREATE_DETACHED);
}

static void without_a_thread_the_error_is_the_system_s(void **state)
{
    struct seen *seen = *state;
    pthread_t thread;
    create_error = EAGAIN;
    assert_int_equal(td_small_thread_start(look, seen, &thread), EAGAIN);
    assert_int_equal(td_small_thread_start(look, seen, NULL), EAGAIN);
    init_error = ENOMEM;
    assert_int_equal(td_small_thread_start(look, seen, &thread), ENOMEM);
    assert_int_equal(seen->calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_thread_can_be_joined, start),
        cmocka_unit_test_setup(a_thread_that_nobody_joins_is_detached, start),
        cmocka_unit_test_setup(without_a_thread_the_error_is_the_system_s, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
