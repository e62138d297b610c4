#include "api/native/publish_routes.h"

#include "api/native/publish_handlers.h"
#include "core/waiting.h"
#include "http/uri.h"

#include <stdio.h>

/* A method at a place. */
struct action {
    enum td_publish_place place;
    const char *method;
    enum td_route route;
    struct td_body_sink *(*begin)(struct td_call *call, const struct td_publish_path *path); /* NULL: has no body */
    void (*answer)(struct td_call *call, const struct td_publish_path *path);
};

static const struct action actions[] = {
    {TD_PLACE_BLOB, "PUT", TD_ROUTE_BLOB, td_begin_blob_put, td_end_blob_put},
    {TD_PLACE_BLOB, "GET", TD_ROUTE_BLOB, NULL, td_handle_blob},
    {TD_PLACE_BLOB, "HEAD", TD_ROUTE_BLOB, NULL, td_handle_blob},
    {TD_PLACE_BLOB, "POST", TD_ROUTE_BLOB, td_begin_blob_check, td_end_blob_check},
    {TD_PLACE_BLOBS, "POST", TD_ROUTE_BLOB, td_begin_blob_post, td_end_blob_post},
    {TD_PLACE_COMMITS, "POST", TD_ROUTE_COMMITS, td_begin_commit, td_end_commit},
    {TD_PLACE_COMMITS, "GET", TD_ROUTE_COMMITS, NULL, td_handle_commits},
    {TD_PLACE_COMMITS, "HEAD", TD_ROUTE_COMMITS, NULL, td_handle_commits},
    {TD_PLACE_FILE, "PUT", TD_ROUTE_FILE, td_begin_file_put, td_end_file_put},
    {TD_PLACE_FILE, "DELETE", TD_ROUTE_FILE, NULL, td_handle_file_delete},
    {TD_PLACE_REPO, "DELETE", TD_ROUTE_MODEL, NULL, td_handle_repo_delete},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

static const struct action *find_action(enum td_publish_place place, struct td_text method)
{
    for (size_t i = 0; i < ACTIONS; i++)
        if (actions[i].place == place && td_text_equals(method, actions[i].method))
            return &actions[i];
    return NULL;
}

bool td_native_takes_upload(const struct td_request *request)
{
    struct td_uri uri;
    struct td_publish_path path;
    const struct action *action = NULL;
    if (td_uri_parse(&uri, request->target, TD_URI_STRICT, NULL)) {
        td_publish_path_split(uri.path, &path);
        action = find_action(path.place, request->method);
    }
    td_uri_fini(&uri);
    return action != NULL && action->begin != NULL;
}

/* Answers 405 with the methods of the place, those of reading included. */
static void refuse_method(const struct td_call *call, enum td_publish_place place)
{
    char allow[64];
    bool is_also_read = place == TD_PLACE_FILE || place == TD_PLACE_REPO;
    int len = snprintf(allow, sizeof allow, "%s", is_also_read ? "GET, HEAD" : "");
    for (size_t i = 0; i < ACTIONS; i++)
        if (actions[i].place == place)
            len += snprintf(allow + len, sizeof allow - (size_t)len, "%s%s", len > 0 ? ", " : "", actions[i].method);
    td_response_fail(call->response, 405, NULL, "method %.*s is not allowed here; allowed: %s",
                     TD_SHOW(call->request->method, 32), allow);
    td_response_add_header(call->response, "Allow", "%s", allow);
}

/* Checks that the query has no parameter but `range`, in a PUT of a blob. */
static bool check_parameters(const struct td_call *call, const struct action *action)
{
    static const char *const none[] = {NULL};
    static const char *const of_piece[] = {"range", NULL};
    bool is_piece = action->begin == td_begin_blob_put;
    return td_call_check_parameters(call, is_piece ? of_piece : none);
}

struct td_body_sink *td_native_begin_upload(struct td_call *call)
{
    struct td_publish_path path;
    td_publish_path_split(call->uri->path, &path);
    const struct action *action = find_action(path.place, call->request->method);
    call->response->route = action->route;
    return check_parameters(call, action) ? action->begin(call, &path) : NULL;
}

/* Returns whether the path is one of reading, such as that of a tensor named "commits": what looks like the last part
 * of the id is a word that follows an id. */
static bool is_of_reading(const struct td_publish_path *path)
{
    static const char *const words[] = {"tensors", "files", "plans", "shards"};
    struct td_text id = path->id;
    struct td_text last = td_text_take_last(&id, '/');
    bool is = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is = is || td_text_equals(last, words[i]);
    return is && !path->is_dataset && id.len > 0;
}

bool td_native_publish(struct td_call *call)
{
    struct td_publish_path path;
    struct td_text method = call->request->method;
    bool head = td_text_equals(method, "HEAD");
    bool reads = head || td_text_equals(method, "GET");
    td_publish_path_split(call->uri->path, &path);
    const struct action *action = find_action(path.place, method);
    bool is_read_too = path.place == TD_PLACE_FILE || path.place == TD_PLACE_REPO;
    bool is_of_others = action == NULL && is_read_too && (reads || path.place == TD_PLACE_REPO);
    if (path.place == TD_PLACE_NONE || is_of_others || (reads && is_of_reading(&path)))
        return false;
    if (action == NULL) {
        refuse_method(call, path.place);
        return true;
    }
    call->response->route = action->route;
    call->is_post = !reads;
    if (!td_may_wait(NULL) || !check_parameters(call, action))
        return true;
    action->answer(call, &path);
    if (call->response->wait_until_ns == 0)
        td_call_finish(call, head);
    return true;
}
