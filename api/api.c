#include "api/api.h"

#include "api/find_name.h"
#include "api/handlers.h"
#include "api/html/html_index.h"
#include "api/hub/hub.h"
#include "api/s3/s3.h"
#include "core/json.h"
#include "http/conditional.h"
#include "http/range.h"
#include "http/reservation.h"
#include "storage/composed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct system_route {
    const char *path;
    enum td_route route;
    void (*handle)(const struct td_call *call);
    bool probe, is_post;
};

static const struct system_route system_routes[] = {
    {"/healthz", TD_ROUTE_HEALTHZ, td_handle_healthz, true, false},
    {"/readyz", TD_ROUTE_READYZ, td_handle_readyz, true, false},
    {"/metrics", TD_ROUTE_METRICS, td_handle_metrics, true, false},
    {"/openapi.json", TD_ROUTE_OPENAPI, td_handle_openapi, false, false},
    {"/version", TD_ROUTE_VERSION, td_handle_version, false, false},
    {"/rescan", TD_ROUTE_RESCAN, td_handle_rescan, false, true},
};

enum { SYSTEM_ROUTES = sizeof system_routes / sizeof *system_routes };

bool td_api_init(struct td_api *api, struct td_catalog *catalog, struct td_error *err)
{
    memset(api, 0, sizeof *api);
    api->catalog = catalog;
    td_budget_init(&api->lists, TD_LISTS_BYTES, "lists and descriptions");
    if (td_manifest_cache_init(&api->views)) {
        if (td_lru_init(&api->plans, &td_plan_store_class, TD_PLAN_STORE_BYTES)) {
            if (td_rank_store_init(&api->shards, catalog))
                return true;
            td_lru_fini(&api->plans);
        }
        td_manifest_cache_fini(&api->views);
    }
    return td_error_set(err, TD_INTERNAL, "cannot create a lock");
}

void td_api_fini(struct td_api *api)
{
    td_manifest_cache_fini(&api->views);
    td_lru_fini(&api->plans);
    td_rank_store_fini(&api->shards);
}

bool td_api_is_probe(const struct td_request *request)
{
    for (size_t i = 0; i < SYSTEM_ROUTES && request->facade == TD_FACADE_API; i++)
        if (system_routes[i].probe && td_text_equals(request->target, system_routes[i].path))
            return true;
    return false;
}

bool td_call_no_memory(const struct td_call *call)
{
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_no_memory(&err);
    td_response_fail_error(call->response, &err);
    return false;
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
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    td_buffer_init(&details);
    td_buffer_puts(&details, "{\"known\":[");
    for (size_t i = 0; known[i] != NULL; i++)
        td_buffer_printf(&details, "%s\"%s\"", i > 0 ? "," : "", known[i]);
    td_buffer_puts(&details, "]}");
    td_response_fail(call->response, status, td_buffer_terminate(&details), "%s", message);
    td_buffer_fini(&details);
}

bool td_call_check_parameters(const struct td_call *call, const char *const *known)
{
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
        const char *names = td_buffer_terminate(&list);
        td_call_fail_known(call, 400, known, "unknown query parameter \"%.*s\"; %s%s",
                           (int)(name->len > 64 ? 64 : name->len), name->p,
                           known[0] == NULL ? "none is known here" : "known here: ", names == NULL ? "" : names);
        td_buffer_fini(&list);
        return false;
    }
    return true;
}

/* The part of the path that a person would take for the model's id, for the message. */
static struct td_text supposed_id(struct td_text path)
{
    static const char *const methods[] = {"/tensors", "/files", "/plans", "/shards", "/model.safetensors"};
    for (size_t i = 0; i < path.len; i++) {
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            size_t n = strlen(methods[m]);
            if (path.len - i >= n && memcmp(path.p + i, methods[m], n) == 0 &&
                (path.len - i == n || path.p[i + n] == '/' || path.p[i + n] == ':'))
                return (struct td_text){.p = path.p, .len = i};
        }
    }
    return path;
}

/* True when rest is `word` itself or goes on with word + '/'; then *after is what follows that. */
static bool take_segment(struct td_text rest, const char *word, struct td_text *after)
{
    size_t n = strlen(word);
    if (rest.len < n || memcmp(rest.p, word, n) != 0 || (rest.len > n && rest.p[n] != '/'))
        return false;
    size_t skip = rest.len > n ? n + 1 : n;
    *after = (struct td_text){.p = rest.p + skip, .len = rest.len - skip};
    return true;
}

/* /models/{id}/tensors and /models/{id}/tensors/ are the manifest, unless a tensor has the empty name. */
static bool names_a_tensor(const struct td_call *call, struct td_text rest)
{
    struct td_tensor_ref ref;
    const struct td_text *id = td_uri_parameter(call->uri, "checkpoint");
    const struct td_checkpoint *checkpoint =
        td_model_find_checkpoint(call->model, td_text_n(id == NULL ? NULL : id->p, id == NULL ? 0 : id->len));
    if (call->rest.len > 0)
        return true;
    return rest.p[rest.len - 1] == '/' && checkpoint != NULL && td_checkpoint_find(checkpoint, TD_TEXT(""), &ref);
}

static bool is_below_models(struct td_text raw_path)
{
    static const char own[] = "/models";
    const size_t len = sizeof own - 1;
    return raw_path.len >= len && memcmp(raw_path.p, own, len) == 0 && (raw_path.len == len || raw_path.p[len] == '/');
}

/* Ours come first and are many, so they are told at a glance. */
enum td_facade td_api_facade(enum td_facade port, struct td_text target)
{
    struct td_text path = td_uri_raw_path(target);
    return port == TD_FACADE_API && !is_below_models(path) && td_hub_has_path(path) ? TD_FACADE_HUB : port;
}

bool td_api_has_path(struct td_text raw_path)
{
    for (size_t i = 0; i < SYSTEM_ROUTES; i++)
        if (td_text_equals(raw_path, system_routes[i].path))
            return true;
    return is_below_models(raw_path) || td_hub_has_path(raw_path);
}

/* What follows a model's id, the tensors aside. */
static const struct {
    const char *word;
    bool has_rest; /* something must follow the word, or nothing may */
    bool is_post;
    enum td_route route;
    void (*handle)(const struct td_call *call);
} model_routes[] = {
    {"files", true, false, TD_ROUTE_FILE, td_handle_file},
    {"files", false, false, TD_ROUTE_FILE, td_handle_files},
    {"tensors:read", false, true, TD_ROUTE_READ, td_handle_read},
    {"plans", false, true, TD_ROUTE_PLANS, td_handle_plans},
    {"plans", true, false, TD_ROUTE_PLAN, td_handle_plan},
    {"shards", true, false, TD_ROUTE_RANK_FILE, td_handle_rank_file},
    {"model.safetensors", false, false, TD_ROUTE_MODEL_FILE, td_handle_model_file},
};

/* The decoded path's end says it: whether the model is there is a matter of the answer. */
bool td_api_takes_body(const struct td_request *request)
{
    struct td_uri uri;
    bool takes = false;
    if (request->facade == TD_FACADE_S3)
        return false;
    if (request->facade == TD_FACADE_HUB)
        return td_hub_is_post(td_uri_raw_path(request->target));
    if (td_uri_parse(&uri, request->target, TD_URI_STRICT, NULL)) {
        for (size_t i = 0; i < sizeof model_routes / sizeof *model_routes; i++) {
            size_t n = strlen(model_routes[i].word);
            takes = takes || (model_routes[i].is_post && uri.path.len > n && uri.path.p[uri.path.len - n - 1] == '/' &&
                              memcmp(uri.path.p + uri.path.len - n, model_routes[i].word, n) == 0);
        }
    }
    td_uri_fini(&uri);
    return takes;
}

/* Chooses the handler below /models; NULL when there is none (404 was answered). path is after "/models/". */
static void (*route_model(struct td_call *call, struct td_text path))(const struct td_call *)
{
    struct td_response *response = call->response;
    size_t at;
    path.p = td_repo_resolve(call->snapshot, path.p, &path.len);
    call->model = td_snapshot_route(call->snapshot, path, &at);
    if (call->model == NULL) {
        struct td_text id = supposed_id(path);
        char advice[TD_NAME_ADVICE_BYTES];
        td_name_advise(call->snapshot, id, advice);
        td_response_fail(response, 404, NULL, "model \"%.*s\" not found%s; GET /models lists them",
                         (int)(id.len > 400 ? 400 : id.len), id.p, advice);
        return NULL;
    }
    struct td_text rest = {.p = path.p + at, .len = path.len - at};
    if (rest.len == 0) {
        response->route = TD_ROUTE_MODEL;
        return td_handle_model;
    }
    if (take_segment(rest, "tensors", &call->rest)) {
        bool one = names_a_tensor(call, rest);
        response->route = one ? TD_ROUTE_TENSOR : TD_ROUTE_MANIFEST;
        return one ? td_handle_tensor : td_handle_manifest;
    }
    for (size_t i = 0; i < sizeof model_routes / sizeof *model_routes; i++) {
        if (!take_segment(rest, model_routes[i].word, &call->rest) || (call->rest.len > 0) != model_routes[i].has_rest)
            continue;
        response->route = model_routes[i].route;
        call->is_post = model_routes[i].is_post;
        return model_routes[i].handle;
    }
    td_response_fail(response, 404, NULL,
                     "nothing at \"%.*s\" of model \"%s\"; there are tensors, tensors/{name}, tensors:read, "
                     "files/{path}, plans, shards/{engine}/tp{size}/rank-{rank}.safetensors and model.safetensors",
                     (int)(rest.len > 200 ? 200 : rest.len), rest.p, call->model->id);
    return NULL;
}

/* Writes a clause about a path that is not there: what it would be as a name, or as a folder of a repository. Ends with
 * "; ", or is empty. */
static void advise_path(const struct td_call *call, struct td_text path, const struct td_named_page *page,
                        char out[TD_NAME_ADVICE_BYTES])
{
    static const char resolve[] = "/resolve/";
    static const struct {
        const char *path, *advice;
    } known[] = {
        {"", "that is a page for browsers (Accept: text/html); "},
        {"/datasets", "GET /api/datasets lists the datasets; "},
        {"/api", "clients of the Hugging Face Hub ask for what is below /api/models and /api/datasets; "},
    };
    out[0] = '\0';
    struct td_text bare = {.p = path.p, .len = path.len - (path.p[path.len - 1] == '/' ? 1 : 0)};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!td_text_equals(bare, known[i].path))
            continue;
        (void)snprintf(out, TD_NAME_ADVICE_BYTES, "%s", known[i].advice);
        return;
    }
    if (page != NULL) {
        const char *id = page->model != NULL ? page->model->id : page->repo->hub_id;
        const char *place = page->model != NULL ? "/models" : page->as_dataset ? "/api/datasets" : "/api/models";
        (void)snprintf(out, TD_NAME_ADVICE_BYTES,
                       "that is a page for browsers (Accept: text/html), and GET %s/%.400s describes the same; ", place,
                       id);
        return;
    }
    size_t len = 1; /* up to /resolve/, or all */
    while (len < path.len &&
           (path.len - len < sizeof resolve - 1 || memcmp(path.p + len, resolve, sizeof resolve - 1) != 0))
        len++;
    if (call->snapshot != NULL)
        td_name_advise_repo(call->snapshot, false, (struct td_text){.p = path.p + 1, .len = len - 1}, out);
}

/* Chooses the handler of a path that may be a name as on the Hub's site, which is for browsers; NULL when there is none
 * (404 was answered). */
static void (*route_name(struct td_call *call, struct td_text path))(const struct td_call *)
{
    struct td_named_page page;
    char advice[TD_NAME_ADVICE_BYTES];
    call->snapshot = td_catalog_acquire(call->api->catalog);
    bool is_name = call->snapshot != NULL && td_name_find_page(call->snapshot, path, &page);
    if (is_name && td_html_is_accepted(call)) {
        call->response->route = page.model != NULL ? TD_ROUTE_MODEL : TD_ROUTE_HUB_FILE;
        return td_html_named;
    }
    advise_path(call, path, is_name ? &page : NULL, advice);
    td_response_fail(call->response, 404, NULL,
                     "nothing at \"%.*s\"; %sbegin with GET /models, the contract is at /openapi.json",
                     (int)(path.len > 200 ? 200 : path.len), path.p, advice);
    return NULL;
}

bool td_call_take_snapshot(struct td_call *call)
{
    struct td_catalog_status status;
    call->snapshot = td_catalog_acquire(call->api->catalog);
    if (call->snapshot != NULL)
        return true;
    td_catalog_get_status(call->api->catalog, &status);
    if (status.first_scan_failed)
        td_response_fail(call->response, 503, NULL, "the first scan failed, the next follows: %s", status.message);
    else
        td_response_fail(call->response, 503, NULL, "the first scan is still running; see /readyz");
    return false;
}

/* Chooses the handler and fills the call; NULL when the answer is already made. */
static void (*route(struct td_call *call))(const struct td_call *)
{
    struct td_text path = call->uri->path;
    struct td_text rest;
    for (size_t i = 0; i < SYSTEM_ROUTES; i++) {
        if (td_text_equals(path, system_routes[i].path)) {
            call->response->route = system_routes[i].route;
            call->is_post = system_routes[i].is_post;
            return system_routes[i].handle;
        }
    }
    bool by_hub = call->request->facade == TD_FACADE_HUB;
    bool is_start = td_text_equals(path, "/") && td_html_is_wanted(call); /* a browser */
    if (is_start)
        rest = (struct td_text){.p = "", .len = 0};
    if (!by_hub && !is_start && !take_segment(path, "/models", &rest))
        return route_name(call, path);
    if (!td_call_take_snapshot(call))
        return NULL;
    if (by_hub) {
        call->is_post = td_hub_is_post(call->uri->raw_path);
        call->response->route = TD_ROUTE_HUB_API;
        return td_handle_hub;
    }
    if (rest.len == 0) {
        call->response->route = TD_ROUTE_MODELS;
        return td_handle_models;
    }
    return route_model(call, rest);
}

/* Conditionals and ranges are for GET and HEAD. What is left of a body is then said in terms of files. */
void td_call_finish(const struct td_call *call, bool head)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    if (response->status == 200 && !call->is_post && td_conditional_apply(call->request, response) && !head &&
        td_conditional_range_allowed(call->request, response)) /* RFC 9110 section 14.2: Range is for GET */
        td_range_apply(call->request, response);
    if ((!head && !td_body_resolve(&response->body, &err)) || !td_body_prepare(&response->body, head, &err))
        td_response_fail_error(response, &err);
}

static bool begins_with(struct td_text text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && td_text_equals_ignore_case((struct td_text){.p = text.p, .len = len}, word);
}

/* Whether a client of S3 sent it: signed by header or in the query, or with what AWS's SDKs send and a listing asks
 * for. */
static bool is_of_s3(const struct td_call *call)
{
    static const char *const parameters[] = {"list-type", "x-id", "X-Amz-Signature"};
    static const struct {
        const char *name, *value; /* that they begin with */
    } fields[] = {{"Authorization", "AWS"}, {"X-Amz-", ""}, {"Amz-Sdk-", ""}};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (td_uri_parameter(call->uri, parameters[i]) != NULL)
            return true;
    for (size_t i = 0; i < call->request->header_count; i++) {
        const struct td_header *header = &call->request->headers[i];
        if (td_text_equals_ignore_case(header->name, "X-Amz-Cf-Id")) /* CloudFront's, of whatever it passes on */
            continue;
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            if (begins_with(header->name, fields[k].name) && begins_with(header->value, fields[k].value))
                return true;
    }
    return false;
}

/* Says to a client of S3 that nothing here is for it. The Hub's errors stay as they are: what its clients do hangs on
 * them. */
static void fail_s3(const struct td_call *call)
{
    struct td_text path = call->uri->path;
    const char *listen = call->api->s3_listen;
    bool is_on = listen != NULL && listen[0] != '\0';
    td_response_fail(call->response, 404, NULL, "nothing at \"%.*s\": this is not the port for clients of S3; %s%s%s",
                     (int)(path.len > 200 ? 200 : path.len), path.p,
                     is_on ? "they are served on that of --s3-listen (" : "--s3-listen opens one, and is not set",
                     is_on ? listen : "", is_on ? ")" : "");
}

/* A request of the main port. */
static void answer(struct td_call *call, bool head)
{
    void (*handle)(const struct td_call *) = route(call);
    struct td_text method = call->request->method;
    bool allowed = call->is_post ? td_text_equals(method, "POST") : head || td_text_equals(method, "GET");
    if (handle != NULL && !allowed) {
        const char *allow = call->is_post ? "POST" : "GET, HEAD";
        td_response_fail(call->response, 405, NULL, "method %.*s is not allowed here; %s",
                         (int)(method.len > 32 ? 32 : method.len), method.p,
                         call->is_post ? "POST is" : "GET and HEAD are");
        td_response_add_header(call->response, "Allow", "%s", allow);
    } else if (handle != NULL) {
        handle(call);
        td_call_finish(call, head);
    }
    if (call->response->status == 404 && call->request->facade == TD_FACADE_API && is_of_s3(call))
        fail_s3(call);
}

void td_api_handle(struct td_api *api, const struct td_request *request, struct td_response *response)
{
    struct td_uri uri;
    struct td_error err = TD_ERROR_INIT;
    td_response_init_for(response, request);
    bool head = td_text_equals(request->method, "HEAD");
    /* the Hub's clients repeat parameters */
    enum td_uri_query query = request->facade == TD_FACADE_HUB ? TD_URI_REPEATS : TD_URI_STRICT;
    if (!td_uri_parse(&uri, request->target, query, &err)) {
        td_response_fail_error(response, &err);
        td_uri_fini(&uri);
        return;
    }
    struct td_call call = {.api = api, .request = request, .uri = &uri, .response = response};
    if (request->facade == TD_FACADE_S3)
        td_s3_handle(&call);
    else
        answer(&call, head);
    if (response->changed)
        td_catalog_request_scan(api->catalog);
    td_snapshot_unref(call.snapshot);
    td_uri_fini(&uri);
}
