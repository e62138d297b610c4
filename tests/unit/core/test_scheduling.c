/* Work on a thread of its own with a lower priority, and threads that run soon. */
#include "core/thread.h"

#include "core/waiting.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
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

/* ---- threads that run soon ----------------------------------------------------------------------------- */

enum { SOON_SLICE_NS = 100 * 1000, SOON_STEPS = 5 };

static int wanted_nice; /* the last value that setpriority was called with */

int __real_setpriority(__priority_which_t which, id_t who, int nice);
int __wrap_setpriority(__priority_which_t which, id_t who, int nice);
int __wrap_setpriority(__priority_which_t which, id_t who, int nice)
{
    wanted_nice = nice;
    return __real_setpriority(which, who, nice);
}

/* The scheduling of one thread. */
struct scheduling {
    int policy, nice;
    uint64_t slice_ns; /* 0: the kernel has no slices (Linux before 6.12) */
};

static struct scheduling own_scheduling(void)
{
    uint64_t attributes[6] = {0}; /* struct sched_attr of sched_setattr(2): the fourth is sched_runtime */
    assert_int_equal(syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0), 0);
    return (struct scheduling){
        .policy = sched_getscheduler(0), .nice = getpriority(PRIO_PROCESS, 0), .slice_ns = attributes[3]};
}

/* A thread before and after it asks to run soon, and a thread that it starts then. */
struct soon {
    bool is_forbidden; /* without CAP_SYS_NICE */
    struct scheduling before, after, child;
};

static void *child_main(void *argument)
{
    ((struct soon *)argument)->child = own_scheduling();
    return NULL;
}

static void *soon_main(void *argument)
{
    struct soon *soon = argument;
    if (soon->is_forbidden) { /* for this thread alone */
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct caps[2];
        assert_int_equal(syscall(SYS_capget, &header, caps), 0);
        caps[0].effective &= ~(UINT32_C(1) << CAP_SYS_NICE);
        assert_int_equal(syscall(SYS_capset, &header, caps), 0);
    }
    pthread_t child;
    soon->before = own_scheduling();
    td_thread_run_soon();
    soon->after = own_scheduling();
    assert_int_equal(pthread_create(&child, NULL, child_main, soon), 0);
    assert_int_equal(pthread_join(child, NULL), 0);
    return NULL;
}

/* Has a thread ask to run soon: one of its own, since a thread cannot always raise its nice value again. Checks all but
 * whether the nice value fell. */
static struct soon run_soon(bool is_forbidden)
{
    struct soon soon = {.is_forbidden = is_forbidden};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, soon_main, &soon), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wanted_nice, soon.before.nice - SOON_STEPS);
    assert_int_equal(soon.after.policy, soon.before.policy | SCHED_RESET_ON_FORK);
    assert_int_equal(soon.after.slice_ns, soon.before.slice_ns == 0 ? 0 : SOON_SLICE_NS);
    assert_int_equal(soon.child.policy, soon.before.policy);
    assert_int_equal(soon.child.slice_ns, soon.before.slice_ns);
    assert_int_equal(soon.child.nice, soon.after.nice < 0 ? 0 : soon.after.nice);
    return soon;
}

static void a_thread_that_runs_soon_may_use_more_time(void **state)
{
    (void)state;
    struct soon soon = run_soon(false);
    if (soon.after.nice != soon.before.nice) /* the kernel allows it */
        assert_int_equal(soon.after.nice, soon.before.nice - SOON_STEPS);
}

static void without_permission_it_has_short_slices_alone(void **state)
{
    (void)state;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NICE, &old), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NICE, &none), 0);
    struct soon soon = run_soon(true);
    assert_int_equal(setrlimit(RLIMIT_NICE, &old), 0);
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
