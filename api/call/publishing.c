#include "api/call/publishing.h"

#include "api/call/access.h"
#include "core/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns what patterns of tokens are matched with: the id of a model, "datasets/ID" for a dataset. */
static struct td_text seen_id(struct td_text id, bool is_dataset, struct td_buffer *spelled)
{
    if (!is_dataset)
        return id;
    td_buffer_puts(spelled, "datasets/");
    td_buffer_append(spelled, id.p, id.len);
    return td_buffer_text(spelled);
}

/* Checks the id, and sets *name. Returns false after it answered. */
static bool read_name(const struct td_call *call, struct td_text id, bool is_dataset, struct td_publish_name *name)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_append(&text, id.p, id.len);
    const char *string = td_buffer_terminate(&text);
    bool ok = string != NULL ? td_publish_name(string, is_dataset, name, &err) : td_error_no_memory(&err);
    td_buffer_fini(&text);
    if (!ok)
        td_response_fail_error(call->response, &err);
    return ok;
}

bool td_publishing_begin(const struct td_call *call, struct td_text id, bool is_dataset, struct td_publish_name *name)
{
    struct td_buffer spelled;
    td_buffer_init(&spelled);
    struct td_text seen = seen_id(id, is_dataset, &spelled);
    bool ok = spelled.failed ? td_call_no_memory(call) : td_access_may_publish(call, seen);
    td_buffer_fini(&spelled);
    return ok && read_name(call, id, is_dataset, name);
}

bool td_publishing_refuse_absent(const struct td_call *call, struct td_text id)
{
    td_response_fail(call->response, 404, NULL, "nothing was published as \"%.*s\"", TD_SHOW(id, 400));
    return false;
}

/* Returns whether a token's patterns and rights allow it; a caller without a token may. */
static bool token_allows(const struct td_call *call, struct td_text id, bool is_dataset,
                         bool (*allows)(const struct td_token *token, struct td_text id))
{
    struct td_buffer spelled;
    if (call->caller.token == NULL)
        return call->caller.kind != TD_CALLER_NOBODY;
    td_buffer_init(&spelled);
    struct td_text seen = seen_id(id, is_dataset, &spelled);
    bool ok = !spelled.failed && allows(call->caller.token, seen);
    td_buffer_fini(&spelled);
    return ok;
}

bool td_publishing_may_see(const struct td_call *call, struct td_text id, bool is_dataset)
{
    return token_allows(call, id, is_dataset, td_token_may_see);
}

bool td_publishing_may_write(const struct td_call *call, struct td_text id, bool is_dataset)
{
    return token_allows(call, id, is_dataset, td_token_may_write);
}

bool td_publishing_look(const struct td_call *call, struct td_text id, bool is_dataset, struct td_publish_name *name)
{
    return td_publishing_may_see(call, id, is_dataset) ? read_name(call, id, is_dataset, name)
                                                       : td_publishing_refuse_absent(call, id);
}

void td_publishing_fail(const struct td_call *call, const struct td_error *err, int precondition)
{
    bool is_full = err->sys == ENOSPC || err->sys == EDQUOT || err->sys == EFBIG;
    int status = 0;
    if (err->code == TD_RESOURCE_EXHAUSTED && is_full)
        status = 507;
    else if (err->code == TD_PERMISSION_DENIED)
        status = 500;
    else if (err->code == TD_FAILED_PRECONDITION)
        status = precondition;
    if (status == 0)
        td_response_fail_error(call->response, err);
    else
        td_response_fail(call->response, status, NULL, "%s", err->message);
    if (call->response->status >= 500)
        td_log(TD_LOG_WARN, "publish: %s", err->message);
    if (call->response->status == 507)
        td_publish_note_failure(call->api->publish, TD_PUBLISH_FAILED_ROOM);
    else if (call->response->status == 500)
        td_publish_note_failure(call->api->publish, TD_PUBLISH_FAILED_OTHER);
}

/* Advice for a client whose change is not shown yet. Only a commit can be sent again: a second removal or move would be
 * an error. */
static const char send_again[] = "send the same request again to wait";
static const char comes_later[] = "a later scan shows it, without another request";

/* Waits until the catalog shows what was changed. Errors: TD_UNAVAILABLE, with the advice. */
static bool show(const struct td_call *call, const char *what, const char *advice, struct td_error *err)
{
    static const _Atomic bool never = false;
    struct td_error why = TD_ERROR_INIT;
    if (td_catalog_show(call->api->catalog, &never, &why))
        return true;
    td_publish_note_failure(call->api->publish, TD_PUBLISH_FAILED_LATE);
    return td_error_set(err, TD_UNAVAILABLE, "%s, and is not shown yet: %s; %s", what, why.message, advice);
}

bool td_publishing_show(const struct td_call *call, const char *what)
{
    struct td_error err = TD_ERROR_INIT;
    if (show(call, what, comes_later, &err))
        return true;
    td_publishing_fail(call, &err, 500);
    return false;
}

/* ---- commits ------------------------------------------------------------------------------------------- */

/* The commit that is being made, for on_snapshot. */
struct publishing {
    struct td_catalog *catalog;
    const char *folder;
};

static void note_commit(void *context, const char *commit)
{
    const struct publishing *publishing = context;
    td_catalog_note_commit(publishing->catalog, publishing->folder, commit);
}

/* Writes who has published what. Texts cannot forge a line: ids have no quotes that matter, and td_log escapes. */
static void log_commit(const struct td_call *call, const struct td_publish_name *name,
                       const struct td_commit_order *order, const struct td_commit_result *result)
{
    td_log(TD_LOG_INFO,
           "publish: commit=%s parent=%s token=%s files=%" PRIu64 " bytes=%" PRIu64 " revision=\"%s\" model=\"%s\"",
           result->commit, result->parent[0] == '\0' ? "-" : result->parent,
           call->response->token[0] == '\0' ? "-" : call->response->token, result->file_count, result->file_bytes,
           order->revision, name->path);
}

bool td_publishing_try(const struct td_call *call, struct td_publish_repo *repo, struct td_commit_order *order,
                       struct td_commit_result *result, struct td_error *err)
{
    const struct td_publish_name name = repo->name;
    struct publishing publishing = {.catalog = call->api->catalog, .folder = name.path};
    order->token = call->response->token;
    order->on_snapshot = note_commit;
    order->context = &publishing;
    order->max_files = td_catalog_max_files(call->api->catalog, name.path, &order->other_files);
    bool ok = td_publish_commit(repo, order, result, err);
    td_publish_repo_close(repo);
    if (!ok || order->is_dry_run)
        return ok;
    if (result->verdict == TD_COMMIT_MOVED) {
        log_commit(call, &name, order, result);
        td_publish_note_commit(call->api->publish);
        td_publish_tidier_note(call->api->publish_tidier, &name);
    }
    bool is_made = result->verdict == TD_COMMIT_MOVED || result->verdict == TD_COMMIT_UNCHANGED;
    return !is_made || show(call, "the commit was made", send_again, err);
}

bool td_publishing_commit(const struct td_call *call, struct td_publish_repo *repo, struct td_commit_order *order,
                          struct td_commit_result *result)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_publishing_try(call, repo, order, result, &err))
        return true;
    td_publishing_fail(call, &err, result->is_too_large ? 413 : 409);
    return false;
}

void td_publishing_forget(const struct td_call *call, const struct td_publish_name *name)
{
    struct td_removed *removed = td_catalog_removed(call->api->catalog);
    if (removed != NULL)
        td_removed_forget(removed, td_text_of(name->path));
}

/* Logs that a repository was removed, and waits until no face shows it. */
static bool show_removed(const struct td_call *call, const struct td_publish_name *name, struct td_error *err)
{
    td_log(TD_LOG_INFO, "publish: removed token=%s model=\"%s\"",
           call->response->token[0] == '\0' ? "-" : call->response->token, name->path);
    bool is_shown = show(call, "it was removed", comes_later, err);
    td_publishing_forget(call, name);
    return is_shown;
}

bool td_publishing_remove(const struct td_call *call, const struct td_publish_name *name, struct td_error *err)
{
    return td_publish_remove(call->api->publish, name, err) && show_removed(call, name, err);
}

bool td_publishing_remove_if(const struct td_call *call, const struct td_publish_name *name,
                             bool (*may)(void *context, const struct td_publish_repo *repo), void *context,
                             bool *is_removed, struct td_error *err)
{
    return td_publish_remove_if(call->api->publish, name, may, context, is_removed, err) &&
           (!*is_removed || show_removed(call, name, err));
}

bool td_publishing_remove_empty(const struct td_call *call, const struct td_publish_name *name, struct td_error *err)
{
    bool is_removed;
    return td_publish_remove_empty(call->api->publish, name, &is_removed, err) &&
           (!is_removed || show_removed(call, name, err));
}
