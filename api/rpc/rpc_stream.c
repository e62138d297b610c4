#include "api/rpc/rpc_stream.h"

#include "api/call/access.h"
#include "api/native/native.h"
#include "api/rpc/rpc_form.h"
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

bool td_rpc_stream_init(struct td_rpc_stream *stream, const struct td_stream_class *class, const struct td_call *call,
                        const struct td_method *method, uint64_t deadline_ns)
{
    const struct td_request *request = call->request;
    const struct td_header *authorization = td_request_single_header(request, "Authorization");
    *stream = (struct td_rpc_stream){.stream = {.class = class},
                                     .api = call->api,
                                     .facade = request->facade,
                                     .is_local = request->is_local,
                                     .is_tls = request->is_tls,
                                     .client = request->client,
                                     .form = call->response->form,
                                     .cancel = request->cancel,
                                     .ends_wait = request->ends_wait,
                                     .method = method,
                                     .deadline_ns = deadline_ns};
    if (authorization == NULL || method == NULL)
        return true;
    char *copy = malloc(authorization->value.len + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, authorization->value.p, authorization->value.len);
    stream->authorization = td_text_n(copy, authorization->value.len);
    return true;
}

void td_rpc_stream_fini(struct td_rpc_stream *stream)
{
    td_trailers_fini(&stream->trailers);
    if (stream->authorization.p == NULL)
        return;
    OPENSSL_cleanse((void *)(uintptr_t)stream->authorization.p, stream->authorization.len);
    free((void *)(uintptr_t)stream->authorization.p);
}

void td_rpc_stream_stop(struct td_stream *stream)
{
    ((struct td_rpc_stream *)(void *)stream)->is_stopped = true;
}

void td_rpc_stream_add_trailers(struct td_stream *base, struct td_trailers *out)
{
    struct td_rpc_stream *stream = (struct td_rpc_stream *)(void *)base;
    *out = stream->trailers;
    stream->trailers = (struct td_trailers){.count = 0};
}

void td_rpc_stream_begin(const struct td_call *call, struct td_rpc_stream *stream)
{
    struct td_response *response = call->response;
    response->content_type = td_rpc_type(response->form);
    response->cache_control = "no-store";
    response->etag[0] = response->former_etag[0] = '\0';
    response->stream = &stream->stream;
}

bool td_rpc_stream_is_over(const struct td_rpc_stream *stream, struct td_response *response)
{
    if (stream->is_stopped || atomic_load(&stream->api->draining))
        td_response_fail(response, 503, NULL, "the server ends; call again");
    else if (td_clock_ns() >= stream->deadline_ns)
        td_response_fail_as(response, 504, "DEADLINE_EXCEEDED", "the time that the client allows is over");
    return response->status != 200;
}

enum td_stream_state td_rpc_stream_end_by(struct td_rpc_stream *stream, struct td_response *response,
                                          struct td_buffer *out)
{
    const size_t len = (size_t)response->body.total_bytes;
    struct td_body_cursor cursor = {0};
    stream->has_ended = true;
    stream->trailers = response->trailers;
    response->trailers = (struct td_trailers){.count = 0};
    if (len > 0 && td_buffer_reserve(out, len)) {
        out->failed = !td_body_read(&response->body, &cursor, out->data + out->len, len, NULL);
        out->len += len;
    }
    return out->len > 0 || out->failed ? TD_STREAM_HAS_BYTES : TD_STREAM_ENDS;
}

bool td_rpc_again_begin(struct td_rpc_again *again, const struct td_rpc_stream *stream)
{
    struct td_error err = TD_ERROR_INIT;
    *again = (struct td_rpc_again){.authorization = {.name = TD_TEXT("Authorization"), .value = stream->authorization}};
    td_buffer_init(&again->target);
    td_buffer_printf(&again->target, "/%s", stream->method->path);
    again->request = (struct td_request){.facade = stream->facade,
                                         .is_local = stream->is_local,
                                         .is_tls = stream->is_tls,
                                         .client = stream->client,
                                         .method = TD_TEXT("POST"),
                                         .target = td_buffer_text(&again->target),
                                         .headers = &again->authorization,
                                         .header_count = stream->authorization.p == NULL ? 0 : 1,
                                         .cancel = stream->cancel,
                                         .ends_wait = stream->ends_wait,
                                         .since_ns = td_clock_ns()};
    td_response_init_for(&again->response, &again->request);
    again->response.form = stream->form;
    again->call = (struct td_call){
        .api = stream->api, .request = &again->request, .uri = &again->uri, .response = &again->response};
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
