/* Threads with a small stack, and requests to the kernel's scheduler. */
#ifndef TD_CORE_THREAD_H
#define TD_CORE_THREAD_H

#include "core/error.h"

#include <pthread.h>

/* Size of a small stack, for threads that are started often or in great number. A thread of pthread_create without
 * attributes takes address space as `ulimit -s` says, mostly 8 MiB. The C library caches few stacks of that size for
 * later threads, but many small ones. Threads that live as long as the program have the ordinary stack. What runs on a
 * small stack keeps large buffers elsewhere. */
enum { TD_SMALL_STACK_BYTES = 256 * 1024 };

/* Starts a thread with a small stack that calls run(argument). Sets *out to the thread, which the caller must join; out
 * NULL: the thread is detached, and frees itself at its end. The argument is borrowed and must outlive its use by the
 * thread. Returns 0 or, with no thread and *out undefined, an error number: EAGAIN when the system allows no further
 * thread, ENOMEM. Any thread. */
int td_small_thread_start(void *(*run)(void *argument), void *argument, pthread_t *out);

/* Asks that the running thread runs soon after it wakes, for a thread that works in short bursts:
 *   - It gets time slices of 0.1 ms, and so precedes threads with longer ones, without getting more time than these
 *     (EEVDF, Linux 6.12). Other kernels ignore it.
 *   - Its nice value falls by 5, to -20 at the least, so that it may use more time than other threads when many want
 *     to run. Without CAP_SYS_NICE, or a sufficient RLIMIT_NICE, the nice value stays.
 * The thread's policy stays. Threads that it starts have the kernel's slices, and nice 0 where its own value is below
 * 0. Call it once per thread. */
void td_thread_run_soon(void);

/* Calls run(argument) on a thread of its own, which has a lower priority than other threads (nice 5), and waits for
 * it: for long computations. On the running thread if none can be started. Returns false, with nothing called, when the
 * running thread must not wait (core/waiting.h). */
bool td_run_in_background(void (*run)(void *argument), void *argument, struct td_error *err);

#endif
