/* Each look at the model is a request of the native interface that waits for a change (`wait`), so that both interfaces
 * see the same changes. The stream only keeps the entity tag of the last description. */
#include "api/rpc/rpc_watch.h"

#include "api/call/access.h"
#include "api/call/stream_share.h"
#include "api/native/parameters.h"
#include "api/rpc/rpc_form.h"
#include "api/rpc/rpc_stream.h"
#include "core/clock.h"
#include "core/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct watch {
    struct td_rpc_stream base; /* first: a watch is a stream */
    struct td_stream_share share;
    struct td_document_kind kind; /* of the description */
    enum td_route route;
    struct td_buffer target;  /* of the request that describes the model, without `wait` */
    char etag[TD_ETAG_BYTES]; /* of the last description, without its quotes; empty: the client has none */
    struct td_buffer first;   /* the bytes that the first read gives */
};

static struct watch *watch_of(struct td_stream *stream)
{
    return (struct watch *)(void *)stream;
}

static void free_watch(struct watch *watch)
{
    td_rpc_stream_fini(&watch->base);
    td_buffer_fini(&watch->target);
    td_buffer_fini(&watch->first);
    free(watch);
}

static void destroy_watch(struct td_stream *stream)
{
    struct watch *watch = watch_of(stream);
    td_stream_share_give(&watch->share);
    free_watch(watch);
}

/* ---- looks ---------------------------------------------------------------------------------------------- */

/* Has the native interface describe the model, unless its state is that of the last description: the response then has
 * wait_until_ns, or the status 304. */
static void look(const struct watch *watch, struct td_call *call)
{
    const struct td_rpc_native native = {.route = watch->route, .answer = TD_RPC_WATCHED};
    struct td_request request = *call->request;
    struct td_buffer target;
    const struct td_text path = td_buffer_text(&watch->target);
    td_buffer_init(&target);
    td_buffer_append(&target, path.p, path.len);
    if (watch->etag[0] != '\0') {
        td_buffer_puts(&target, memchr(path.p, '?', path.len) == NULL ? "?wait=" : "&wait=");
        td_uri_encode(&target, td_text_of(watch->etag), false);
        td_buffer_printf(&target, "&timeout=%d", TD_WAIT_MAX_S);
    }
    request.method = TD_TEXT("GET");
    request.target = td_buffer_text(&target);
    request.body = TD_TEXT("");
    request.header_count = 0;
    request.since_ns = td_clock_ns();
    if (target.failed)
        (void)td_call_no_memory(call);
    else
        td_rpc_ask(call, &request, &native, &watch->kind, NULL);
    td_buffer_fini(&target);
}

/* Appends the message with the description in the response, and notes its tag. */
static void add_message(struct watch *watch, const struct td_response *response, struct td_buffer *out)
{
    const struct td_document_kind kind = {.form = watch->kind.form, .message = watch->base.method->output};
    const size_t len = (size_t)response->body.total_bytes;
    const size_t tag_len = strlen(response->etag);
    struct td_body_cursor cursor = {0};
    struct td_document document;
    char *model = malloc(len + 1);
    if (model == NULL || !td_body_read(&response->body, &cursor, model, len, NULL)) {
        free(model);
        out->failed = true;
        return;
    }
    if (tag_len >= 2) /* with its quotes */
        (void)snprintf(watch->etag, sizeof watch->etag, "%.*s", (int)tag_len - 2, response->etag + 1);
    const size_t start = td_rpc_begin_frame(out, 0);
    td_document_init_kind(&document, out, &kind);
    td_document_begin_object(&document, NULL);
    td_document_add_message(&document, "model", td_text_n(model, len));
    td_document_add_string(&document, "etag", watch->etag);
    td_document_end(&document);
    td_rpc_end_frame(out, start);
    free(model);
}

static enum td_stream_state read_watch(struct td_stream *stream, struct td_buffer *out, uint64_t *until_ns)
{
    struct watch *watch = watch_of(stream);
    struct td_rpc_again again;
    if (watch->first.len > 0) {
        td_buffer_fini(out);
        *out = watch->first;
        td_buffer_init(&watch->first);
        return TD_STREAM_HAS_BYTES;
    }
    if (watch->base.has_ended)
        return TD_STREAM_ENDS;
    bool is_admitted = td_rpc_again_begin(&again, &watch->base);
    struct td_response *response = &again.response;
    if (is_admitted && !td_rpc_stream_is_over(&watch->base, response))
        look(watch, &again.call);
    enum td_stream_state state = TD_STREAM_HAS_BYTES;
    if (td_waiting_was_refused()) {
        state = TD_STREAM_WAITS;
    } else if (response->wait_until_ns != 0 || response->status == 304) {
        const uint64_t expiry_ns = td_access_expiry_ns(again.call.caller.token);
        state = TD_STREAM_WAITS;
        *until_ns = response->wait_until_ns != 0 ? response->wait_until_ns : td_clock_ns() + TD_NS_PER_S;
        *until_ns = watch->base.deadline_ns < *until_ns ? watch->base.deadline_ns : *until_ns;
        *until_ns = expiry_ns < *until_ns ? expiry_ns : *until_ns;
    } else if (response->status == 200) {
        add_message(watch, response, out);
    } else {
        state = td_rpc_stream_end_by(&watch->base, response, out);
    }
    td_rpc_again_end(&again);
    return state;
}

static const struct td_stream_class watch_class = {.read = read_watch,
                                                   .stop = td_rpc_stream_stop,
                                                   .add_trailers = td_rpc_stream_add_trailers,
                                                   .destroy = destroy_watch};

/* ---- the call ------------------------------------------------------------------------------------------- */

static struct watch *make_watch(struct td_call *call, const struct td_rpc_watch_wish *wish)
{
    struct watch *watch = malloc(sizeof *watch);
    if (watch == NULL) {
        (void)td_call_no_memory(call);
        return NULL;
    }
    *watch = (struct watch){.kind = *wish->kind, .route = wish->native->route};
    td_buffer_init(&watch->target);
    td_buffer_init(&watch->first);
    const struct td_text target = td_buffer_text(&wish->native->target);
    td_buffer_append(&watch->target, target.p, target.len);
    if (!td_rpc_stream_init(&watch->base, &watch_class, call, wish->method, wish->deadline_ns) ||
        watch->target.failed) {
        free_watch(watch);
        (void)td_call_no_memory(call);
        return NULL;
    }
    if (wish->etag.len < sizeof watch->etag) /* a longer text is no tag */
        (void)snprintf(watch->etag, sizeof watch->etag, "%.*s", (int)wish->etag.len, wish->etag.p);
    return watch;
}

/* Looks at the model for the first time. Returns whether the stream begins: else the response has an error, or the
 * thread may not wait. */
static bool look_first(struct watch *watch, struct td_call *call)
{
    struct td_response *response = call->response;
    struct td_response own;
    struct td_call inner = *call;
    td_response_init_for(&own, call->request);
    memcpy(own.token, response->token, sizeof own.token);
    inner.response = &own;
    if (!td_rpc_stream_is_over(&watch->base, &own))
        look(watch, &inner);
    call->snapshot = inner.snapshot;
    call->remote_family = inner.remote_family;
    bool waits = own.wait_until_ns != 0 || own.status == 304;
    bool begins = !td_waiting_was_refused() && (waits || own.status == 200);
    if (begins && !waits)
        add_message(watch, &own, &watch->first);
    if (begins && !watch->first.failed) {
        td_response_fini(&own);
        return true;
    }
    td_response_fini(response);
    *response = own;
    return begins ? td_call_no_memory(call) : false;
}

void td_rpc_watch_begin(struct td_call *call, const struct td_rpc_watch_wish *wish)
{
    struct td_response *response = call->response;
    struct watch *watch = make_watch(call, wish);
    if (watch == NULL)
        return;
    if (!look_first(watch, call)) {
        free_watch(watch);
        return;
    }
    if (!td_stream_share_take(&watch->share, call)) {
        free_watch(watch);
        td_response_fail_as(response, 503, "RESOURCE_EXHAUSTED",
                            "this client has as many streams as one may have, a quarter of --max-waiters; end one, or "
                            "try again");
        return;
    }
    td_response_add_header(response, "X-Accel-Buffering", "no"); /* proxies of nginx's kind pass bytes on */
    td_rpc_stream_begin(call, &watch->base);
}
