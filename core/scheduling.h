/* Requests to the kernel's scheduler about the running thread. */
#ifndef TD_CORE_SCHEDULING_H
#define TD_CORE_SCHEDULING_H

/* Asks that the running thread runs soon after it wakes, for a thread that works in short bursts: it gets time slices
 * of 0.1 ms, and so precedes threads with longer ones, without getting more time than these (EEVDF, Linux 6.12). Other
 * kernels ignore it, and the thread's policy and nice value stay. */
void td_thread_prefer_short_slices(void);

#endif
