#include "api/rpc/grpc_health.h"

#include "api/call/server_status.h"
#include "api/proto/schema.h"
#include "api/rpc/rpc_error.h"
#include "api/rpc/rpc_form.h"
#include "core/clock.h"
#include "core/message/decode.h"
#include "core/message/wire.h"

#include <stdlib.h>
#include <string.h>

/* HealthCheckResponse.ServingStatus. */
enum { NO_STATUS = 0, SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

static const struct td_field request_fields[] = {
    {.name = "service", .json_name = "service", .number = 1, .type = TD_FIELD_STRING}};
static const struct td_message request_message = {
    .name = "grpc.health.v1.HealthCheckRequest", .fields = request_fields, .field_count = 1};

/* Returns whether the service is the server or one of the schema. */
static bool is_known(struct td_text service)
{
    for (size_t i = 0; i < TD_SCHEMA_METHODS; i++) {
        struct td_text path = td_text_of(td_schema_methods[i].path);
        struct td_text name = td_text_take_until(&path, '/');
        if (td_text_compare(service, name) == 0)
            return true;
    }
    return service.len == 0;
}

static int status_of(struct td_api *api)
{
    const struct td_call call = {.api = api};
    struct td_catalog_status status;
    bool ready;
    td_catalog_get_status(api->catalog, &status);
    (void)td_server_state(&call, &status, &ready);
    return ready ? SERVING : NOT_SERVING;
}

static void write_status(int status, struct td_buffer *out)
{
    enum { STATUS = 1 };
    td_wire_u64(out, STATUS, (uint64_t)status);
}

/* Reads the request, and finds out whether its service is known. Returns false after it answered 400. */
static bool read_service(const struct td_call *call, struct td_text message, bool *known)
{
    struct td_arena arena;
    struct td_record request;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, TD_DECODE_FREE_BYTES + TD_DECODE_PER_BYTE * message.len);
    const bool ok = td_record_read(&request, &request_message, message, &arena, &err);
    if (ok)
        *known = is_known(td_record_text(&request, "service"));
    else
        td_response_fail_error(call->response, &err);
    td_arena_fini(&arena);
    return ok;
}

bool td_grpc_health_check(const struct td_call *call, struct td_text message, struct td_buffer *out)
{
    bool known = false;
    if (!read_service(call, message, &known))
        return false;
    if (!known) {
        td_response_fail(call->response, 404, NULL, "there is no such service");
        return false;
    }
    write_status(status_of(call->api), out);
    return true;
}

static void write_entry(struct td_text service, int status, struct td_buffer *out)
{
    enum { STATUSES = 1, KEY = 1, VALUE = 2 };
    const size_t entry = td_wire_begin(out, STATUSES);
    td_wire_text(out, KEY, service);
    const size_t value = td_wire_begin(out, VALUE);
    write_status(status, out);
    td_wire_end(out, value);
    td_wire_end(out, entry);
}

void td_grpc_health_list(const struct td_call *call, struct td_buffer *out)
{
    const int status = status_of(call->api);
    struct td_text last = TD_TEXT("");
    write_entry(last, status, out);
    for (size_t i = 0; i < TD_SCHEMA_METHODS; i++) {
        struct td_text path = td_text_of(td_schema_methods[i].path);
        struct td_text name = td_text_take_until(&path, '/');
        if (td_text_compare(name, last) != 0) /* the methods of a service stand together */
            write_entry(name, status, out);
        last = name;
    }
}

/* ---- Watch --------------------------------------------------------------------------------------------- */

struct watch {
    struct td_stream stream; /* first: on the way back a stream is a watch */
    struct td_api *api;
    unsigned form;
    bool is_known;
    bool is_stopped, has_end;
    int sent; /* the last status that was sent */
    uint64_t deadline_ns;
    struct td_trailers trailers;
};

/* Writes the end of the stream: the server drains, or the client's time is over. */
static void write_end(struct watch *watch, struct td_buffer *out)
{
    struct td_failure failure = {.status = 503,
                                 .form = watch->form,
                                 .code = watch->is_stopped ? "UNAVAILABLE" : "DEADLINE_EXCEEDED",
                                 .message = watch->is_stopped ? "the server is ending"
                                                              : "the time that the client allows is over"};
    td_rpc_write_error(&failure, out);
    watch->trailers = failure.trailers;
    watch->has_end = true;
}

static enum td_stream_state read_watch(struct td_stream *stream, struct td_buffer *out, uint64_t *until_ns)
{
    struct watch *watch = (struct watch *)(void *)stream;
    const int status = watch->is_known ? status_of(watch->api) : SERVICE_UNKNOWN;
    const uint64_t now_ns = td_clock_ns();
    if (watch->has_end)
        return TD_STREAM_ENDS;
    if (status != watch->sent) {
        const size_t start = td_rpc_begin_frame(out, 0);
        write_status(status, out);
        td_rpc_end_frame(out, start);
        watch->sent = status;
        return TD_STREAM_HAS_BYTES;
    }
    if (watch->is_stopped || now_ns >= watch->deadline_ns) {
        write_end(watch, out);
        return out->len > 0 || out->failed ? TD_STREAM_HAS_BYTES : TD_STREAM_ENDS;
    }
    /* Readiness changes with a publication, but for a first scan that fails. */
    *until_ns = now_ns + (uint64_t)TD_NS_PER_S;
    if (watch->deadline_ns < *until_ns)
        *until_ns = watch->deadline_ns;
    return TD_STREAM_WAITS;
}

static void stop_watch(struct td_stream *stream)
{
    ((struct watch *)(void *)stream)->is_stopped = true;
}

static void add_trailers(struct td_stream *stream, struct td_trailers *out)
{
    struct watch *watch = (struct watch *)(void *)stream;
    *out = watch->trailers;
    watch->trailers = (struct td_trailers){.count = 0};
}

static void destroy_watch(struct td_stream *stream)
{
    struct watch *watch = (struct watch *)(void *)stream;
    td_trailers_fini(&watch->trailers);
    free(watch);
}

static const struct td_stream_class watch_class = {
    .read = read_watch, .stop = stop_watch, .add_trailers = add_trailers, .destroy = destroy_watch};

void td_grpc_health_watch(const struct td_call *call, struct td_text message)
{
    struct td_response *response = call->response;
    const struct td_request *request = call->request;
    bool known = false;
    uint64_t timeout_ns = UINT64_MAX;
    if (!td_rpc_timeout(request, response->form, &timeout_ns)) {
        td_response_fail(response, 400, NULL, "the timeout of the call is not valid");
        return;
    }
    if (!read_service(call, message, &known))
        return;
    struct watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    const bool has_deadline = request->since_ns != 0 && timeout_ns <= UINT64_MAX - request->since_ns;
    *watch = (struct watch){.stream = {.class = &watch_class},
                            .api = call->api,
                            .form = response->form,
                            .is_known = known,
                            .deadline_ns = has_deadline ? request->since_ns + timeout_ns : UINT64_MAX};
    response->content_type = td_rpc_type(response->form);
    response->cache_control = "no-store";
    response->stream = &watch->stream;
}
