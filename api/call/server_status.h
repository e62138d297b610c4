/* The state of the server: numbers and problems for the status page and for its JSON. */
#ifndef TD_API_CALL_SERVER_STATUS_H
#define TD_API_CALL_SERVER_STATUS_H

#include "api/call/call.h"
#include "catalog/publish/publish.h"
#include "catalog/upstream/upstream.h"

enum { TD_STATUS_PROBLEMS = 200 };

/* A problem of a file or of a set of files. */
struct td_status_problem {
    const char *model; /* its id; "": the path belongs to no model */
    const char *path, *message;
};

struct td_server_status {
    const char *state; /* "ready", "scanning", "draining" ...; static */
    bool ready;
    struct td_catalog_status catalog;
    struct td_upstream_status upstream;
    struct td_publish_status publish;
    uint64_t connections, max_connections, in_flight, waiters, requests, sent_bytes, upload_bytes, uploads;
    uint64_t seconds[TD_METRICS_SAMPLES][TD_SAMPLED_COUNT]; /* counted in each of the last seconds, the newest last */
    size_t second_count;
    /* The part that the sender may see. The texts live as long as the snapshot. */
    struct td_upstream_arrival arrivals[TD_UPSTREAM_MODELS];
    struct td_status_problem problems[TD_STATUS_PROBLEMS];
    size_t arrival_count, problem_count;
    bool has_more_problems;
    struct td_snapshot *snapshot; /* a reference; NULL: none yet, or the sender may see no model */
};

/* Returns the state of the server in one word (static), and sets *ready to whether it is ready. */
const char *td_server_state(const struct td_call *call, const struct td_catalog_status *status, bool *ready);

/* Fills in *status. Call td_server_status_fini in every case. Never waits. */
void td_server_status_get(const struct td_call *call, struct td_server_status *status);

/* Drops the snapshot. */
void td_server_status_fini(struct td_server_status *status);

#endif
