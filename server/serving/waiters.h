/* Requests that wait for a change of the published models (td_response's wait_until_ns). In a shared thread a
 * connection is suspended while its request waits, so that waiting takes no thread; a connection with a thread of its
 * own waits in that. One thread, the waker, retries all requests when a change is published, each request at its time,
 * and requests of clients that are gone within 1 s. The waker never waits for a disk: answers that may have to wait are
 * made by at most TD_WAITERS_MAKING jobs, in the order in which the requests began to wait. */
#ifndef TD_SERVER_SERVING_WAITERS_H
#define TD_SERVER_SERVING_WAITERS_H

#include "core/cancel.h"
#include "core/error.h"
#include "server/serving/jobs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most jobs that make answers of requests that have waited. */
enum { TD_WAITERS_MAKING = 8 };

struct td_waiters;

/* The result of retrying a request. */
enum td_retry {
    TD_RETRY_WAITS,    /* nothing has changed for it, and its time has not come; `seen` of td_waiter is updated */
    TD_RETRY_ANSWERED, /* its answer is made */
    TD_RETRY_REFUSED,  /* a job has to retry it, since the try may wait */
};

/* One request that waits. Part of an object that lives until the request is answered. The first four members are set
 * by the owner before each wait. */
struct td_waiter {
    /* Retries the request. may_wait: a job calls it, and the result is never TD_RETRY_REFUSED. Else the waker calls it,
     * and it must not wait. Not called for a request that waits in its own thread. */
    enum td_retry (*retry)(struct td_waiter *waiter, bool may_wait);
    uint64_t until_ns;              /* when it is retried at the latest (td_clock_ns) */
    uint64_t seen;                  /* td_waiters_published before the last try */
    const struct td_cancel *cancel; /* asked when the client is gone */
    /* of the waiters alone */
    const struct td_suspending *how; /* of its connection, which is suspended; NULL: it waits in its own thread */
    void *connection;
    pthread_cond_t *wake; /* of that thread */
    bool is_due;          /* that thread is to continue */
    struct td_waiter *next;
};

struct td_waiters_config {
    size_t max;              /* most requests that wait at once */
    _Atomic uint64_t *count; /* of those that wait now; borrowed */
    struct td_jobs *jobs;    /* borrowed; NULL: no connection is ever suspended */
};

/* Starts the waker. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_waiters_create(const struct td_waiters_config *config, struct td_waiters **out, struct td_error *err);

/* Counts one more request that waits. Returns false, with nothing counted, when `max` wait already. Any thread. */
bool td_waiters_enter(struct td_waiters *waiters);

/* Counts one request less. Any thread. */
void td_waiters_leave(struct td_waiters *waiters);

/* Returns the number of calls of td_waiters_publish. Call it before a request is tried, so that a change between the
 * try and the wait is not missed. Any thread. */
uint64_t td_waiters_published(const struct td_waiters *waiters);

/* Has all requests retried, because a change was published or because waits are to end. Quick. Any thread. */
void td_waiters_publish(struct td_waiters *waiters);

/* Suspends the connection until its request is answered, or another try needs the connection's thread. Returns false,
 * with nothing done, after td_waiters_close. Called by the thread that has tried the request, which must then leave the
 * connection alone. */
bool td_waiters_park(struct td_waiters *waiters, struct td_waiter *waiter, const struct td_suspending *how,
                     void *connection);

/* Waits, in the connection's own thread, until the request is to be retried. Returns false at once after
 * td_waiters_close or when the system refuses. */
bool td_waiters_sleep(struct td_waiters *waiters, struct td_waiter *waiter);

/* Has all requests retried, waits until no request waits, and accepts no further ones. The retries must end the waits.
 * Call it once, before the jobs are closed. */
void td_waiters_close(struct td_waiters *waiters);

/* Ends the waker and frees the state. td_waiters_close and the end of the jobs come first. NULL is allowed. */
void td_waiters_destroy(struct td_waiters *waiters);

#endif
