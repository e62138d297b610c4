/* Routes the requests of the native interface: first the paths of the system, then /models and /datasets. All other
 * paths are taken for names as on the Hub's site, which browsers ask for. */
#include "api/native/native.h"
#include "api/call/checkpoint_choice.h"

#include "api/call/access.h"
#include "api/call/find_name.h"
#include "api/call/incoming_call.h"
#include "api/html/asset.h"
#include "api/html/compare_page.h"
#include "api/html/dataset_page.h"
#include "api/html/error_page.h"
#include "api/html/html_index.h"
#include "api/html/views.h"
#include "api/native/parameters.h"
#include "api/native/publish_routes.h"
#include "api/native/routes.h"
#include "api/native/versions.h"
#include "catalog/dataset/dataset.h"
#include "catalog/names/family.h"
#include "core/message/document.h"
#include "http/auth/signed_url.h"

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
    {"/tensord.v1.binpb", TD_ROUTE_SCHEMA, td_handle_schema, false, false},
    {"/version", TD_ROUTE_VERSION, td_handle_version, false, false},
    {"/rescan", TD_ROUTE_RESCAN, td_handle_rescan, false, true},
    {"/sign", TD_ROUTE_SIGN, td_handle_sign, false, true},
    {"/events", TD_ROUTE_EVENTS, td_handle_events, false, false},
    {"/compare", TD_ROUTE_COMPARE, td_html_compare, false, false},
    {"/status", TD_ROUTE_STATUS, td_handle_status, false, false},
};

enum { SYSTEM_ROUTES = sizeof system_routes / sizeof *system_routes };

/* A word that may follow the id of a model or of a dataset. */
struct word_route {
    const char *word;
    const char *rest; /* the form of the path after the word and a '/'; NULL: nothing may follow */
    bool is_post;
    enum td_route route;
    void (*handle)(const struct td_call *call);
    bool reads_tensors; /* of a model: a delta has nothing to answer */
};

/* The words that may follow a model's id, in the order in which a 404 lists them. */
static const struct word_route model_routes[] = {
    {"tensors", NULL, false, TD_ROUTE_MANIFEST, td_handle_manifest, true},
    {"tensors", "{name}", false, TD_ROUTE_TENSOR, td_handle_tensor, true},
    {"tensors:read", NULL, true, TD_ROUTE_READ, td_handle_read, true},
    {"versions", NULL, false, TD_ROUTE_VERSIONS, td_handle_versions, false},
    {"changes", NULL, false, TD_ROUTE_CHANGES, td_handle_changes, false},
    {"files", NULL, false, TD_ROUTE_FILE, td_handle_files, false},
    {"files", "{path}", false, TD_ROUTE_FILE, td_handle_file, false},
    {"plans", NULL, true, TD_ROUTE_PLANS, td_handle_plans, true},
    {"plans", "{plan}", false, TD_ROUTE_PLAN, td_handle_plan, true},
    {"shards", "{engine}/tp{size}/rank-{rank}.safetensors", false, TD_ROUTE_RANK_FILE, td_handle_rank_file, true},
    {"view", "{page}", false, TD_ROUTE_VIEW, td_html_view, false},
    {"model.safetensors", NULL, false, TD_ROUTE_MODEL_FILE, td_handle_model_file, true},
};

enum { MODEL_ROUTES = sizeof model_routes / sizeof *model_routes };

static const struct word_route dataset_routes[] = {
    {"rows", NULL, false, TD_ROUTE_ROWS, td_handle_rows, false},
    {"rows", "{number}", false, TD_ROUTE_ROW, td_handle_row, false},
    {"index", NULL, false, TD_ROUTE_ROW_INDEX, td_handle_row_table, false},
    {"rows:batchGet", NULL, true, TD_ROUTE_ROWS_BATCH, td_handle_rows_batch, false},
};

enum { DATASET_ROUTES = sizeof dataset_routes / sizeof *dataset_routes };

/* Returns the part of the path that looks like the model's id, for an error message. */
static struct td_text supposed_id(struct td_text path)
{
    for (size_t i = 0; i < path.len; i++) {
        struct td_text rest = td_text_skip(path, i + 1);
        for (size_t m = 0; path.p[i] == '/' && m < MODEL_ROUTES; m++) {
            struct td_text word = td_text_of(model_routes[m].word);
            if (td_text_begins(rest, word) &&
                (rest.len == word.len || rest.p[word.len] == '/' || rest.p[word.len] == ':'))
                return td_text_n(path.p, i);
        }
    }
    return path;
}

/* Writes the words that may follow an id: "tensors, tensors/{name}, ... and model.safetensors". */
static void list_routes(const struct word_route *routes, size_t count, char *out, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < count && used < capacity; i++) {
        const struct word_route *row = &routes[i];
        const char *before = i == 0 ? "" : i + 1 < count ? ", " : " and ";
        used += (size_t)snprintf(out + used, capacity - used, "%s%s%s%s", before, row->word,
                                 row->rest == NULL ? "" : "/", row->rest == NULL ? "" : row->rest);
    }
}

/* Returns whether the path begins with the segment `word`; *after is then the path that follows. */
static bool take_segment(struct td_text rest, const char *word, struct td_text *after)
{
    size_t n = strlen(word);
    if (!td_text_begins(rest, td_text_n(word, n)) || (rest.len > n && rest.p[n] != '/'))
        return false;
    size_t skip = rest.len > n ? n + 1 : n;
    *after = td_text_skip(rest, skip);
    return true;
}

/* Returns whether something follows the word at the beginning of `rest`. /models/{id}/tensors/ is the manifest, but for
 * a tensor with the empty name. */
static bool has_rest(const struct td_call *call, struct td_text rest, const struct word_route *row)
{
    if (call->rest.len > 0 || (row->route != TD_ROUTE_TENSOR && row->route != TD_ROUTE_MANIFEST))
        return call->rest.len > 0;
    struct td_tensor_ref ref;
    const struct td_text *id = td_uri_parameter(call->uri, "checkpoint");
    const struct td_checkpoint *checkpoint =
        td_model_find_checkpoint(call->model, td_text_n(id == NULL ? NULL : id->p, id == NULL ? 0 : id->len));
    return rest.p[rest.len - 1] == '/' && checkpoint != NULL && td_checkpoint_find(checkpoint, TD_TEXT(""), &ref);
}

static bool is_below_models(struct td_text raw_path)
{
    struct td_text after;
    return take_segment(raw_path, "/models", &after);
}

/* Asks the upstream for the model with this id, and continues the call in its snapshot. */
static enum td_incoming_look look_for(struct td_call *call, struct td_text id, struct td_text path, size_t *at)
{
    struct td_snapshot *snapshot = NULL;
    enum td_incoming_look look = td_incoming_call_look(call, id, &snapshot);
    if (look == TD_INCOMING_AGAIN) {
        td_snapshot_unref(call->snapshot);
        call->snapshot = snapshot;
        call->model = td_snapshot_route(snapshot, path, at);
    }
    return look;
}

/* Does so for the path's model. If the upstream has no model with an id of two segments, the first segment alone may be
 * the id of a model on its way, and the second one its directory. Returns false after it answered. */
static bool find_incoming(struct td_call *call, struct td_text path, size_t *at)
{
    struct td_text rest = path;
    struct td_text first = td_text_take_until(&rest, '/');
    enum td_incoming_look look = look_for(call, td_incoming_call_id(supposed_id(path)), path, at);
    if (look == TD_INCOMING_NONE && td_incoming_call_knows(call, first))
        look = look_for(call, first, path, at);
    return look != TD_INCOMING_ANSWERED;
}

/* Makes a call with `wait` wait for the model with the whole path as its id, or for the first version of the folder
 * whose list the path asks for. Returns whether the call waits, or was answered with an error. */
static bool waits_for_model(const struct td_call *call, struct td_text path)
{
    if (call->model == NULL && td_versions_is_list(path))
        return td_wait_for_name(call, td_versions_parameters);
    path.len -= path.len > 1 && path.p[path.len - 1] == '/' ? 1 : 0;
    return supposed_id(path).len == path.len && td_wait_for_name(call, td_model_parameters);
}

/* Chooses the handler of the list of versions, or of the changes, of a folder that is no model. */
static void (*route_family(struct td_call *call, struct td_text path))(const struct td_call *)
{
    bool is_list = td_versions_is_list(path);
    call->response->route = is_list ? TD_ROUTE_VERSIONS : TD_ROUTE_CHANGES;
    if (!td_call_may_describe(call, td_text_of(call->family->id)))
        return NULL;
    return is_list ? td_handle_versions : td_handle_changes;
}

/* Chooses the handler of a path below /models/; NULL after it answered. */
static void (*route_model(struct td_call *call, struct td_text path))(const struct td_call *)
{
    struct td_response *response = call->response;
    size_t at;
    path.p = td_repo_resolve(call->snapshot, path.p, &path.len);
    call->model = td_snapshot_route(call->snapshot, path, &at);
    bool is_found;
    if (!td_versions_find_upstream(call, path, supposed_id(path), &at, &is_found) ||
        (!is_found && !td_versions_find(call, path, &at)))
        return NULL;
    if (call->model == NULL && call->family != NULL)
        return route_family(call, path);
    if (call->model == NULL &&
        (!find_incoming(call, path, &at) || (call->model != NULL && !td_versions_find(call, path, &at))))
        return NULL;
    if (call->model == NULL && waits_for_model(call, path))
        return NULL;
    if (call->model == NULL) {
        struct td_text id = supposed_id(path);
        char advice[TD_NAME_ADVICE_BYTES];
        td_name_advise(call->snapshot, id, advice);
        bool is_nowhere = call->api->upstream != NULL && advice[0] == '\0';
        td_response_fail(response, 404, NULL, "model \"%.*s\" %s%s; GET /models lists models", TD_SHOW(id, 400),
                         is_nowhere ? "is neither here nor at the upstream" : "not found", advice);
        return NULL;
    }
    struct td_text directory = td_text_n(call->model->id, call->model->directory_len);
    if ((directory.len > 0 || call->snapshot->root_is_model) && !td_call_may_describe(call, directory))
        return NULL;
    td_incoming_call_note_read(call, td_text_of(call->model->id));
    td_response_note_subject(response, td_text_of(call->model->id));
    struct td_text rest = {.p = path.p + at, .len = path.len - at};
    call->takes_version = true;
    if (rest.len == 0) {
        response->route = TD_ROUTE_MODEL;
        call->begins_quickly = true;
        return td_handle_model;
    }
    for (size_t i = 0; i < MODEL_ROUTES; i++) {
        const struct word_route *row = &model_routes[i];
        if (!take_segment(rest, row->word, &call->rest) || has_rest(call, rest, row) != (row->rest != NULL))
            continue;
        response->route = row->route;
        call->is_post = row->is_post;
        call->takes_version = row->route != TD_ROUTE_VERSIONS && row->route != TD_ROUTE_CHANGES;
        if (row->route == TD_ROUTE_FILE || !td_incoming_call_awaits(call))
            return row->reads_tensors && call->model->is_delta ? td_call_refuse_delta : row->handle;
        struct td_text id = td_incoming_call_known_id(call, td_text_of(call->model->id));
        if (!td_incoming_call_waits(call, id))
            td_incoming_call_fail(call, id, TD_INCOMING_HAS_FILES);
        return NULL;
    }
    if (waits_for_model(call, path)) /* the path may become another model, in a directory of this one */
        return NULL;
    char known[256];
    list_routes(model_routes, MODEL_ROUTES, known, sizeof known);
    td_response_fail(response, 404, NULL, "nothing at \"%.*s\" of model \"%s\"; a model has %s", TD_SHOW(rest, 200),
                     call->model->id, known);
    return NULL;
}

/* Writes a clause about an unknown path: names that it may mean, or the repository that has a folder of this path. The
 * clause ends with "; ", or is empty. */
static void advise_path(const struct td_call *call, struct td_text path, const struct td_named_page *page,
                        char out[TD_NAME_ADVICE_BYTES])
{
    out[0] = '\0';
    struct td_text bare = {.p = path.p, .len = path.len - (path.p[path.len - 1] == '/' ? 1 : 0)};
    if (td_text_equals(bare, "/api")) {
        (void)snprintf(out, TD_NAME_ADVICE_BYTES,
                       "clients of the Hugging Face Hub ask for what is below /api/models and /api/datasets; ");
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
    size_t len = 1; /* the length up to /resolve/, or of all */
    while (len < path.len && !td_text_begins(td_text_skip(path, len), TD_TEXT("/resolve/")))
        len++;
    if (call->snapshot != NULL)
        td_name_advise_repo(call->snapshot, false, td_text_n(path.p + 1, len - 1), out);
}

/* Chooses the handler of a path that may be a name as on the Hub's site, for browsers; NULL after it answered 404. */
static void (*route_name(struct td_call *call, struct td_text path))(const struct td_call *)
{
    struct td_named_page page;
    struct td_error err = TD_ERROR_INIT;
    char advice[TD_NAME_ADVICE_BYTES];
    if (call->snapshot == NULL)
        td_call_look_for_snapshot(call, &err);
    if (err.code != TD_OK) {
        td_response_fail_error(call->response, &err);
        return NULL;
    }
    bool is_name = call->snapshot != NULL && td_name_find_page(call->snapshot, path, &page);
    if (is_name && td_html_is_accepted(call)) {
        call->response->route = page.model != NULL ? TD_ROUTE_MODEL : TD_ROUTE_HUB_FILE;
        return td_html_named;
    }
    advise_path(call, path, is_name ? &page : NULL, advice);
    td_response_fail(call->response, 404, NULL,
                     "nothing at \"%.*s\"; %sbegin with GET /models, the contract is at /openapi.json",
                     TD_SHOW(path, 200), advice);
    return NULL;
}

/* Finds the dataset with the id at the beginning of the path: of two segments, else of one. Sets *rest to the path that
 * follows.
 */
static const struct td_dataset *find_dataset(const struct td_call *call, struct td_text path, struct td_text *rest)
{
    struct td_text after = path;
    struct td_text first = td_text_take_until(&after, '/');
    struct td_text second = td_text_take_until(&after, '/');
    size_t lengths[] = {(size_t)(second.p + second.len - path.p), first.len};
    for (size_t i = 0; i < 2; i++) {
        const struct td_dataset *dataset = td_dataset_find(call->snapshot, td_text_n(path.p, lengths[i]));
        if (dataset == NULL)
            continue;
        *rest = td_text_skip(path, lengths[i]);
        (void)td_text_take_char(rest, '/');
        return dataset;
    }
    return NULL;
}

/* Returns the length of the part of the path that looks like a dataset's id: what comes before a word of
 * dataset_routes, at most two segments. */
static size_t dataset_id_len(struct td_text path)
{
    int segments = 2;
    for (size_t i = 0; i < path.len; i++) {
        if (path.p[i] != '/')
            continue;
        struct td_text rest = td_text_skip(path, i + 1), word = td_text_take_until(&rest, '/');
        bool is_word = --segments == 0;
        for (size_t r = 0; r < DATASET_ROUTES; r++)
            is_word = is_word || td_text_equals(word, dataset_routes[r].word);
        if (is_word)
            return i;
    }
    return path.len;
}

/* Makes a call with `wait` wait for the dataset with the whole path as its id. Returns whether the call waits, or was
 * answered with an error. */
static bool waits_for_dataset(const struct td_call *call, struct td_text path)
{
    path.len -= path.len > 1 && path.p[path.len - 1] == '/' ? 1 : 0;
    return dataset_id_len(path) == path.len && td_wait_for_name(call, td_dataset_parameters);
}

/* Chooses the handler of a path below /datasets/; NULL after it answered 404. */
static void (*route_dataset(struct td_call *call, struct td_text path))(const struct td_call *)
{
    struct td_response *response = call->response;
    struct td_text rest;
    call->dataset = find_dataset(call, path, &rest);
    if (call->dataset == NULL && waits_for_dataset(call, path))
        return NULL;
    if (call->dataset == NULL && td_html_is_accepted(call)) /* a repository that has no rows has a page, too */
        return route_name(call, call->uri->path);
    if (call->dataset == NULL) {
        struct td_text id = path;
        id.len = dataset_id_len(path);
        td_response_fail(
            response, 404, NULL,
            "there is no dataset \"%.*s\"; GET /datasets lists datasets: folders with files of rows, below "
            "datasets/ or without a checkpoint or a model's description",
            TD_SHOW(id, 400));
        return NULL;
    }
    if (!td_call_may_describe(call, td_text_of(call->dataset->repo->folder)))
        return NULL;
    if (rest.len == 0) {
        response->route = TD_ROUTE_DATASET;
        if (td_html_is_accepted(call) && td_uri_parameter(call->uri, "wait") == NULL)
            return td_html_dataset;
        call->begins_quickly = true;
        return td_handle_dataset;
    }
    for (size_t i = 0; i < DATASET_ROUTES; i++) {
        const struct word_route *row = &dataset_routes[i];
        if (!take_segment(rest, row->word, &call->rest) || (call->rest.len > 0) != (row->rest != NULL))
            continue;
        response->route = row->route;
        call->is_post = row->is_post;
        return row->handle;
    }
    if (waits_for_dataset(call, path))
        return NULL;
    char known[256];
    list_routes(dataset_routes, DATASET_ROUTES, known, sizeof known);
    td_response_fail(response, 404, NULL, "nothing at \"%.*s\" of dataset \"%.200s\"; a dataset has %s",
                     TD_SHOW(rest, 200), call->dataset->id, known);
    return NULL;
}

/* Returns whether a client of S3 sent the request: its headers or its query hold a signature, a field that AWS's SDKs
 * add, or a parameter of a listing. Such clients hide the text of an error that is no S3 document, so that a wrong port
 * is the hardest mistake to find. */
static bool is_of_s3(const struct td_call *call)
{
    static const char *const parameters[] = {"list-type", "x-id", "X-Amz-Signature"};
    static const struct {
        const char *name, *value; /* how both begin */
    } fields[] = {{"Authorization", "AWS"}, {"X-Amz-", ""}, {"Amz-Sdk-", ""}};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (td_uri_parameter(call->uri, parameters[i]) != NULL)
            return true;
    for (size_t i = 0; i < call->request->header_count; i++) {
        const struct td_header *header = &call->request->headers[i];
        if (td_text_equals_ignore_case(header->name, "X-Amz-Cf-Id")) /* CloudFront adds this to every request */
            continue;
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            if (td_text_begins_ignore_case(header->name, fields[k].name) &&
                td_text_begins_ignore_case(header->value, fields[k].value))
                return true;
    }
    return false;
}

/* Chooses the handler and fills in the call; NULL after it answered. */
static void (*route_native(struct td_call *call))(const struct td_call *)
{
    struct td_text path = call->uri->path;
    struct td_text rest;
    for (size_t i = 0; i < SYSTEM_ROUTES; i++) {
        if (td_text_equals(path, system_routes[i].path)) {
            call->response->route = system_routes[i].route;
            call->is_post = system_routes[i].is_post;
            if (system_routes[i].route == TD_ROUTE_COMPARE && !td_call_take_snapshot(call))
                return NULL;
            return system_routes[i].handle;
        }
    }
    if (td_asset_is_path(path)) {
        call->response->route = TD_ROUTE_ASSET;
        return td_html_asset;
    }
    bool is_root = td_text_equals(path, "/");
    bool is_start = is_root && td_html_is_wanted(call); /* a browser */
    if (is_start)
        rest = TD_TEXT("");
    if (is_root && !is_start && !is_of_s3(call)) {
        call->response->route = TD_ROUTE_START;
        return td_handle_start;
    }
    bool is_dataset = !is_start && take_segment(path, "/datasets", &rest);
    if (!is_start && !is_dataset && !take_segment(path, "/models", &rest))
        return route_name(call, path);
    if (!td_call_take_snapshot(call))
        return NULL;
    if (is_dataset && rest.len == 0) {
        call->response->route = TD_ROUTE_DATASETS;
        return td_handle_datasets;
    }
    if (is_dataset)
        return route_dataset(call, rest);
    if (rest.len == 0) {
        call->response->route = TD_ROUTE_MODELS;
        return td_handle_models;
    }
    return route_model(call, rest);
}

/* Answers 404 to a client of S3, and says which port it should use. */
static void fail_s3(const struct td_call *call)
{
    struct td_text path = call->uri->path;
    const char *listen = call->api->s3_listen;
    bool is_on = listen != NULL && listen[0] != '\0';
    td_response_fail(call->response, 404, NULL, "nothing at \"%.*s\": this is not the port for clients of S3; %s%s%s",
                     TD_SHOW(path, 200),
                     is_on ? "they are served on that of --s3-listen (" : "--s3-listen opens one, and is not set",
                     is_on ? listen : "", is_on ? ")" : "");
}

static bool owns_native_path(struct td_text raw_path)
{
    if (is_below_models(raw_path)) /* first, since most requests are */
        return true;
    for (size_t i = 0; i < SYSTEM_ROUTES; i++)
        if (td_text_equals(raw_path, system_routes[i].path))
            return true;
    return td_asset_is_path(raw_path);
}

/* Returns whether the path is /datasets/.../rows or below: bytes of files answer it. A single row is short as a rule,
 * and counts as a text. */
static bool is_rows(struct td_text raw_path)
{
    struct td_text rest;
    const struct td_text end = TD_TEXT("/rows");
    return take_segment(raw_path, "/datasets", &rest) && rest.len > end.len &&
           td_text_compare(td_text_skip(rest, rest.len - end.len), end) == 0;
}

/* Returns whether the path below a model begins with the row's word and is answered with bytes of files. */
static bool is_bytes(struct td_text rest, const struct word_route *row)
{
    struct td_text after;
    bool is_whole = row->route == TD_ROUTE_MODEL_FILE;
    if (row->route == TD_ROUTE_VIEW)
        return false;
    return take_segment(rest, row->word, &after) && (is_whole || (row->rest != NULL && rest.len > strlen(row->word)));
}

static bool is_text(struct td_text raw_path)
{
    if (!is_below_models(raw_path))
        return !is_rows(raw_path);
    for (size_t i = 0; i < raw_path.len; i++)
        for (size_t m = 0; raw_path.p[i] == '/' && m < MODEL_ROUTES; m++)
            if (is_bytes(td_text_skip(raw_path, i + 1), &model_routes[m]))
                return false;
    return true;
}

static bool is_probe(const struct td_request *request)
{
    for (size_t i = 0; i < SYSTEM_ROUTES; i++)
        if (system_routes[i].probe && td_text_equals(request->target, system_routes[i].path))
            return true;
    return false;
}

/* Returns whether the path ends in a word of the table that takes POST. */
static bool ends_in_post(struct td_text path, const struct word_route *routes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(routes[i].word);
        if (routes[i].is_post && path.len > n && path.p[path.len - n - 1] == '/' &&
            memcmp(path.p + path.len - n, routes[i].word, n) == 0)
            return true;
    }
    return false;
}

/* Returns whether the body of a POST to this path says what to read. A plan counts as well: the server keeps it in
 * memory alone, under a hash of its text, so that it changes no other answer. */
static bool is_read_by_post(struct td_text path)
{
    return ends_in_post(path, model_routes, MODEL_ROUTES) || ends_in_post(path, dataset_routes, DATASET_ROUTES);
}

static bool is_post_with_body(struct td_text path)
{
    return td_text_equals(path, "/sign") || is_read_by_post(path);
}

/* Returns whether the request is a POST to such a decoded path. The handler checks later whether the model or the
 * dataset exists. */
static bool is_posted_to(const struct td_request *request, bool (*is_such)(struct td_text path))
{
    struct td_uri uri;
    if (!td_text_equals(request->method, "POST"))
        return false;
    bool is = td_uri_parse(&uri, request->target, TD_URI_STRICT, NULL) && is_such(uri.path);
    td_uri_fini(&uri);
    return is;
}

static bool takes_body(const struct td_request *request)
{
    return is_posted_to(request, is_post_with_body);
}

static bool reads_by_post(const struct td_request *request)
{
    return is_posted_to(request, is_read_by_post);
}

/* Probes and the files of the pages are for everybody; metrics and the contract for callers without credentials, too,
 * where these may have them.
 */
static bool admit_native(struct td_call *call)
{
    struct td_text path = call->uri->path;
    struct td_refusal refusal;
    bool is_probe = td_text_equals(path, "/healthz") || td_text_equals(path, "/readyz") || td_asset_is_path(path);
    bool is_free = (td_text_equals(path, "/metrics") || td_text_equals(path, "/openapi.json") ||
                    td_text_equals(path, "/status")) &&
                   !td_signed_url_is_meant(call->request->target); /* its parameters must be taken off */
    if ((is_free && td_access_is_free(call)) || td_access_admit(call, td_access_by_bearer, &refusal) || is_probe)
        return true;
    td_response_fail(call->response, refusal.status, NULL, "%s", refusal.message);
    td_access_add_challenge(call, &refusal);
    return false;
}

static void answer_native(struct td_call *call)
{
    /* a call of a method of tensord.v1 publishes nothing, whatever its path is like */
    if (call->api->publish != NULL && call->kind == NULL && td_native_publish(call))
        return;
    void (*handle)(const struct td_call *) = route_native(call);
    if (handle != NULL)
        td_call_serve(call, handle);
    td_versions_add_header(call);
    if (call->response->status == 404 && is_of_s3(call))
        fail_s3(call);
    else
        td_call_mend_early(call);
}

const char *td_status_word(int status)
{
    static const struct {
        int status;
        const char *word;
    } words[] = {
        {400, "INVALID_ARGUMENT"},    {401, "UNAUTHENTICATED"},     {403, "PERMISSION_DENIED"},
        {404, "NOT_FOUND"},           {405, "UNIMPLEMENTED"},       {409, "FAILED_PRECONDITION"},
        {411, "INVALID_ARGUMENT"},    {412, "FAILED_PRECONDITION"}, {413, "RESOURCE_EXHAUSTED"},
        {414, "RESOURCE_EXHAUSTED"},  {415, "INVALID_ARGUMENT"},    {416, "OUT_OF_RANGE"},
        {422, "FAILED_PRECONDITION"}, {429, "RESOURCE_EXHAUSTED"},  {431, "RESOURCE_EXHAUSTED"},
        {503, "UNAVAILABLE"},         {507, "RESOURCE_EXHAUSTED"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].status == status)
            return words[i].word;
    return "INTERNAL";
}

/* Writes {"error":{"code","status","message","details"}}. For td_facade.write_error. */
static void write_error(struct td_failure *failure, struct td_buffer *out)
{
    struct td_document json;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_begin_object(&json, "error");
    td_document_add_u64(&json, "code", (uint64_t)failure->status);
    td_document_add_string(&json, "status", td_status_word(failure->status));
    td_document_add_string(&json, "message", failure->message);
    td_document_add_raw(&json, "details", td_text_of(failure->details == NULL ? "{}" : failure->details));
    td_document_end(&json);
    td_document_end(&json);
    td_buffer_putc(out, '\n');
}

const struct td_facade td_native_facade = {
    .owns = owns_native_path,
    .takes_body = takes_body,
    .reads_by_post = reads_by_post,
    .takes_upload = td_native_takes_upload,
    .begin_upload = td_native_begin_upload,
    .is_text = is_text,
    .is_probe = is_probe,
    .admit = admit_native,
    .answer = answer_native,
    .write_error = write_error,
    .write_error_page = td_html_write_error,
    .error_type = "application/json",
    .query = TD_URI_STRICT,
    .etag_end = "",
    /* By hand and not by core/message/document.h: constants, sent without any allocation. */
    .busy = "{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"all connections are in use "
            "(--max-connections); try again\",\"details\":{}}}\n",
    .crowded = "{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"this address has too "
               "many connections (--max-connections-per-address)\",\"details\":{}}}\n",
    .not_tls = "{\"error\":{\"code\":400,\"status\":\"INVALID_ARGUMENT\",\"message\":\"this port speaks HTTPS: use "
               "https:// in the URL\",\"details\":{}}}\n",
    .is_tls = "{\"error\":{\"code\":400,\"status\":\"INVALID_ARGUMENT\",\"message\":\"this port speaks plain HTTP: use "
              "http:// in the URL, or serve with --tls-cert\",\"details\":{}}}\n",
};
