#include "server/serving/serving.h"

#include "http/auth/signed_url.h"

#include <string.h>

static void on_publish(void *context)
{
    td_waiters_publish(context);
}

bool td_serving_begin(struct td_serving *serving, struct td_error *err)
{
    const struct td_config *config = serving->config;
    bool shares_threads = config->workers > 0 || config->grpc_listen[0] != '\0';
    serving->has_uploads =
        td_uploads_init(&serving->uploads, config->max_body_bytes, (size_t)config->max_connections, err);
    if (!serving->has_uploads)
        return false;
    if (shares_threads &&
        !td_jobs_create((size_t)config->max_connections + TD_RESERVED_CONNECTIONS, &serving->jobs, err))
        return false;
    const struct td_waiters_config waiters = {
        .max = (size_t)config->max_waiters, .count = &serving->api->metrics.waiters, .jobs = serving->jobs};
    if (!td_waiters_create(&waiters, &serving->waiters, err))
        return false;
    td_catalog_on_publish(serving->api->catalog, on_publish, serving->waiters);
    return true;
}

void td_serving_retry_waits(struct td_serving *serving)
{
    td_waiters_publish(serving->waiters);
}

void td_serving_close(struct td_serving *serving)
{
    if (serving->api == NULL)
        return;
    atomic_store(&serving->api->draining, true); /* so that no request waits for a change any more */
    if (serving->waiters != NULL) {
        td_catalog_on_publish(serving->api->catalog, NULL, NULL);
        td_waiters_close(serving->waiters);
    }
    if (serving->jobs != NULL)
        td_jobs_close(serving->jobs);
}

void td_serving_fini(struct td_serving *serving)
{
    td_jobs_destroy(serving->jobs);
    td_waiters_destroy(serving->waiters);
    if (serving->has_uploads)
        td_uploads_fini(&serving->uploads);
    memset(serving, 0, sizeof *serving);
}

/* ---- reports ------------------------------------------------------------------------------------------- */

static void write_access_log(const struct td_serving *serving, struct td_access_lines *lines,
                             const struct td_request *request, const struct td_report *report)
{
    size_t range_at = 0, agent_at = 0;
    struct td_trace_context trace;
    const struct td_header *traceparent = td_request_single_header(request, "traceparent");
    const struct td_header *range = td_request_next_header(request, "Range", &range_at);
    const struct td_header *agent = td_request_next_header(request, "User-Agent", &agent_at);
    struct td_access_event event = {
        .end = td_wall_now(),
        .method = request->method,
        .target = td_signed_url_without_secret(request->target),
        .status = report->status,
        .sent_bytes = report->sent_bytes,
        .length_bytes = report->length_bytes,
        .is_upload = report->is_upload,
        .received_bytes = report->received_bytes,
        .took_ns = report->took_ns,
        .waited_ns = report->waited_ns,
        .route = td_route_name(report->route),
        .cut = report->cut == TD_CUT_NONE ? NULL : td_cut_name(report->cut),
        .range = range == NULL ? NULL : &range->value,
        .agent = agent == NULL ? NULL : &agent->value,
        .token = report->token,
        .request_id = report->request_id,
        .trace = traceparent != NULL && td_trace_context_read(traceparent->value, &trace) ? &trace : NULL,
    };
    struct td_text line = td_access_lines_write(lines, &event);
    if (line.len > 0)
        td_access_log_write(serving->log, line.p, line.len);
}

void td_serving_report(const struct td_serving *serving, struct td_access_lines *lines,
                       const struct td_request *request, const struct td_report *report)
{
    struct td_metrics *metrics = &serving->api->metrics;
    if (report->status != 0)
        td_metrics_request(metrics, report->route, report->status, report->sent_bytes, report->took_ns);
    td_metrics_cut(metrics, report->cut);
    if (report->changed || report->cut == TD_CUT_CHANGED) /* before the answer began, or while it was sent */
        td_catalog_request_scan(serving->api->catalog);
    if (td_access_log_is_on(serving->log))
        write_access_log(serving, lines, request, report);
}
