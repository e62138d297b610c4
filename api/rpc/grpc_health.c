#include "api/rpc/grpc_health.h"

#include "api/call/server_status.h"
#include "api/proto/schema.h"
#include "api/rpc/rpc_form.h"
#include "api/rpc/rpc_stream.h"
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
    struct td_rpc_stream base; /* first: a watch is a stream */
    bool is_known;
    int sent; /* the last status that was sent */
};

static enum td_stream_state read_watch(struct td_stream *stream, struct td_buffer *out, uint64_t *until_ns)
{
    struct watch *watch = (struct watch *)(void *)stream;
    const int status = watch->is_known ? status_of(watch->base.api) : SERVICE_UNKNOWN;
    enum td_stream_state state = TD_STREAM_WAITS;
    struct td_response response;
    if (watch->base.has_ended)
        return TD_STREAM_ENDS;
    if (status != watch->sent) {
        const size_t start = td_rpc_begin_frame(out, 0);
        write_status(status, out);
        td_rpc_end_frame(out, start);
        watch->sent = status;
        return TD_STREAM_HAS_BYTES;
    }
    /* Readiness changes with a publication, but for a first scan that fails. */
    *until_ns = td_clock_ns() + (uint64_t)TD_NS_PER_S;
    if (watch->base.deadline_ns < *until_ns)
        *until_ns = watch->base.deadline_ns;
    td_response_init(&response);
    response.facade = watch->base.facade;
    response.form = watch->base.form;
    if (td_rpc_stream_is_over(&watch->base, &response))
        state = td_rpc_stream_end_by(&watch->base, &response, out);
    td_response_fini(&response);
    return state;
}

static void destroy_watch(struct td_stream *stream)
{
    struct watch *watch = (struct watch *)(void *)stream;
    td_rpc_stream_fini(&watch->base);
    free(watch);
}

static const struct td_stream_class watch_class = {.read = read_watch,
                                                   .stop = td_rpc_stream_stop,
                                                   .add_trailers = td_rpc_stream_add_trailers,
                                                   .destroy = destroy_watch};

void td_grpc_health_watch(const struct td_call *call, struct td_text message)
{
    struct td_response *response = call->response;
    bool known = false;
    uint64_t deadline_ns;
    if (!td_rpc_deadline(call->request, response->form, &deadline_ns)) {
        td_response_fail(response, 400, NULL, "the timeout of the call is not valid");
        return;
    }
    if (!read_service(call, message, &known))
        return;
    struct watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL || !td_rpc_stream_init(&watch->base, &watch_class, call, NULL, deadline_ns)) {
        free(watch);
        (void)td_call_no_memory(call);
        return;
    }
    watch->is_known = known;
    td_rpc_stream_begin(call, &watch->base);
}
