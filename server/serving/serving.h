/* The state that the servers of HTTP/1.1 and of HTTP/2 share: the parts of the service that answer requests, the
 * threads for work that a connection's thread may not do, and the report of each answer. */
#ifndef TD_SERVER_SERVING_SERVING_H
#define TD_SERVER_SERVING_SERVING_H

#include "api/api.h"
#include "server/config/config.h"
#include "server/log/access_log.h"
#include "server/net/connection.h"
#include "server/net/uploads.h"
#include "server/serving/jobs.h"
#include "server/serving/tls.h"
#include "server/serving/waiters.h"

#include <stdbool.h>
#include <stdint.h>

struct td_serving {
    const struct td_config *config; /* borrowed, like the next four */
    struct td_api *api;
    struct td_registry *registry;
    struct td_access_log *log;
    struct td_tls *tls;         /* NULL: no port has TLS */
    struct td_uploads uploads;  /* all request bodies that are being read or handled */
    struct td_waiters *waiters; /* requests that wait for a change */
    struct td_jobs *jobs;       /* NULL: every connection has a thread of its own */
    bool has_uploads;
};

/* Begins with the parts that are borrowed set and all else zero: makes the others. Call td_serving_fini also after a
 * failure. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_serving_begin(struct td_serving *serving, struct td_error *err);

/* Has all requests that wait for a change, and all streams, tried again: to end them after api->draining was set, or
 * because the tokens have changed. Returns at once. Any thread. */
void td_serving_retry_waits(struct td_serving *serving);

/* Sets api->draining, and ends all waits and all jobs. Connections that were suspended are resumed. Call it before the
 * servers of HTTP/1.1 end, and after that of HTTP/2 has ended. Allowed for zeros. */
void td_serving_close(struct td_serving *serving);

/* Frees what td_serving_begin has made; the servers have ended. Allowed for zeros. */
void td_serving_fini(struct td_serving *serving);

/* An answer that has ended, complete or broken off. */
struct td_report {
    int status; /* 0: the request ended before it was answered; it is not counted as one */
    enum td_route route;
    enum td_cut cut;
    bool changed;                      /* it is an error, because a file has changed */
    uint64_t sent_bytes, length_bytes; /* of the answer's body: sent, and as a whole */
    bool is_upload;                    /* the request's body went to a sink */
    uint64_t received_bytes;           /* of the request's body */
    uint64_t took_ns, waited_ns;       /* the time without the wait for a change, and that wait */
    const char *token, *request_id;    /* as in td_access_event */
};

/* Counts the answer, writes its line of the access log, and asks for a scan when a file had changed. `lines` are those
 * of the connection. */
void td_serving_report(const struct td_serving *serving, struct td_access_lines *lines,
                       const struct td_request *request, const struct td_report *report);

#endif
