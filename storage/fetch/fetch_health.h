/* Decides which of a client's servers to ask, when to retry a server that has failed, and when to give up: for one
 * file, or one small answer. The caller passes the time (td_clock_ns). */
#ifndef TD_STORAGE_FETCH_FETCH_HEALTH_H
#define TD_STORAGE_FETCH_FETCH_HEALTH_H

#include "core/error.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the time to wait in ns after `failures` failures in a row (from 1): between half of and the whole of 0.25 s,
 * 0.5 s, 1 s ... and at most 15 s; never less than retry_after_s seconds. `random` is any number; it decides the
 * jitter, so that many clients do not retry at once. */
uint64_t td_fetch_backoff_ns(unsigned failures, uint64_t retry_after_s, uint64_t random);

struct td_fetch_health {
    struct td_fetch_server_health {
        uint64_t due_ns;   /* not to be asked before */
        unsigned failures; /* in a row */
        bool is_excluded;  /* not to be asked again */
    } servers[TD_FETCH_MAX_SERVERS];
    size_t count;
    uint64_t retry_for_ns;
    uint64_t progress_ns; /* time of the latest progress, or of the start */
    uint64_t random;
    struct td_error last; /* the latest failure; TD_OK: none, as when all servers must wait from the start */
    const struct td_fetch_client *client;    /* borrowed */
    struct td_fetch_reputation *reputations; /* NULL: none; borrowed */
};

/* Initialises the health of a client's servers from their reputations (may be NULL), which also record later failures
 * and progress. The client must outlive it. A server that has asked clients to wait counts as failed. */
void td_fetch_health_init(struct td_fetch_health *health, const struct td_fetch_client *client, uint64_t now_ns);

/* Records that a server has done what was asked, at least a good part. */
void td_fetch_health_progress(struct td_fetch_health *health, size_t server, uint64_t now_ns);

/* Lets the time without progress begin now, if it is not running: no failure has come since the latest progress. For a
 * request that may take long before it fails. */
void td_fetch_health_begin_patience(struct td_fetch_health *health, size_t server, uint64_t now_ns);

/* Records a failure after which a retry may help, with its answer, as far as it came. The server is asked again after a
 * backoff, or as the answer's Retry-After says; 429 with that, and 503 of a server that is not a tensord, are
 * remembered for other files, too, unless they came after a redirect. Several connections that fail at once count as
 * one failure. Returns the time to wait in ns; 0, and the server is not asked again, when retry_for_ns is 0. */
uint64_t td_fetch_health_failed(struct td_fetch_health *health, size_t server, const struct td_fetch_answer *answer,
                                uint64_t now_ns, const struct td_error *why);

/* Records a final failure: the server is not asked again. */
void td_fetch_health_exclude(struct td_fetch_health *health, size_t server, uint64_t now_ns,
                             const struct td_error *why);

/* Excludes a server without a failure. */
void td_fetch_health_leave_out(struct td_fetch_health *health, size_t server);

/* Returns whether a server may be asked now. A server with a bad reputation may not while another one may. */
bool td_fetch_health_may(const struct td_fetch_health *health, size_t server, uint64_t now_ns);

/* Returns the time (td_clock_ns) at which the next server may be asked; UINT64_MAX: all are excluded. */
uint64_t td_fetch_health_due_ns(const struct td_fetch_health *health);

/* Returns whether to give up, and then sets the error: no server remains, or all have failed and no server may be asked
 * before retry_for_ns have passed without progress. Call it when no request is running. */
bool td_fetch_health_is_over(const struct td_fetch_health *health, uint64_t now_ns, struct td_error *err);

#endif
