/* A thread that runs tasks only when nothing else wants the processor or the disk (SCHED_IDLE, idle class of ioprio),
 * as far as the host allows. While other work keeps it from running, threads that want a lock that it holds would wait.
 * So a task takes no lock that other threads take, and two semaphores pass tasks and results between the owner and this
 * thread. */
#ifndef TD_WORK_IDLE_THREAD_H
#define TD_WORK_IDLE_THREAD_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

struct td_idle_thread {
    pthread_t thread;
    sem_t go, done;
    void (*run)(void *context); /* NULL ends the thread */
    void *context;
};

/* Starts the thread. Returns false, with nothing to stop, when the system refuses. */
bool td_idle_thread_start(struct td_idle_thread *idle);

/* Calls run(context) on the thread, and waits for its end. One caller at a time. */
void td_idle_thread_run(struct td_idle_thread *idle, void (*run)(void *context), void *context);

/* Ends the thread, which runs no task, and waits for its end. */
void td_idle_thread_stop(struct td_idle_thread *idle);

#endif
