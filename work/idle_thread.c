#include "work/idle_thread.h"

#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Makes this thread run only when nothing else wants the processor or the disk. Ignores what the host does not allow.
 */
static void lower_priority(void)
{
    enum { IOPRIO_WHO_PROCESS = 1, IOPRIO_IDLE = 3 << 13 };
    const struct sched_param none = {0};
    (void)sched_setscheduler(0, SCHED_IDLE, &none);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        continue; /* a signal */
}

static void *idle_main(void *argument)
{
    struct td_idle_thread *idle = argument;
    lower_priority();
    for (;;) {
        wait_for(&idle->go);
        if (idle->run == NULL)
            return NULL;
        idle->run(idle->context);
        (void)sem_post(&idle->done);
    }
}

bool td_idle_thread_start(struct td_idle_thread *idle)
{
    if (sem_init(&idle->go, 0, 0) != 0)
        return false;
    if (sem_init(&idle->done, 0, 0) == 0) {
        if (pthread_create(&idle->thread, NULL, idle_main, idle) == 0)
            return true;
        (void)sem_destroy(&idle->done);
    }
    (void)sem_destroy(&idle->go);
    return false;
}

void td_idle_thread_run(struct td_idle_thread *idle, void (*run)(void *context), void *context)
{
    idle->run = run;
    idle->context = context;
    (void)sem_post(&idle->go);
    wait_for(&idle->done);
}

void td_idle_thread_stop(struct td_idle_thread *idle)
{
    idle->run = NULL;
    (void)sem_post(&idle->go);
    (void)pthread_join(idle->thread, NULL);
    (void)sem_destroy(&idle->go);
    (void)sem_destroy(&idle->done);
}
