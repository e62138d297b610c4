#include "api/native/metrics_page.h"
#include "api/native/routes.h"
#include "api/openapi_text.h"

#include "core/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const no_parameters[] = {NULL};

/* A small text answer that is not a representation to cut: health and metrics. */
static void set_plain(struct td_response *response, const char *type, struct td_buffer *text)
{
    struct td_error err = TD_ERROR_INIT;
    size_t len;
    char *data = td_buffer_release(text, &len);
    if (data == NULL)
        (void)td_error_no_memory(&err);
    else
        (void)td_body_append_heap(&response->body, data, len, &err);
    if (err.code != TD_OK) {
        td_response_fail_error(response, &err);
        return;
    }
    response->content_type = type;
    response->cache_control = "no-store";
}

void td_native_answer_json(const struct td_call *call, struct td_buffer *json)
{
    set_plain(call->response, "application/json", json);
}

void td_handle_healthz(const struct td_call *call)
{
    struct td_buffer text;
    td_buffer_init(&text);
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_puts(&text, "ok\n");
    set_plain(call->response, "text/plain; charset=utf-8", &text);
}

void td_handle_readyz(const struct td_call *call)
{
    struct td_catalog_status status;
    struct td_buffer json;
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
    td_buffer_printf(&json, "{\"ready\":%s,\"state\":\"%s\",\"message\":", ready ? "true" : "false", state);
    td_json_write_cstring(&json, status.message);
    td_buffer_printf(&json,
                     ",\"models\":%zu,\"tensors\":%" PRIu64 ",\"files\":%zu,\"unreadable\":%zu,\"unpublished\":%zu,"
                     "\"unsettled\":%zu,\"scan\":{\"running\":%s,\"failed\":%s,\"completed\":%" PRIu64
                     ",\"files_found\":%" PRIu64 ",\"files_to_read\":%" PRIu64 ",\"files_read\":%" PRIu64
                     ",\"last_seconds\":%.3f}",
                     status.model_count, status.tensor_count, status.file_count, status.refused_count,
                     status.problem_count, status.unsettled_count, status.scanning ? "true" : "false",
                     status.scan_failed ? "true" : "false", status.scan_count, status.files_found, status.files_to_read,
                     status.files_read, (double)status.last_scan_ns / 1e9);
    td_buffer_printf(
        &json,
        ",\"digests\":{\"enabled\":%s,\"stored\":%s,\"files\":%zu,\"known_files\":%zu,\"published_files\":%zu,"
        "\"bytes\":%" PRIu64 ",\"known_bytes\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"mismatches\":%" PRIu64 "}}\n",
        status.hasher.enabled ? "true" : "false", status.hasher.stored ? "true" : "false", status.hasher.file_count,
        status.hasher.known_count, status.hashed_count, status.hasher.file_bytes, status.hasher.known_bytes,
        status.hasher.failed_count, status.hasher.mismatch_count);
    set_plain(call->response, "application/json", &json);
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
                            td_budget_used(&call->api->lists), atomic_load(&call->api->draining), &text);
    set_plain(call->response, "text/plain; version=0.0.4; charset=utf-8", &text);
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
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_init(&json);
    td_buffer_puts(&json, "{\"name\":\"tensord\",\"version\":\"" TD_VERSION "\"}\n");
    td_response_set_json(call->response, &json);
}
