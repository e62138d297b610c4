/* Work on a thread of its own with a lower priority, and threads that run soon. */
#include "core/scheduling.h"

#include "core/waiting.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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

enum { SOON_SLICE_NS = 100 * 1000, SOON_STEPS = 5 };

/* sched_setattr(2) */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/* What a thread finds of itself before and after. */
struct soon {
    void (*ask)(void);
    bool is_forbidden; /* its nice value may not fall */
    struct attributes before, after;
};

static void fall_directly(void)
{
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) - SOON_STEPS);
}

static void *ask_for_it(void *argument)
{
    struct soon *soon = argument;
    if (soon->is_forbidden) { /* for this thread alone */
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct caps[2];
        assert_int_equal(syscall(SYS_capget, &header, caps), 0);
        caps[0].effective &= ~(UINT32_C(1) << CAP_SYS_NICE);
        assert_int_equal(syscall(SYS_capset, &header, caps), 0);
    }
    assert_int_equal(syscall(SYS_sched_getattr, 0, &soon->before, sizeof soon->before, 0), 0);
    soon->ask();
    assert_int_equal(syscall(SYS_sched_getattr, 0, &soon->after, sizeof soon->after, 0), 0);
    return NULL;
}

/* Runs ask() on a thread of its own, since a thread cannot always raise its nice value again. */
static struct soon asked(void (*ask)(void), bool is_forbidden)
{
    struct soon soon = {.ask = ask, .is_forbidden = is_forbidden};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_for_it, &soon), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return soon;
}

static void assert_short_slices(const struct soon *soon)
{
    assert_int_equal(soon->after.policy, soon->before.policy);
    if (soon->before.runtime_ns != 0) /* the kernel has slices: Linux 6.12 */
        assert_int_equal(soon->after.runtime_ns, SOON_SLICE_NS);
    else
        print_message("the slices are not checked: this kernel has none\n");
}

static void a_thread_that_runs_soon_may_use_more_time(void **state)
{
    (void)state;
    struct soon direct = asked(fall_directly, false);
    struct soon soon = asked(td_thread_run_soon, false);
    assert_short_slices(&soon);
    assert_int_equal(soon.after.nice, direct.after.nice);
    if (direct.after.nice == direct.before.nice)
        print_message("the fall of the nice value is not checked: this process may not ask for it\n");
}

static void without_permission_it_has_short_slices_alone(void **state)
{
    (void)state;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NICE, &old), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NICE, &none), 0);
    struct soon soon = asked(td_thread_run_soon, true);
    assert_int_equal(setrlimit(RLIMIT_NICE, &old), 0);
    assert_short_slices(&soon);
    assert_int_equal(soon.after.nice, soon.before.nice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_work_has_a_lower_priority),
        cmocka_unit_test(without_a_thread_it_is_done_here),
        cmocka_unit_test(a_thread_that_must_not_wait_is_refused),
        cmocka_unit_test(a_thread_that_runs_soon_may_use_more_time),
        cmocka_unit_test(without_permission_it_has_short_slices_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
