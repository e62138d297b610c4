#include "api/api.h"

#include "api/call/access.h"
#include "api/call/call.h"
#include "api/call/coded_body.h"
#include "api/call/cross_site.h"
#include "api/hub/hub.h"
#include "api/native/native.h"
#include "api/oci/oci.h"
#include "api/rpc/grpc_services.h"
#include "api/rpc/rpc.h"
#include "api/s3/s3.h"
#include "catalog/names/family.h"
#include "catalog/upstream/remote_family.h"
#include "core/waiting.h"
#include "http/body_room.h"

#include <stdlib.h>
#include <string.h>

const struct td_facade *const td_main_port = &td_native_facade;
const struct td_facade *const td_s3_port = &td_s3_facade;
const struct td_facade *const td_grpc_port = &td_grpc_facade;

/* The facades of the main port, in the order in which they are asked for a path. td_main_port answers the paths that
 * none of them owns. */
static const struct td_facade *const shared[] = {&td_native_facade, &td_hub_facade, &td_oci_facade, &td_rpc_facade,
                                                 &td_grpc_services_facade};

static const struct td_facade *owner_of(struct td_text raw_path)
{
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (shared[i]->owns(raw_path))
            return shared[i];
    return NULL;
}

const struct td_facade *td_api_facade(const struct td_facade *port, struct td_text target)
{
    if (port != td_main_port && port != td_grpc_port)
        return port;
    const struct td_facade *owner = owner_of(td_uri_raw_path(target));
    return owner != NULL && (port == td_main_port || owner->speaks_grpc) ? owner : port;
}

bool td_api_is_probe(const struct td_request *request)
{
    return request->facade->is_probe != NULL && request->facade->is_probe(request);
}

bool td_api_is_text(const struct td_facade *port, struct td_text target, bool is_post)
{
    const struct td_facade *facade = td_api_facade(port, target);
    return facade->is_text != NULL && (!is_post || facade->posts_texts) && facade->is_text(td_uri_raw_path(target));
}

bool td_api_takes_body(const struct td_request *request)
{
    return request->facade->takes_body != NULL && request->facade->takes_body(request);
}

bool td_api_answers_each(const struct td_request *request)
{
    return request->facade->answers_each != NULL && request->facade->answers_each(request);
}

bool td_api_takes_uploads(const struct td_api *api, const struct td_facade *facade)
{
    return api->takes_uploads && facade->begin_upload != NULL;
}

enum td_body_place td_api_body_place(const struct td_api *api, const struct td_request *request)
{
    if (td_api_takes_uploads(api, request->facade) && request->facade->takes_upload(request))
        return TD_BODY_SINK;
    return td_api_takes_body(request) ? TD_BODY_MEMORY : TD_BODY_NOWHERE;
}

bool td_api_refuses_body(const struct td_api *api, const struct td_request *request)
{
    if (td_api_takes_uploads(api, request->facade))
        return false;
    const char *const *methods = request->facade->write_methods;
    for (size_t i = 0; methods != NULL && methods[i] != NULL; i++)
        if (td_text_equals(request->method, methods[i]))
            return true;
    return false;
}

/* Returns a call without a snapshot, of a request whose target was parsed. It borrows all arguments. */
static struct td_call call_of(struct td_api *api, const struct td_request *request, const struct td_uri *uri,
                              struct td_response *response)
{
    bool has_own_port = request->facade->owns == NULL;
    return (struct td_call){.api = api,
                            .request = request,
                            .uri = uri,
                            .response = response,
                            .is_for_main_port = has_own_port && owner_of(uri->raw_path) != NULL};
}

/* Returns whether the request is a POST that reads, such as tensors:read: its body names what the client wants. */
static bool reads_by_post(const struct td_api *api, const struct td_request *request)
{
    return request->facade->reads_by_post != NULL && request->facade->reads_by_post(request) &&
           td_api_body_place(api, request) == TD_BODY_MEMORY;
}

/* Returns whether the request may change something: it has a method of writing, and is no POST that reads. */
static bool may_change(const struct td_api *api, const struct td_request *request)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (td_text_equals(request->method, methods[i]))
            return !reads_by_post(api, request);
    return false;
}

/* Returns whether the request must be refused because a page of another site made a browser send it. */
static bool is_of_other_site(const struct td_api *api, const struct td_request *request)
{
    return td_cross_site_is(request) && may_change(api, request);
}

bool td_api_admits(struct td_api *api, const struct td_request *request)
{
    struct td_uri uri;
    struct td_response refusal;
    bool admits = false;
    if (is_of_other_site(api, request))
        return false;
    td_response_init_for(&refusal, request);
    if (td_uri_parse(&uri, request->target, request->facade->query, NULL)) {
        struct td_call call = call_of(api, request, &uri, &refusal);
        admits = td_access_begin(&call);
        td_access_end(&call);
    }
    td_uri_fini(&uri);
    td_response_fini(&refusal);
    return admits;
}

/* Has the handlers see the target of a signed URL without its signature, in a copy of the request. Returns false after
 * it answered an error. */
static bool take_signature_off(struct td_call *call, struct td_request *copy, struct td_uri *uri)
{
    struct td_error err = TD_ERROR_INIT;
    copy->target = call->caller.bare;
    call->request = copy;
    td_uri_fini(uri);
    if (td_uri_parse(uri, copy->target, copy->facade->query, &err))
        return true;
    td_response_fail_error(call->response, &err);
    return false;
}

/* Forbids shared caches to store an answer to a request with credentials. */
static void make_private(const struct td_call *call)
{
    const char *control = call->response->cache_control;
    if (call->caller.kind != TD_CALLER_OPEN && control != NULL && strcmp(control, "no-cache") == 0)
        call->response->cache_control = "private, no-cache";
}

/* Returns whether the request changes nothing, and does not wait for a change: such waits end when the folder of their
 * model is removed. */
static bool only_reads(const struct td_request *request, const struct td_uri *uri)
{
    static const char *const posts[] = {"/tensors:read", "/plans"};
    struct td_text path = uri->raw_path;
    bool reads = td_text_equals(request->method, "GET") || td_text_equals(request->method, "HEAD");
    for (size_t i = 0; i < sizeof posts / sizeof *posts && !reads; i++) {
        const size_t len = strlen(posts[i]);
        reads = td_text_equals(request->method, "POST") && path.len > len &&
                td_text_equals(td_text_skip(path, path.len - len), posts[i]);
    }
    return reads && td_uri_parameter(uri, "wait") == NULL;
}

/* Returns whether the request asks for the newest version of a family, which a removed one is not: by `latest`, or by
 * `main`, unless the path also has the name of the model's folder. */
static bool asks_for_newest(const struct td_uri *uri, const char *id)
{
    const struct td_text *version = td_uri_parameter(uri, "version");
    const char *slash = strrchr(id, '/');
    struct td_text name = td_text_of(slash == NULL ? id : slash + 1);
    struct td_text path = uri->path;
    bool has_main = false;
    bool has_name = false;
    if (version != NULL && td_text_equals(*version, TD_VERSION_LATEST))
        return true;
    while (path.len > 0) {
        struct td_text segment = td_text_take_until(&path, '/');
        if (td_text_equals(segment, TD_VERSION_LATEST))
            return true;
        has_main = has_main || td_text_equals(segment, "main");
        has_name = has_name || td_text_equals_ignore_case(segment, name.p);
    }
    return has_main && !has_name;
}

/* Answers the call again from the snapshot that is kept for a removed model. Returns whether the answer is about this
 * model. */
static bool answer_of(const struct td_call *call, const struct td_removed_model *removed)
{
    struct td_response *response = call->response;
    struct td_call again = call_of(call->api, call->request, call->uri, response);
    again.caller = call->caller;
    again.kept = removed->snapshot;
    response->kept = td_text_of(removed->id);
    call->request->facade->answer(&again);
    response->kept = TD_TEXT("");
    td_snapshot_unref(again.snapshot);
    td_remote_family_unref(again.remote_family);
    bool is_answer = response->wait_until_ns != 0 || (response->status < 500 && response->status != 404);
    return td_waiting_was_refused() || (response->is_of_kept && is_answer);
}

/* Answers the call again from the kept models, if it may have failed because a folder was removed. A call fails so,
 * too, while another program still removes the files of the folder one by one. Keeps the first answer if no kept model
 * has one. */
static void answer_kept(const struct td_call *call)
{
    struct td_removed *table = td_catalog_removed(call->api->catalog);
    struct td_response *response = call->response;
    struct td_removed_model removed;
    bool may_be = response->status == 404 || response->status == 412 || response->status == 422 ||
                  (response->status == 503 && response->changed);
    if (table == NULL || !may_be || td_waiting_was_refused() || !only_reads(call->request, call->uri))
        return;
    for (size_t i = 0; td_removed_get(table, i, &removed); i++) {
        if (asks_for_newest(call->uri, removed.id)) {
            td_snapshot_unref(removed.snapshot);
            continue;
        }
        struct td_response first = *response;
        td_response_init_for(response, call->request);
        memcpy(response->token, first.token, sizeof response->token);
        bool found = answer_of(call, &removed);
        td_snapshot_unref(removed.snapshot);
        td_response_fini(found ? &first : response);
        if (found)
            return;
        *response = first;
    }
}

/* Passes the call of a request to its facade, if the request is admitted, with its body unpacked: to begin an upload,
 * which returns a sink or NULL, or to answer, which returns NULL. Answers a preflight, and refuses a change by a page
 * of another site, in place of every facade. */
static struct td_body_sink *pass_call(struct td_api *api, const struct td_request *request,
                                      struct td_response *response, bool begins_upload)
{
    struct td_uri uri;
    struct td_error err = TD_ERROR_INIT;
    td_response_init_for(response, request);
    if (td_cross_site_answer_preflight(request, response))
        return NULL;
    if (is_of_other_site(api, request)) {
        td_cross_site_refuse(request, response);
        return NULL;
    }
    if (!td_uri_parse(&uri, request->target, request->facade->query, &err)) {
        td_response_fail_error(response, &err);
        td_uri_fini(&uri);
        return NULL;
    }
    struct td_call call = call_of(api, request, &uri, response);
    struct td_request copy = *request;
    struct td_body_sink *sink = NULL;
    char *unpacked = NULL;
    if (td_access_begin(&call) && (call.caller.bare.p == NULL || take_signature_off(&call, &copy, &uri))) {
        if (begins_upload) {
            sink = td_coded_body_begin(&call, request->facade->begin_upload(&call));
        } else if (td_coded_body_open(&call, &copy, &unpacked) && td_coded_body_end(&call, &copy)) {
            call.request = &copy;
            request->facade->answer(&call);
            answer_kept(&call);
        }
    }
    make_private(&call);
    td_snapshot_unref(call.snapshot);
    td_remote_family_unref(call.remote_family);
    td_access_end(&call);
    td_uri_fini(&uri);
    free(unpacked);
    if (request->room != NULL)
        request->room->give(request->room);
    return sink;
}

void td_api_handle(struct td_api *api, const struct td_request *request, struct td_response *response)
{
    (void)pass_call(api, request, response, false);
}

struct td_body_sink *td_api_begin_upload(struct td_api *api, const struct td_request *request,
                                         struct td_response *response)
{
    return pass_call(api, request, response, true);
}
