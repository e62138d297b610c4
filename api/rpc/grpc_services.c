#include "api/rpc/grpc_services.h"

#include "api/call/access.h"
#include "api/rpc/grpc_health.h"
#include "api/rpc/grpc_reflection.h"
#include "api/rpc/rpc_error.h"
#include "api/rpc/rpc_form.h"
#include "api/rpc/rpc_input.h"
#include "http/response.h"

/* A method. */
static const struct method {
    const char *path;
    enum kind { CHECK, LIST, WATCH, REFLECT } kind;
    enum td_route route;
} methods[] = {
    {"/grpc.health.v1.Health/Check", CHECK, TD_ROUTE_RPC_HEALTH_CHECK},
    {"/grpc.health.v1.Health/List", LIST, TD_ROUTE_RPC_HEALTH_LIST},
    {"/grpc.health.v1.Health/Watch", WATCH, TD_ROUTE_RPC_HEALTH_WATCH},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECT, TD_ROUTE_RPC_REFLECT},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECT, TD_ROUTE_RPC_REFLECT},
};

static const struct method *find_method(struct td_text path)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (td_text_equals(path, methods[i].path))
            return &methods[i];
    return NULL;
}

static bool owns_path(struct td_text raw_path)
{
    static const char *const services[] = {"/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/",
                                           "/grpc.reflection.v1alpha.ServerReflection/"};
    for (size_t i = 0; i < sizeof services / sizeof *services; i++)
        if (td_text_begins(raw_path, td_text_of(services[i])))
            return true;
    return false;
}

static bool is_post(const struct td_request *request)
{
    return td_text_equals(request->method, "POST");
}

static bool only_reads(const struct td_request *request)
{
    (void)request;
    return true;
}

static bool answers_each(const struct td_request *request)
{
    const struct method *method = find_method(td_uri_raw_path(request->target));
    return method != NULL && method->kind == REFLECT && (td_rpc_form_of(request) & TD_RPC_GRPC) != 0;
}

static bool is_probe(const struct td_request *request)
{
    const struct method *method = find_method(td_uri_raw_path(request->target));
    return method != NULL && method->kind == CHECK;
}

/* Admits everybody, as /readyz does. */
static bool admit(struct td_call *call)
{
    struct td_refusal refusal;
    (void)td_access_admit(call, td_access_by_bearer, &refusal);
    return true;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

/* Answers each message of the request. Returns false after it answered an error. */
static bool reflect(struct td_rpc_input *input, struct td_buffer *out)
{
    struct td_error err = TD_ERROR_INIT;
    while (input->left.len > 0) {
        struct td_text message;
        if (!td_rpc_input_take(input, &message))
            return false;
        const size_t start = td_rpc_begin_frame(out, 0);
        if (!td_grpc_reflect(message, out, &err)) {
            td_response_fail_error(input->call->response, &err);
            return false;
        }
        td_rpc_end_frame(out, start);
    }
    return true;
}

/* Makes the messages the body of the answer, with the end of a stream. */
static void set_body(const struct td_call *call, struct td_buffer *out)
{
    struct td_response *response = call->response;
    struct td_trailers trailers = {.count = 0};
    bool ok = (response->form & TD_RPC_FRAMES) == 0 || td_rpc_write_end(response->form, out, &trailers);
    if (!ok || out->failed) {
        td_trailers_fini(&trailers);
        (void)td_call_no_memory(call);
        return;
    }
    td_response_set_text(response, td_rpc_type(response->form), "no-store", out);
    if (response->status == 200)
        response->trailers = trailers;
    else
        td_trailers_fini(&trailers);
}

/* Answers a call whose protocol is known. */
static void answer_method(const struct td_call *call, const struct method *method)
{
    struct td_rpc_input input;
    struct td_buffer out;
    struct td_text message;
    td_buffer_init(&out);
    bool ok = td_rpc_input_init(&input, call);
    if (ok && method->kind == REFLECT)
        ok = reflect(&input, &out);
    else if (!ok || !td_rpc_input_take_only(&input, &message))
        ok = false;
    else if (method->kind == WATCH)
        td_grpc_health_watch(call, message);
    else {
        const bool has_frame = (call->response->form & TD_RPC_FRAMES) != 0;
        const size_t start = has_frame ? td_rpc_begin_frame(&out, 0) : 0;
        if (method->kind == CHECK)
            ok = td_grpc_health_check(call, message, &out);
        else
            td_grpc_health_list(call, &out);
        if (ok && has_frame)
            td_rpc_end_frame(&out, start);
    }
    if (ok && method->kind != WATCH)
        set_body(call, &out);
    td_rpc_input_fini(&input);
    td_buffer_fini(&out);
}

static void answer(struct td_call *call)
{
    struct td_response *response = call->response;
    const struct method *method = find_method(call->uri->path);
    const bool is_stream = method != NULL && (method->kind == WATCH || method->kind == REFLECT);
    const bool is_of_connect = (response->form & (TD_RPC_WEB | TD_RPC_GRPC)) == 0;
    const bool has_frames = (response->form & TD_RPC_FRAMES) != 0;
    response->route = method == NULL ? TD_ROUTE_RPC : method->route;
    if (method == NULL)
        td_rpc_refuse_path(call);
    else if (!is_post(call->request))
        td_rpc_refuse_verb(response, method->path + 1);
    else if ((response->form & (TD_RPC_UNKNOWN | TD_RPC_JSON)) != 0 || (is_of_connect && has_frames != is_stream))
        td_rpc_refuse_type(response, method->path + 1,
                           is_stream ? "application/grpc, application/grpc-web, application/connect+proto"
                                     : "application/grpc, application/grpc-web, application/proto");
    else
        answer_method(call, method);
}

/* Returns the form of gRPC, the only one of the port: others are refused as HTTP does it. */
static unsigned grpc_form_of(const struct td_request *request)
{
    const unsigned form = td_rpc_form_of(request);
    return (form & TD_RPC_GRPC) != 0 ? form : TD_RPC_UNKNOWN;
}

static void answer_unknown(struct td_call *call)
{
    call->response->route = TD_ROUTE_RPC;
    td_rpc_refuse_path(call);
}

const struct td_facade td_grpc_services_facade = {
    .owns = owns_path,
    .speaks_grpc = true,
    .takes_body = is_post,
    .reads_by_post = only_reads,
    .answers_each = answers_each,
    .is_probe = is_probe,
    .refuse_coding = td_rpc_refuse_encoding,
    .choose_form = td_rpc_form_of,
    .admit = admit,
    .answer = answer,
    .write_error = td_rpc_write_error,
    .error_type = "application/json",
    .query = TD_URI_REPEATS,
    .etag_end = "",
};

const struct td_facade td_grpc_facade = {
    .reads_by_post = only_reads,
    .choose_form = grpc_form_of,
    .admit = admit,
    .answer = answer_unknown,
    .write_error = td_rpc_write_error,
    .error_type = "text/plain; charset=utf-8",
    .query = TD_URI_REPEATS,
    .etag_end = "",
    .busy = "all connections are in use (--max-connections); try again\n",
    .not_tls = "this port takes calls of gRPC over TLS; this client does not speak TLS\n",
    .is_tls = "this port takes calls of gRPC without TLS; this client speaks TLS\n",
    .not_http2 = "this port takes calls of gRPC alone, over HTTP/2; the port of --listen speaks HTTP/1.1\n",
};
