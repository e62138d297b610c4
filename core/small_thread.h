/* Threads with a small stack: for those that are started often or in great number. A thread of pthread_create without
 * attributes takes address space as `ulimit -s` says, mostly 8 MiB. The C library caches few stacks of that size for
 * later threads, but many small ones. Threads that live as long as the program have the ordinary stack. */
#ifndef TD_CORE_SMALL_THREAD_H
#define TD_CORE_SMALL_THREAD_H

#include <pthread.h>

/* Size of the stack. What runs on it keeps large buffers elsewhere. */
enum { TD_SMALL_STACK_BYTES = 256 * 1024 };

/* Starts a thread that calls run(argument). Sets *out to the thread, which the caller must join; out NULL: the thread
 * is detached, and frees itself at its end. The argument is borrowed and must outlive its use by the thread. Returns 0
 * or, with no thread and *out undefined, an error number: EAGAIN when the system allows no further thread, ENOMEM. Any
 * thread. */
int td_small_thread_start(void *(*run)(void *argument), void *argument, pthread_t *out);

#endif
