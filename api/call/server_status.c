#include "api/call/server_status.h"

#include "api/call/incoming_call.h"

#include <string.h>

const char *td_server_state(const struct td_call *call, const struct td_catalog_status *status, bool *ready)
{
    bool draining = atomic_load(&call->api->draining);
    *ready = status->ready && !draining;
    return draining                    ? "draining"
           : status->root_missing      ? "root missing"
           : status->too_few_models    ? "too few models"
           : status->first_scan_failed ? "failed"
           : !status->ready            ? "scanning"
                                       : "ready";
}

static void add_problems(struct td_server_status *status, const char *model, const struct td_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++) {
        status->has_more_problems = status->has_more_problems || status->problem_count == TD_STATUS_PROBLEMS;
        if (status->problem_count == TD_STATUS_PROBLEMS)
            return;
        status->problems[status->problem_count++] = (struct td_status_problem){
            .model = model, .path = problems->items[i].path, .message = problems->items[i].message};
    }
}

static uint64_t not_negative(int64_t count)
{
    return count < 0 ? 0 : (uint64_t)count;
}

static void count_requests(const struct td_metrics *metrics, struct td_server_status *status)
{
    status->connections = not_negative(atomic_load(&metrics->connections));
    status->max_connections = atomic_load(&metrics->connections_limit);
    status->in_flight = not_negative(atomic_load(&metrics->in_flight));
    status->waiters = atomic_load(&metrics->waiters);
    status->requests = td_metrics_request_count(metrics);
    status->sent_bytes = atomic_load(&metrics->sent_bytes);
    status->upload_bytes = atomic_load(&metrics->upload_bytes);
    status->uploads = not_negative(atomic_load(&metrics->uploads));
    status->second_count = td_metrics_last_seconds(metrics, status->seconds);
}

void td_server_status_get(const struct td_call *call, struct td_server_status *status)
{
    struct td_error err = TD_ERROR_INIT;
    memset(status, 0, sizeof *status);
    td_catalog_get_status(call->api->catalog, &status->catalog);
    status->state = td_server_state(call, &status->catalog, &status->ready);
    if (call->api->upstream != NULL)
        td_upstream_get_status(call->api->upstream, &status->upstream);
    if (call->api->publish != NULL)
        td_publish_report(call->api->publish, &status->publish);
    count_requests(&call->api->metrics, status);
    status->arrival_count = td_incoming_call_list(call, status->arrivals);
    if (call->caller.kind == TD_CALLER_NOBODY)
        return;
    status->snapshot = td_call_acquire(call, &err);
    if (status->snapshot == NULL)
        return;
    add_problems(status, "", &status->snapshot->problems);
    for (size_t i = 0; i < status->snapshot->model_count; i++)
        add_problems(status, status->snapshot->models[i].id, &status->snapshot->models[i].problems);
}

void td_server_status_fini(struct td_server_status *status)
{
    td_snapshot_unref(status->snapshot);
    status->snapshot = NULL;
}
