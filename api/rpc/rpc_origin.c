#include "api/rpc/rpc_origin.h"

#include "api/call/access.h"
#include "api/native/native.h"
#include "catalog/upstream/remote_family.h"
#include "core/clock.h"
#include "core/waiting.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

void td_rpc_ask(struct td_call *call, const struct td_request *request, const struct td_rpc_native *native,
                const struct td_document_kind *kind, struct td_read_results *results)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    struct td_uri uri;
    if (!td_uri_parse(&uri, request->target, TD_URI_STRICT, &err)) {
        td_response_fail_error(response, &err);
        td_uri_fini(&uri);
        return;
    }
    struct td_call inner = *call;
    inner.request = request;
    inner.uri = &uri;
    inner.kind = kind;
    inner.results = results;
    td_native_facade.answer(&inner);
    call->snapshot = inner.snapshot;
    call->remote_family = inner.remote_family;
    call->dataset = inner.dataset;
    if (response->status == 201)
        response->status = 200; /* a plan that was not known; in Connect, success is 200 alone */
    bool has_document = native->answer == TD_RPC_DOCUMENT || native->answer == TD_RPC_WATCHED;
    bool is_message = response->has_document == has_document && response->route == native->route;
    bool is_other = response->status == 405 || (response->status == 200 && !is_message);
    if (is_other && response->wait_until_ns == 0 && !td_waiting_was_refused())
        td_response_fail(response, 404, NULL, "there is no such %s; its id is the path of something else",
                         td_text_begins(request->target, TD_TEXT("/datasets")) ? "dataset" : "model");
    td_uri_fini(&uri);
}

bool td_rpc_origin_init(struct td_rpc_origin *origin, const struct td_call *call, const struct td_method *method,
                        uint64_t deadline_ns)
{
    const struct td_request *request = call->request;
    const struct td_header *authorization = td_request_single_header(request, "Authorization");
    *origin = (struct td_rpc_origin){.api = call->api,
                                     .facade = request->facade,
                                     .is_local = request->is_local,
                                     .is_tls = request->is_tls,
                                     .client = request->client,
                                     .form = call->response->form,
                                     .cancel = request->cancel,
                                     .ends_wait = request->ends_wait,
                                     .method = method,
                                     .deadline_ns = deadline_ns};
    if (authorization == NULL)
        return true;
    char *copy = malloc(authorization->value.len + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, authorization->value.p, authorization->value.len);
    origin->authorization = td_text_n(copy, authorization->value.len);
    return true;
}

void td_rpc_origin_fini(struct td_rpc_origin *origin)
{
    if (origin->authorization.p == NULL)
        return;
    OPENSSL_cleanse((void *)(uintptr_t)origin->authorization.p, origin->authorization.len);
    free((void *)(uintptr_t)origin->authorization.p);
}

bool td_rpc_is_over(const struct td_rpc_origin *origin, struct td_response *response)
{
    if (origin->is_stopped || atomic_load(&origin->api->draining))
        td_response_fail(response, 503, NULL, "the server ends; call again");
    else if (td_clock_ns() >= origin->deadline_ns)
        td_response_fail_as(response, 504, "DEADLINE_EXCEEDED", "the time that the client allows is over");
    return response->status != 200;
}

void td_rpc_end_by(struct td_response *response, struct td_buffer *out, struct td_trailers *trailers)
{
    const size_t len = (size_t)response->body.total_bytes;
    struct td_body_cursor cursor = {0};
    *trailers = response->trailers;
    response->trailers = (struct td_trailers){.count = 0};
    if (len == 0 || !td_buffer_reserve(out, len))
        return;
    out->failed = !td_body_read(&response->body, &cursor, out->data + out->len, len, NULL);
    out->len += len;
}

bool td_rpc_again_begin(struct td_rpc_again *again, const struct td_rpc_origin *origin)
{
    struct td_error err = TD_ERROR_INIT;
    *again = (struct td_rpc_again){.authorization = {.name = TD_TEXT("Authorization"), .value = origin->authorization}};
    td_buffer_init(&again->target);
    td_buffer_printf(&again->target, "/%s", origin->method->path);
    again->request = (struct td_request){.facade = origin->facade,
                                         .is_local = origin->is_local,
                                         .is_tls = origin->is_tls,
                                         .client = origin->client,
                                         .method = TD_TEXT("POST"),
                                         .target = td_buffer_text(&again->target),
                                         .headers = &again->authorization,
                                         .header_count = origin->authorization.p == NULL ? 0 : 1,
                                         .cancel = origin->cancel,
                                         .ends_wait = origin->ends_wait,
                                         .since_ns = td_clock_ns()};
    td_response_init_for(&again->response, &again->request);
    again->response.form = origin->form;
    again->call = (struct td_call){
        .api = origin->api, .request = &again->request, .uri = &again->uri, .response = &again->response};
    if (again->target.failed)
        return td_call_no_memory(&again->call);
    if (!td_uri_parse(&again->uri, again->request.target, TD_URI_REPEATS, &err)) {
        td_response_fail_error(&again->response, &err);
        return false;
    }
    return td_access_begin(&again->call);
}

void td_rpc_again_end(struct td_rpc_again *again)
{
    td_snapshot_unref(again->call.snapshot);
    td_remote_family_unref(again->call.remote_family);
    td_access_end(&again->call);
    td_uri_fini(&again->uri);
    td_buffer_fini(&again->target);
    td_response_fini(&again->response);
}
