#include "api/call/call.h"

#include "catalog/scan/view.h"
#include "core/digits.h"
#include "core/message/document.h"
#include "core/waiting.h"
#include "http/conditional.h"
#include "http/page_token.h"
#include "http/range.h"
#include "storage/incoming.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool td_call_may_answer(const struct td_call *call)
{
    static const bool is_quick[TD_ROUTE_COUNT] = {
        [TD_ROUTE_TENSOR] = true,   [TD_ROUTE_FILE] = true,      [TD_ROUTE_RANK_FILE] = true,
        [TD_ROUTE_HUB_FILE] = true, [TD_ROUTE_S3_OBJECT] = true, [TD_ROUTE_MODEL_FILE] = true,
        [TD_ROUTE_HEALTHZ] = true,  [TD_ROUTE_READYZ] = true,    [TD_ROUTE_ROWS] = true,
        [TD_ROUTE_ROW] = true,      [TD_ROUTE_OCI_BLOB] = true,
    };
    return is_quick[call->response->route] || call->begins_quickly || td_may_wait(NULL);
}

bool td_call_over(const struct td_call *call)
{
    return atomic_load(&call->api->draining) || td_cancel_is_asked(call->request->cancel);
}

bool td_call_ends_wait(const struct td_call *call)
{
    return atomic_load(&call->api->draining) || td_cancel_is_asked(call->request->ends_wait);
}

uint64_t td_call_client(const struct td_call *call)
{
    uint64_t client = call->request->client;
    if (call->caller.token != NULL)
        memcpy(&client, call->caller.token->sha256, sizeof client);
    return client;
}

void td_call_make_immutable(const struct td_call *call)
{
    call->response->cache_control = call->caller.kind == TD_CALLER_OPEN ? "public, max-age=31536000, immutable"
                                                                        : "private, max-age=31536000, immutable";
}

bool td_call_no_memory(const struct td_call *call)
{
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_no_memory(&err);
    td_response_fail_error(call->response, &err);
    return false;
}

void td_call_begin_document(const struct td_call *call, struct td_document *document, struct td_buffer *out)
{
    if (call->kind == NULL)
        td_document_init(document, out);
    else
        td_document_init_kind(document, out, call->kind);
    td_document_begin_object(document, NULL);
    call->response->has_document = true;
}

void td_call_end_document(const struct td_call *call, struct td_document *document)
{
    td_document_end(document);
    if (call->kind == NULL)
        td_buffer_putc(document->out, '\n');
}

void td_call_fail_json(const struct td_call *call, const struct td_error *err)
{
    if (err->code == TD_INVALID_ARGUMENT && err->pos != TD_ERROR_POS_NONE)
        td_response_fail(call->response, 400, NULL, "the request's body, at byte %" PRIu64 ": %s", err->pos,
                         err->message);
    else
        td_response_fail_error(call->response, err);
}

void td_call_fail_known(const struct td_call *call, int status, const char *const *known, const char *format, ...)
{
    char message[TD_ERROR_MESSAGE_BYTES];
    struct td_buffer details;
    struct td_document json;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    td_buffer_init(&details);
    td_document_init(&json, &details);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "known");
    for (size_t i = 0; known[i] != NULL; i++)
        td_document_add_string(&json, NULL, known[i]);
    td_document_end(&json);
    td_document_end(&json);
    td_response_fail(call->response, status, td_buffer_terminate(&details), "%s", message);
    td_buffer_fini(&details);
}

bool td_call_read_number(const struct td_call *call, const char *name, uint64_t max, uint64_t *out)
{
    const struct td_text *text = td_uri_parameter(call->uri, name);
    if (text == NULL || td_number_read(*text, max, out))
        return true;
    td_response_fail(call->response, 400, NULL, "%s must be a whole number from 0 to %" PRIu64 ", not \"%.*s\"", name,
                     max, TD_SHOW(*text, 64));
    return false;
}

bool td_call_read_page_token(const struct td_call *call, const struct td_text *token, struct td_text listing,
                             const char *wrong, struct td_buffer *after)
{
    if (token == NULL || td_page_token_read(*token, listing, after))
        return true;
    if (after->failed)
        return td_call_no_memory(call);
    td_response_fail(call->response, 400, NULL, "%s", wrong);
    return false;
}

enum { MOST_PARAMETERS = 32 }; /* that a route takes */

/* Copies the known parameters, and adds `version` for a call that takes it. */
static void list_known(const struct td_call *call, const char *const *from, const char *known[MOST_PARAMETERS])
{
    size_t count = 0;
    for (; from[count] != NULL && count < MOST_PARAMETERS - 2; count++)
        known[count] = from[count];
    if (call->takes_version)
        known[count++] = "version";
    known[count] = NULL;
}

bool td_call_check_parameters(const struct td_call *call, const char *const *names)
{
    const char *known[MOST_PARAMETERS];
    list_known(call, names, known);
    for (size_t i = 0; i < call->uri->parameter_count; i++) {
        const struct td_text *name = &call->uri->parameters[i].name;
        size_t k = 0;
        while (known[k] != NULL && !td_text_equals(*name, known[k]))
            k++;
        if (known[k] != NULL)
            continue;
        struct td_buffer list;
        td_buffer_init(&list);
        for (k = 0; known[k] != NULL; k++)
            td_buffer_printf(&list, "%s%s", k > 0 ? ", " : "", known[k]);
        const char *shown = td_buffer_terminate(&list);
        td_call_fail_known(call, 400, known, "unknown query parameter \"%.*s\"; %s%s", TD_SHOW(*name, 64),
                           known[0] == NULL ? "none is known here" : "known here: ", shown == NULL ? "" : shown);
        td_buffer_fini(&list);
        return false;
    }
    return true;
}

static bool may_see(const void *token, struct td_text id)
{
    return td_token_may_see(token, id);
}

struct td_snapshot *td_call_acquire(const struct td_call *call, struct td_error *err)
{
    const struct td_token *token = call->caller.token;
    if (call->caller.kind == TD_CALLER_NOBODY) {
        (void)td_error_set(err, TD_PERMISSION_DENIED, "this needs a token");
        return NULL;
    }
    struct td_snapshot *snapshot =
        call->kept != NULL ? td_snapshot_ref(call->kept) : td_catalog_acquire(call->api->catalog);
    if (snapshot == NULL || token == NULL || token->models == NULL)
        return snapshot;
    const struct td_view_filter filter = {
        .key = token->models_tag, .may_see = may_see, .context = token, .cancel = call->request->cancel};
    struct td_snapshot *view = td_view_get(snapshot, &filter, err);
    td_snapshot_unref(snapshot);
    return view;
}

void td_call_look_for_snapshot(struct td_call *call, struct td_error *err)
{
    call->stage = td_catalog_get_stage(call->api->catalog);
    call->snapshot = td_call_acquire(call, err);
}

bool td_call_take_snapshot(struct td_call *call)
{
    struct td_catalog_status status;
    struct td_error err = TD_ERROR_INIT;
    td_call_look_for_snapshot(call, &err);
    if (call->snapshot != NULL)
        return true;
    if (err.code != TD_OK) {
        td_response_fail_error(call->response, &err);
        return false;
    }
    td_catalog_get_status(call->api->catalog, &status);
    if (status.first_scan_failed)
        td_response_fail(call->response, 503, NULL, "the first scan failed, the next follows: %s", status.message);
    else
        td_response_fail(call->response, 503, NULL, "the first scan is still running; see /readyz");
    return false;
}

bool td_call_is_early(const struct td_call *call, char reason[TD_EARLY_REASON_BYTES])
{
    if (call->snapshot == NULL || call->stage == TD_CATALOG_COMPLETE)
        return false;
    (void)snprintf(reason, TD_EARLY_REASON_BYTES, "the server is not ready yet: %s; see /readyz, and try again",
                   call->stage == TD_CATALOG_LACKING ? "fewer models are published than --require-models asks for"
                                                     : "files that changed just before its start are not published");
    return true;
}

bool td_call_lacks_files(const struct td_call *call, struct td_text directory, char reason[TD_EARLY_REASON_BYTES])
{
    return call->stage == TD_CATALOG_STARTING && call->snapshot != NULL &&
           td_snapshot_lacks_below(call->snapshot, directory) && td_call_is_early(call, reason);
}

/* Answers 503 for the reason. Returns false. */
static bool refuse_early(const struct td_call *call, const char *reason)
{
    td_response_fail(call->response, 503, NULL, "%s", reason);
    return false;
}

void td_call_mend_early(const struct td_call *call)
{
    char reason[TD_EARLY_REASON_BYTES];
    if (call->response->status == 404 && td_call_is_early(call, reason))
        (void)refuse_early(call, reason);
}

bool td_call_may_describe(const struct td_call *call, struct td_text directory)
{
    char reason[TD_EARLY_REASON_BYTES];
    return !td_call_lacks_files(call, directory, reason) || refuse_early(call, reason);
}

bool td_call_may_list(const struct td_call *call)
{
    return td_call_may_describe(call, TD_TEXT(""));
}

void td_call_refuse_method(const struct td_call *call)
{
    td_response_fail(call->response, 405, NULL, "method %.*s is not allowed here; %s",
                     TD_SHOW(call->request->method, 32), call->is_post ? "POST is" : "GET and HEAD are");
    td_response_add_header(call->response, "Allow", "%s", call->is_post ? "POST" : "GET, HEAD");
}

void td_call_serve(const struct td_call *call, void (*handle)(const struct td_call *call))
{
    struct td_text method = call->request->method;
    bool head = td_text_equals(method, "HEAD");
    if (call->is_post ? td_text_equals(method, "POST") : head || td_text_equals(method, "GET")) {
        if (!td_call_may_answer(call))
            return;
        handle(call);
        if (call->response->wait_until_ns == 0)
            td_call_finish(call, head);
        return;
    }
    td_call_refuse_method(call);
}

static bool client_checks(const struct td_request *request)
{
    const struct td_header *header = td_request_single_header(request, TD_INCOMING_CHECKS);
    return header != NULL && td_text_equals(header->value, "sha256");
}

bool td_call_hold_answer(const struct td_api *api, const struct td_request *request, struct td_response *response,
                         struct td_error *err)
{
    if (api->upstream == NULL) /* a body may have many extents */
        return true;
    enum td_incoming_worth worth = td_incoming_worth_of(&response->body);
    if (worth == TD_INCOMING_CHECKED)
        return true;
    if (worth == TD_INCOMING_UNCHECKED || !client_checks(request))
        return td_incoming_hold_end(&response->body, request->cancel, err);
    response->cache_control = "no-store";
    return td_incoming_end_with(&response->body, request->cancel, err);
}

bool td_call_may_go_on(const struct td_api *api, const struct td_request *request, struct td_response *response)
{
    if (api->upstream == NULL || response->etag[0] == '\0' || !td_request_has_header(request, "Range"))
        return true;
    const struct td_header *match = td_request_single_header(request, "If-Match");
    bool has_match =
        td_request_has_header(request, "If-Match") && (match == NULL || !td_text_equals(match->value, "*"));
    bool has_if_range = td_request_has_header(request, "If-Range");
    if (!(has_match || has_if_range) || !td_upstream_was_wrong(api->upstream, td_text_of(response->etag)))
        return true;
    if (!has_if_range)
        td_response_fail(response, 412, NULL,
                         "bytes that were sent under this entity tag were wrong; get the whole file, without Range");
    return false;
}

/* Conditionals and ranges apply to GET and HEAD. The rest of the body is then resolved to bytes of files, and held
 * where these are not checked yet. */
void td_call_finish(const struct td_call *call, bool head)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    if (response->status == 200 && !call->is_post && td_conditional_apply(call->request, response) && !head &&
        td_conditional_range_allowed(call->request, response) && /* RFC 9110 section 14.2: Range is for GET */
        td_call_may_go_on(call->api, call->request, response))
        td_range_apply(call->request, response);
    bool is_ready = head || (td_body_resolve(&response->body, &err) &&
                             td_call_hold_answer(call->api, call->request, response, &err));
    if (!is_ready || !td_body_prepare(&response->body, head, &err))
        td_response_fail_error(response, &err);
}
