#include "api/native/routes.h"

#include "api/access.h"
#include "api/native/answer_now.h"
#include "api/native/metrics_page.h"
#include "api/openapi_text.h"
#include "core/json_build.h"
#include "http/build_commit.h"

#include <stdlib.h>
#include <string.h>

static const char *const no_parameters[] = {NULL};

void td_handle_healthz(const struct td_call *call)
{
    struct td_buffer text;
    td_buffer_init(&text);
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_puts(&text, "ok\n");
    td_native_answer_now(call, "text/plain; charset=utf-8", &text);
}

static void write_scan(struct td_json_builder *json, const struct td_catalog_status *status)
{
    td_json_begin_object(json, "scan");
    td_json_add_bool(json, "running", status->scanning);
    td_json_add_bool(json, "failed", status->scan_failed);
    td_json_add_u64(json, "completed", status->scan_count);
    td_json_add_u64(json, "files_found", status->files_found);
    td_json_add_u64(json, "files_to_read", status->files_to_read);
    td_json_add_u64(json, "files_read", status->files_read);
    td_json_add_seconds(json, "last_seconds", (double)status->last_scan_ns / 1e9);
    td_json_end(json);
}

static void write_digests(struct td_json_builder *json, const struct td_catalog_status *status)
{
    td_json_begin_object(json, "digests");
    td_json_add_bool(json, "enabled", status->hasher.enabled);
    td_json_add_bool(json, "stored", status->hasher.stored);
    td_json_add_u64(json, "files", status->hasher.file_count);
    td_json_add_u64(json, "known_files", status->hasher.known_count);
    td_json_add_u64(json, "published_files", status->hashed_count);
    td_json_add_u64(json, "bytes", status->hasher.file_bytes);
    td_json_add_u64(json, "known_bytes", status->hasher.known_bytes);
    td_json_add_u64(json, "failed", status->hasher.failed_count);
    td_json_add_u64(json, "mismatches", status->hasher.mismatch_count);
    td_json_end(json);
}

/* Adds how many models there are, and what the scan and the hashing do. */
static void write_numbers(struct td_json_builder *json, const struct td_catalog_status *status)
{
    td_json_add_string(json, "message", status->message);
    td_json_add_u64(json, "models", status->model_count);
    td_json_add_u64(json, "tensors", status->tensor_count);
    td_json_add_u64(json, "files", status->file_count);
    td_json_add_u64(json, "unreadable", status->refused_count);
    td_json_add_u64(json, "unpublished", status->problem_count);
    td_json_add_u64(json, "unsettled", status->unsettled_count);
    write_scan(json, status);
    write_digests(json, status);
}

void td_handle_readyz(const struct td_call *call)
{
    struct td_catalog_status status;
    struct td_buffer json;
    struct td_json_builder builder;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_catalog_get_status(call->api->catalog, &status);
    bool draining = atomic_load(&call->api->draining);
    bool ready = status.ready && !draining;
    const char *state = draining                   ? "draining"
                        : status.root_missing      ? "root missing"
                        : status.too_few_models    ? "too few models"
                        : status.first_scan_failed ? "failed"
                        : !status.ready            ? "scanning"
                                                   : "ready";
    td_buffer_init(&json);
    td_json_builder_init(&builder, &json);
    td_json_begin_object(&builder, NULL);
    td_json_add_bool(&builder, "ready", ready);
    td_json_add_string(&builder, "state", state);
    if (td_access_sees_numbers(call))
        write_numbers(&builder, &status);
    td_json_end(&builder);
    td_json_builder_fini(&builder);
    td_buffer_putc(&json, '\n');
    td_native_answer_now(call, "application/json", &json);
    if (!ready && call->response->status == 200) {
        call->response->status = 503;
        td_response_add_header(call->response, "Retry-After", "1");
    }
}

void td_handle_metrics(const struct td_call *call)
{
    struct td_catalog_status status;
    struct td_buffer text;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_catalog_get_status(call->api->catalog, &status);
    td_buffer_init(&text);
    td_native_write_metrics(&call->api->metrics, &status, td_budget_used(&call->api->ranks.live),
                            td_budget_used(&call->api->lists.whole), atomic_load(&call->api->draining), &text);
    struct td_upstream_status upstream = {.fetching = 0};
    if (call->api->upstream != NULL)
        td_upstream_get_status(call->api->upstream, &upstream);
    td_native_write_upstream_metrics(&upstream, &text);
    td_native_answer_now(call, "text/plain; version=0.0.4; charset=utf-8", &text);
}

void td_handle_openapi(const struct td_call *call)
{
    struct td_buffer json;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_init(&json);
    td_buffer_append(&json, td_openapi_json, td_openapi_json_len);
    td_response_set_json(call->response, &json);
}

void td_handle_version(const struct td_call *call)
{
    struct td_buffer json;
    struct td_json_builder builder;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_init(&json);
    td_json_builder_init(&builder, &json);
    td_json_begin_object(&builder, NULL);
    td_json_add_string(&builder, "name", "tensord");
    td_json_add_string(&builder, "version", TD_VERSION);
    td_json_add_string(&builder, "commit", td_build_commit());
    td_json_end(&builder);
    td_json_builder_fini(&builder);
    td_buffer_putc(&json, '\n');
    td_response_set_json(call->response, &json);
}
