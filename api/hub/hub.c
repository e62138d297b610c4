#include "api/hub/hub.h"

#include "api/call/access.h"
#include "api/call/find_name.h"
#include "api/call/incoming_call.h"
#include "api/html/error_page.h"
#include "api/html/folder_page.h"
#include "api/hub/hub_empty.h"
#include "api/hub/hub_handlers.h"
#include "api/hub/hub_item.h"
#include "api/hub/hub_publish.h"

#include "catalog/names/family.h"
#include "core/clock.h"
#include "core/message/document.h"

/* ---- files --------------------------------------------------------------------------------------------- */

/* Answers {id}/resolve/{revision}/{path}/ with the page of a folder, if the revision shows the files on disk. Returns
 * false, and answers nothing, when there is no such page. */
static bool answer_folder(struct td_hub_call *hub, struct td_text path)
{
    const struct td_repo_view *view = &hub->view;
    struct td_html_files files = {.name = hub->id};
    struct td_buffer base;
    struct td_error err = TD_ERROR_INIT;
    if (!hub->path.is_folder || view->kind != TD_REVISION_FILES)
        return false;
    td_buffer_init(&base);
    td_buffer_puts(&base, hub->as_dataset ? "/datasets/" : "/");
    td_uri_encode(&base, hub->id, true);
    td_buffer_puts(&base, "/resolve/");
    td_uri_encode(&base, hub->revision, false);
    td_buffer_putc(&base, '/');
    files.base = td_buffer_text(&base);
    files.first_entry = view->first_entry;
    files.entry_count = view->entry_count;
    files.prefix_len = view->prefix_len;
    bool ok = base.failed ? td_error_no_memory(&err) : td_html_files_page(hub->call, &files, path, &err);
    td_buffer_fini(&base);
    if (ok)
        td_response_add_header(hub->call->response, "X-Repo-Commit", "%s", view->commit);
    else if (err.code != TD_NOT_FOUND)
        (void)td_hub_fail_error(hub, &err);
    return ok || err.code != TD_NOT_FOUND;
}

/* Answers {id}/resolve/{revision}/{path} and {id}/raw/... */
static void answer_file(struct td_hub_call *hub, struct td_text path)
{
    const struct td_call *call = hub->call;
    struct td_repo_item item;
    struct td_error err = TD_ERROR_INIT;
    if (!td_repo_view_find(&hub->view, path, &hub->arena, &item, &err)) {
        if (err.code == TD_NOT_FOUND && answer_folder(hub, path))
            return;
        (void)(err.code == TD_NOT_FOUND ? td_hub_no_file(hub, "file", path) : td_hub_fail_error(hub, &err));
        return;
    }
    const struct td_digest_wait how = {.until_ns = td_clock_ns() + TD_HUB_WAIT_NS, .cancel = call->request->cancel};
    if (item.entry != NULL && td_text_equals(call->request->method, "HEAD"))
        (void)td_catalog_wait_digest(call->api->catalog, call->snapshot, item.entry->file, &how);
    if (!td_repo_item_answer(&call->api->ranks, &hub->view, &item, call->response, &err)) {
        (void)td_hub_fail_error(hub, &err);
        return;
    }
    if (td_text_equals(hub->revision, hub->view.commit)) /* a commit never changes; a ref may, whatever its name */
        td_call_make_immutable(call);
    td_response_add_header(call->response, "X-Repo-Commit", "%s", hub->view.commit);
}

/* The verb that clients POST. */
#define PATHS_INFO "paths-info"

/* ---- paths --------------------------------------------------------------------------------------------- */

static bool is_segment(const struct td_hub_path *path, size_t i, const char *word)
{
    return i < path->count && td_text_equals(path->segments[i], word);
}

/* Returns the number of the segment "resolve" or "raw" that follows an id of one or two segments, or 0. */
static size_t file_verb(const struct td_hub_path *path, bool *as_dataset)
{
    size_t behind = path->is_folder ? 1 : 2; /* the segments that follow: a revision and a file's path */
    *as_dataset = is_segment(path, 0, "datasets");
    for (size_t skip = *as_dataset ? 1 : 0; skip < 2; skip--) { /* 1 and 0, or 0 alone */
        for (size_t n = 2; n > 0; n--) {
            size_t at = skip + n;
            if (at + behind < path->count && (is_segment(path, at, "resolve") || is_segment(path, at, "raw"))) {
                *as_dataset = skip == 1;
                return at;
            }
        }
    }
    return 0;
}

/* Returns whether the path is one below /api/. A repository whose namespace is "api" has its files there, too. */
static bool is_api(const struct td_hub_path *path)
{
    bool as_dataset;
    return is_segment(path, 0, "api") &&
           (is_segment(path, 1, "models") || is_segment(path, 1, "datasets") || file_verb(path, &as_dataset) == 0);
}

static bool owns_hub_path(struct td_text raw_path)
{
    struct td_hub_path path;
    bool as_dataset;
    td_hub_path_split(&path, raw_path); /* splitting cannot fail; the facade of the request depends on it */
    return (is_segment(&path, 0, "api") && path.count > 1) || file_verb(&path, &as_dataset) > 0 || td_hub_is_lfs(&path);
}

static bool is_text(struct td_text raw_path)
{
    struct td_hub_path path;
    td_hub_path_split(&path, raw_path);
    return is_api(&path);
}

/* Returns whether clients POST to the path. */
static bool is_post(const struct td_hub_path *path)
{
    bool is = false;
    if (is_api(path))
        for (size_t i = 3; i <= 4; i++) /* a revision follows, since a repository may have this name */
            is = is || (is_segment(path, i, PATHS_INFO) && i + 1 < path->count);
    return is;
}

static bool no_repository(struct td_hub_call *hub)
{
    static const char *const kinds[] = {"model", "dataset"};
    const char *other = kinds[hub->as_dataset ? 0 : 1];
    bool is_other = td_repo_find(hub->call->snapshot, !hub->as_dataset, hub->id) != NULL;
    char advice[TD_NAME_ADVICE_BYTES];
    td_name_advise_repo(hub->call->snapshot, hub->as_dataset, hub->id, advice);
    return td_hub_fail(hub, 404, "RepoNotFound", "no %s \"%.*s\"; %s%s%s%sGET /api/%ss lists what there is",
                       kinds[hub->as_dataset ? 1 : 0], TD_SHOW(hub->id, 200), advice, is_other ? "there is a " : "",
                       is_other ? other : "", is_other ? " of that id; " : "", kinds[hub->as_dataset ? 1 : 0]);
}

/* Finds the repository that the segments [first, first + n) name. */
static bool find_repo(struct td_hub_call *hub, size_t first, size_t n)
{
    hub->id = td_hub_path_join(&hub->path, first, first + n);
    hub->repo = td_repo_find(hub->call->snapshot, hub->as_dataset, hub->id);
    if (hub->repo != NULL && !hub->as_dataset) {
        td_incoming_call_note_read(hub->call, td_text_of(hub->repo->id));
        td_response_note_subject(hub->call->response, td_text_of(hub->repo->id));
    }
    return hub->repo != NULL;
}

/* Continues the call in a snapshot that has come from the upstream, if `look` says so. Returns false after it answered.
 */
static bool take_incoming(struct td_hub_call *hub, enum td_incoming_look look, struct td_snapshot *snapshot,
                          struct td_text id)
{
    if (look == TD_INCOMING_AGAIN) {
        td_snapshot_unref(hub->incoming);
        hub->incoming = snapshot;
        hub->own->snapshot = snapshot;
        hub->repo = td_repo_find(snapshot, false, id);
    }
    return look != TD_INCOMING_ANSWERED;
}

/* Asks the upstream for the model, and continues the call in its snapshot. Returns false after it answered. */
static bool find_main(struct td_hub_call *hub, struct td_text id)
{
    struct td_snapshot *snapshot = NULL;
    enum td_incoming_look look = td_incoming_call_look(hub->call, id, &snapshot);
    return take_incoming(hub, look, snapshot, id);
}

/* Returns whether the text leads to the version as a revision does: a number does not. */
static bool is_revision(const struct td_version *version, struct td_text text)
{
    bool is = td_text_equals(text, version->name) || td_text_equals(text, TD_VERSION_LATEST) ||
              (version->commit != NULL && td_text_equals(text, version->commit));
    for (size_t i = 0; i < version->ref_count; i++)
        is = is || td_text_equals(text, version->refs[i]);
    return is;
}

/* Looks for the upstream's version that the revision stands for, and continues the call in a snapshot that has it; sets
 * hub->version if it is one. Returns false after it answered. */
static bool find_version(struct td_hub_call *hub, struct td_text id, struct td_text revision)
{
    struct td_upstream_reply reply;
    struct td_snapshot *snapshot = NULL;
    const struct td_version *version = NULL;
    if (!td_incoming_call_list_versions(hub->own, id, &reply)) {
        if (reply.answer != TD_UPSTREAM_HAS_NOT)
            td_incoming_call_fail_ask(hub->call, &reply);
        return reply.answer == TD_UPSTREAM_HAS_NOT;
    }
    if (td_family_find_version(&hub->own->remote_family->family, revision, &version) != TD_VERSION_FOUND ||
        !is_revision(version, revision))
        return true;
    enum td_incoming_look look = td_incoming_call_look_version(hub->call, version, &snapshot);
    if (!take_incoming(hub, look, snapshot, id))
        return false;
    if (hub->repo == NULL)
        hub->repo = td_repo_find(hub->call->snapshot, false, id);
    hub->version = td_text_of(version->name);
    return true;
}

/* Looks at the upstream for what the call's snapshot lacks: the repository with the id of the segments [first, first +
 * n), or its revision, at segment `at`. Returns whether there is a repository; answers the request otherwise, also when
 * the repository has no commit. */
static bool find_at_upstream(struct td_hub_call *hub, size_t first, size_t n, size_t at)
{
    const struct td_text latest = TD_TEXT(TD_VERSION_LATEST);
    hub->id = td_hub_path_join(&hub->path, first, first + n);
    struct td_text id = hub->id;
    struct td_text revision = at < hub->path.count ? td_hub_path_join(&hub->path, at, at + 1) : TD_TEXT("main");
    struct td_virtual_revision virtual;
    struct td_error err = TD_ERROR_INIT;
    bool has_main_name = td_text_equals(revision, "main") || td_text_equals(revision, "HEAD");
    bool is_virtual = td_virtual_revision_read_name(revision, &virtual, &err) || err.code != TD_OK;
    bool is_main = has_main_name || is_virtual; /* virtual revisions are made of main */
    bool is_latest = td_text_equals(revision, TD_VERSION_LATEST);
    bool can_ask = !hub->as_dataset && hub->call->api->upstream != NULL;
    if (td_text_begins(id, TD_TEXT(TD_REPO_DEFAULT_NAMESPACE "/")))
        id = td_text_skip(id, sizeof TD_REPO_DEFAULT_NAMESPACE);
    bool is_here = hub->repo != NULL && !is_latest && (!is_main || !hub->repo->is_added) &&
                   (is_main || td_repo_at(hub->repo, revision) != NULL);
    if (can_ask && !is_here && !is_main && !find_version(hub, id, revision))
        return false;
    bool lacks_main = hub->repo == NULL || (hub->repo->is_added && !is_here && hub->version.len == 0);
    if (can_ask && lacks_main && !find_main(hub, id))
        return false;
    if (can_ask && has_main_name && (hub->repo == NULL || hub->repo->is_added) && !find_version(hub, id, latest))
        return false;
    return hub->repo != NULL || (!td_hub_empty_answer(hub, first + n) && no_repository(hub));
}

/* Returns whether all files of the repository are published. Else answers 503. */
static bool is_whole(const struct td_hub_call *hub)
{
    char reason[TD_EARLY_REASON_BYTES];
    return !td_call_lacks_files(hub->call, td_text_of(hub->repo->folder), reason) ||
           td_hub_fail(hub, 503, NULL, "%s", reason);
}

/* Returns whether the view can be answered: of a model on its way that has checkpoints, only its files are here. Else
 * answers. */
static bool has_content(struct td_hub_call *hub)
{
    struct td_virtual_revision virtual;
    struct td_error err = TD_ERROR_INIT;
    if (hub->incoming == NULL || !td_incoming_call_is_of(hub->incoming) || !hub->repo->has_checkpoint ||
        !td_virtual_revision_read_name(hub->revision, &virtual, &err))
        return true;
    if (!td_incoming_call_waits(hub->call, td_text_of(hub->repo->id)))
        td_incoming_call_fail(hub->call, td_text_of(hub->repo->id), TD_INCOMING_HAS_FILES);
    return false;
}

/* Takes the revision at segment `at`: one segment if it was quoted, else as many as name a revision (refs/pr/1). The
 * path after the revision begins at segment *rest. */
static bool take_revision(struct td_hub_call *hub, size_t at, size_t *rest)
{
    enum { MOST = 4 };
    struct td_error err = TD_ERROR_INIT;
    if (hub->version.len > 0) {
        hub->revision = hub->version;
        *rest = at + 1;
        return td_hub_try_view(hub, &err) || td_hub_fail_view(hub, &err);
    }
    for (size_t n = 1; n <= MOST && at + n <= hub->path.count; n++) {
        hub->revision = td_hub_path_join(&hub->path, at, at + n);
        *rest = at + n;
        if (!has_content(hub))
            return false;
        if (td_hub_try_view(hub, &err))
            return true;
        if (err.code != TD_NOT_FOUND)
            return td_hub_fail_view(hub, &err);
    }
    hub->revision = td_hub_path_join(&hub->path, at, at + 1);
    return td_hub_fail_view(hub, &err);
}

static void answer_file_path(struct td_hub_call *hub)
{
    size_t verb = file_verb(&hub->path, &hub->as_dataset);
    size_t first = hub->as_dataset ? 1 : 0;
    size_t rest = 0;
    (void)find_repo(hub, first, verb - first);
    if (find_at_upstream(hub, first, verb - first, verb + 1) && is_whole(hub) && take_revision(hub, verb + 1, &rest))
        answer_file(hub, td_hub_path_join(&hub->path, rest, hub->path.count));
}

static void answer_auth_check(struct td_hub_call *hub)
{
    struct td_buffer json;
    if (hub->below.len > 0) {
        (void)td_hub_fail(hub, 403, NULL, "this server only reads");
        return;
    }
    td_buffer_init(&json);
    td_buffer_puts(&json, "{}\n");
    td_hub_answer_json(hub, &json);
    td_buffer_fini(&json);
}

/* The verbs of a repository's paths. `below` is the path that may follow a verb: "" allows any path, NULL allows none.
 */
static const struct verb {
    const char *word;
    bool has_revision; /* a revision follows the verb */
    const char *below;
    void (*answer)(struct td_hub_call *hub);
} verbs[] = {
    {"revision", true, NULL, td_hub_answer_info},       {"tree", true, "", td_hub_answer_tree},
    {PATHS_INFO, true, NULL, td_hub_answer_paths_info}, {"commits", true, NULL, td_hub_answer_commits},
    {"refs", false, NULL, td_hub_answer_refs},          {"auth-check", false, "write", answer_auth_check},
};

/* Returns the verb at segment i, or NULL. */
static const struct verb *find_verb(const struct td_hub_path *path, size_t i)
{
    for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++)
        if (is_segment(path, i, verbs[v].word))
            return &verbs[v];
    return NULL;
}

/* Answers a request about a repository: calls the verb at segment `at`, or answers the description if no verb follows.
 */
static void answer_verb(struct td_hub_call *hub, size_t at)
{
    const struct td_hub_path *path = &hub->path;
    const struct verb *verb = find_verb(path, at);
    size_t rest = at + 1;
    hub->revision = hub->version.len > 0 ? hub->version : TD_TEXT("main");
    if (!is_whole(hub))
        return;
    if (at >= path->count) {
        td_hub_answer_info(hub);
        return;
    }
    bool whole = verb != NULL && (!verb->has_revision || at + 1 < path->count);
    if (whole && verb->has_revision && !take_revision(hub, at + 1, &rest))
        return;
    hub->below = td_hub_path_join(path, rest, path->count);
    bool fits = whole && (hub->below.len == 0 ||
                          (verb->below != NULL && (verb->below[0] == '\0' || td_text_equals(hub->below, verb->below))));
    if (fits) {
        verb->answer(hub);
        return;
    }
    char advice[TD_NAME_ADVICE_BYTES] = "";
    size_t end = at;
    while (end < path->count && find_verb(path, end) == NULL)
        end++;
    if (verb == NULL)
        td_name_advise_repo(hub->call->snapshot, hub->as_dataset, td_hub_path_join(path, 2, end), advice);
    (void)td_hub_fail(hub, 404, NULL,
                      "nothing at this path; %sa repository has revision, tree, paths-info, refs, commits and "
                      "auth-check",
                      advice);
}

/* Answers who asks: clients show the names. By hand: a token's name needs no escapes. */
static void answer_whoami(struct td_hub_call *hub)
{
    const struct td_caller *caller = &hub->call->caller;
    const char *name = caller->kind == TD_CALLER_TOKEN ? caller->token->name : NULL;
    struct td_buffer json;
    td_buffer_init(&json);
    td_buffer_printf(&json,
                     "{\"type\":\"user\",\"id\":\"tensord\",\"name\":\"%s\",\"fullname\":\"%s\",\"email\":null,"
                     "\"isPro\":false,\"orgs\":[],\"auth\":{\"type\":\"access_token\",\"accessToken\":"
                     "{\"displayName\":\"%s\",\"role\":\"read\"}}}\n",
                     name == NULL ? TD_REPO_DEFAULT_NAMESPACE : name, name == NULL ? "tensord" : name,
                     name == NULL ? "any" : name);
    td_hub_answer_json(hub, &json);
    td_buffer_fini(&json);
}

/* Answers a path below /api/. */
static void answer_api(struct td_hub_call *hub)
{
    const struct td_hub_path *path = &hub->path;
    hub->as_dataset = is_segment(path, 1, "datasets");
    if (is_segment(path, 1, "whoami-v2") && path->count == 2) {
        answer_whoami(hub);
    } else if (!hub->as_dataset && !is_segment(path, 1, "models")) {
        (void)td_hub_fail(hub, 404, NULL,
                          "nothing at this path; the paths are /api/models, /api/datasets and /api/whoami-v2");
    } else if (path->count == 2) {
        td_hub_answer_list(hub);
    } else {
        bool can_be_one = path->count == 3 || find_verb(path, 3) != NULL; /* else there is no such name */
        size_t n = (path->count > 3 && find_repo(hub, 2, 2)) || !can_be_one ? 2 : 1;
        if (n == 1)
            (void)find_repo(hub, 2, 1);
        const struct verb *verb = find_verb(path, 2 + n);
        size_t at = verb != NULL && verb->has_revision ? 3 + n : path->count;
        if (find_at_upstream(hub, 2, n, at))
            answer_verb(hub, 2 + n);
    }
}

static void handle_hub(const struct td_call *call)
{
    struct td_call own = *call;
    struct td_hub_call hub = {.call = &own,
                              .own = &own,
                              .reserved = {.budget = td_shared_budget_of(&call->api->lists, call->request->client)}};
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&hub.arena, 0); /* no limit: a view's items are in proportion to the repository */
    if (!td_hub_path_parse(&hub.path, call->uri->raw_path, &err))
        (void)td_hub_fail_error(&hub, &err);
    else if (is_api(&hub.path))
        answer_api(&hub);
    else
        answer_file_path(&hub);
    td_hub_path_fini(&hub.path);
    td_snapshot_unref(hub.incoming);
    td_remote_family_unref(own.remote_family);
    td_arena_fini(&hub.arena);
    td_reserved_release(&hub.reserved);
}

static bool takes_body(const struct td_request *request)
{
    struct td_hub_path path;
    td_hub_path_split(&path, td_uri_raw_path(request->target));
    return td_text_equals(request->method, "POST") && is_post(&path);
}

static bool takes_upload(const struct td_request *request)
{
    struct td_hub_path path;
    td_hub_path_split(&path, td_uri_raw_path(request->target));
    return td_hub_publish_takes(request->method, &path);
}

/* Answers what is below {id}.git/info/lfs, unless it was an upload to a server that takes uploads. */
static void refuse_lfs(struct td_call *call)
{
    call->response->route = TD_ROUTE_HUB_API;
    call->is_post = !td_text_equals(call->request->method, "POST");
    td_call_refuse_method(call);
}

static void answer_hub(struct td_call *call)
{
    struct td_hub_path path;
    if (call->api->publish != NULL && td_hub_publish(call))
        return;
    td_hub_path_split(&path, call->uri->raw_path);
    if (td_hub_is_lfs(&path)) {
        refuse_lfs(call);
        return;
    }
    if (!td_call_take_snapshot(call))
        return;
    call->is_post = is_post(&path);
    call->response->route = is_api(&path) ? TD_ROUTE_HUB_API : TD_ROUTE_HUB_FILE;
    td_call_serve(call, handle_hub);
    const struct td_hub_call hub = {.call = call};
    char reason[TD_EARLY_REASON_BYTES];
    if (call->response->status == 404 && td_call_is_early(call, reason))
        (void)td_hub_fail(&hub, 503, NULL, "%s", reason);
}

/* huggingface_hub takes a 401 for a missing repository, unless the message is this one, the Hub's own
 * (hf_raise_for_status in utils/_http.py). The body says more. */
static const char bad_credentials[] = "Invalid credentials in Authorization header";

static bool admit_hub(struct td_call *call)
{
    const struct td_hub_call hub = {.call = call};
    struct td_refusal refusal;
    if (td_access_admit(call, td_access_by_bearer, &refusal) || td_hub_publish_is_free(call))
        return true;
    if (refusal.is_invalid) {
        td_response_fail(call->response, refusal.status, NULL, "%s", refusal.message);
        td_response_add_header(call->response, "X-Error-Message", "%s", bad_credentials);
    } else {
        (void)td_hub_fail(&hub, refusal.status, NULL, "%s", refusal.message);
    }
    td_access_add_challenge(call, &refusal);
    return false;
}

/* Clients of the Hub show the text of `error` to people. */
static void write_error(struct td_failure *failure, struct td_buffer *out)
{
    struct td_document json;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "error", failure->message);
    td_document_end(&json);
    td_buffer_putc(out, '\n');
}

const struct td_facade td_hub_facade = {
    .owns = owns_hub_path,
    .takes_body = takes_body,
    .reads_by_post = takes_body, /* of publishing, all bodies go to sinks */
    .takes_upload = takes_upload,
    .begin_upload = td_hub_publish_begin,
    .is_text = is_text,
    .admit = admit_hub,
    .answer = answer_hub,
    .write_error = write_error,
    .write_error_page = td_html_write_error,
    .error_type = "application/json",
    .query = TD_URI_REPEATS, /* huggingface_hub repeats ?expand= and ?filter= */
    .etag_end = "",
};
