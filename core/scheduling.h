/* Requests to the kernel's scheduler. */
#ifndef TD_CORE_SCHEDULING_H
#define TD_CORE_SCHEDULING_H

#include "core/error.h"

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
