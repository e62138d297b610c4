#include "core/thread.h"

#include "core/waiting.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int td_small_thread_start(void *(*run)(void *argument), void *argument, pthread_t *out)
{
    pthread_t thread;
    pthread_attr_t attributes;
    int sys = pthread_attr_init(&attributes);
    if (sys != 0)
        return sys;
    (void)pthread_attr_setstacksize(&attributes, TD_SMALL_STACK_BYTES);
    if (out == NULL)
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sys = pthread_create(out != NULL ? out : &thread, &attributes, run, argument);
    (void)pthread_attr_destroy(&attributes);
    return sys;
}

/* On Linux, setpriority(PRIO_PROCESS, 0, ...) means the running thread. A thread without privileges can lower its
 * priority, and not raise it again: so a long computation has a thread of its own. */

/* sched_setattr(2) of linux/sched/types.h, which cannot be included beside pthread.h. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

enum { RESET_ON_FORK = 1 }; /* SCHED_FLAG_RESET_ON_FORK of linux/sched.h */

enum { BACKGROUND_NICE = 5, SOON_NICE_STEPS = 5, SLICE_NS = 100 * 1000 };

void td_thread_run_soon(void)
{
    struct attributes attributes;
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0)
        return;
    attributes.flags |= RESET_ON_FORK;
    attributes.runtime_ns = SLICE_NS;
    if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
        return; /* a thread that this one starts would inherit the nice value */
    /* By a call of its own: the kernel refuses the other one as a whole where the nice value may not fall. */
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) - SOON_NICE_STEPS);
}

struct background {
    void (*run)(void *argument);
    void *argument;
};

static void *background_main(void *argument)
{
    const struct background *background = argument;
    if (getpriority(PRIO_PROCESS, 0) < BACKGROUND_NICE)
        (void)setpriority(PRIO_PROCESS, 0, BACKGROUND_NICE);
    background->run(background->argument);
    return NULL;
}

bool td_run_in_background(void (*run)(void *argument), void *argument, struct td_error *err)
{
    struct background background = {.run = run, .argument = argument};
    pthread_t thread;
    if (!td_may_wait(err))
        return false;
    if (td_small_thread_start(background_main, &background, &thread) == 0)
        (void)pthread_join(thread, NULL);
    else
        run(argument);
    return true;
}
