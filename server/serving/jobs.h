/* Jobs: work for a connection whose thread must not wait. Another thread does the work, and the connection's thread
 * leaves the connection, or a part of it, alone until then: it is suspended. A free thread takes the job. If no thread
 * is free, another one is started, so that a job which waits for a disk does not delay others. */
#ifndef TD_SERVER_SERVING_JOBS_H
#define TD_SERVER_SERVING_JOBS_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_jobs;

/* How connections of one kind are suspended and resumed. */
struct td_suspending {
    void (*suspend)(void *connection); /* NULL: the caller has suspended it */
    void (*resume)(void *connection);  /* any thread calls it */
};

/* Work for one connection. Part of an object that lives until the connection is resumed. */
struct td_job {
    void (*run)(struct td_job *job); /* called once, by any thread; the connection is resumed after it */
    const struct td_suspending *how; /* set by td_jobs_run, like the members below */
    void *connection;
    uint64_t since_ns; /* when it was queued */
    struct td_job *next;
};

/* Starts the first thread. At most max_threads are started; further jobs wait for a free one. When the system allows no
 * further thread, this is logged, and jobs wait in the same way. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_jobs_create(size_t max_threads, struct td_jobs **out, struct td_error *err);

/* Suspends the connection and has its job run. Returns false, with nothing done, after td_jobs_close. Called by the
 * connection's thread, which must then leave the connection alone. how NULL: the job belongs to no connection, or
 * resumes its connections itself, and may be used again once it has begun. Any thread. */
bool td_jobs_run(struct td_jobs *jobs, const struct td_suspending *how, void *connection, struct td_job *job);

/* Returns whether a job has waited for a thread for longer than 1 s: no further thread can be started, and no thread
 * has become free, for example because all wait for a disk that hangs. A further job would wait as long. */
bool td_jobs_are_stuck(struct td_jobs *jobs);

/* Waits until every job has ended and its connection is resumed. No further job is accepted. Call once. */
void td_jobs_close(struct td_jobs *jobs);

/* Ends the threads and frees the jobs' state. td_jobs_close comes first. NULL is allowed. */
void td_jobs_destroy(struct td_jobs *jobs);

#endif
