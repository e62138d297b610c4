/* Repositories of the Hub's interface: create, delete, move. */
#include "api/hub/hub_writers.h"
#include "catalog/publish/publish.h"
#include "core/log.h"

#include <string.h>

/* Sets the kind of the repository by the member "type". Returns false after it answered 400. */
static bool read_type(struct td_hub_write *write, struct td_hub_body *body)
{
    const char *type = td_hub_write_string(write, body, body->root, "type", "model");
    if (type == NULL)
        return false;
    write->hub.as_dataset = strcmp(type, "dataset") == 0;
    return write->hub.as_dataset || strcmp(type, "model") == 0 ||
           td_hub_fail(&write->hub, 400, NULL, "this server has models and datasets, and no %.40ss", type);
}

/* Reads {"name", "organization"?, "type"?}, the body of create and delete, and checks who asks. */
static bool read_repo(struct td_hub_write *write, struct td_hub_body *body)
{
    struct td_buffer id;
    if (!td_hub_write_read(write, body) || !read_type(write, body))
        return false;
    const char *name = td_hub_write_string(write, body, body->root, "name", "");
    const char *organization = name == NULL ? NULL : td_hub_write_string(write, body, body->root, "organization", "");
    if (organization == NULL)
        return false;
    td_buffer_init(&id);
    td_buffer_printf(&id, "%s%s%s", organization, organization[0] == '\0' ? "" : "/", name);
    const char *copy = id.failed ? NULL : td_hub_write_copy(write, td_buffer_text(&id));
    td_buffer_fini(&id);
    if (copy == NULL)
        return td_call_no_memory(write->hub.call);
    write->hub.id = td_text_of(copy);
    return td_hub_write_begin(write);
}

/* Answers with the repository's URL; error: what is wrong, with status 409, or NULL. Clients read the URL in both
 * cases. */
static void answer_url(struct td_hub_write *write, const char *error)
{
    struct td_buffer url, json;
    struct td_document builder;
    struct td_text id = write->hub.id;
    td_buffer_init(&url);
    td_buffer_init(&json);
    td_hub_write_url(write, &url);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    if (error != NULL)
        td_document_add_string(&builder, "error", error);
    td_document_add_text(&builder, "url", td_buffer_text(&url));
    td_document_add_text(&builder, "name", id);
    td_document_end(&builder);
    json.failed = json.failed || url.failed;
    td_buffer_fini(&url);
    td_hub_write_answer(write, &json);
    if (error != NULL && write->hub.call->response->status == 200)
        write->hub.call->response->status = 409;
}

void td_hub_create_repo(struct td_hub_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    struct td_hub_body body;
    const struct td_call *call = write->hub.call;
    if (!read_repo(write, &body))
        return;
    bool ok = td_publish_repo_look(&call->api->publish->disk, &write->name, &repo, &err);
    bool exists = repo.fd >= 0;
    td_publish_repo_look_end(&repo);
    if (ok && !exists && td_publish_repo_open(&call->api->publish->disk, &write->name, true, &repo, &err))
        td_publish_repo_close(&repo);
    if (exists)
        answer_url(write, "You already created this repository");
    else if (err.code == TD_CONFLICT)
        answer_url(write, err.message);
    else if (err.code != TD_OK)
        td_publishing_fail(call, &err, 500);
    else
        answer_url(write, NULL);
}

void td_hub_delete_repo(struct td_hub_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_hub_body body;
    const struct td_call *call = write->hub.call;
    if (!read_repo(write, &body))
        return;
    if (td_publishing_remove(call, &write->name, &err))
        td_hub_write_answer_text(write, "{}");
    else if (err.code == TD_NOT_FOUND)
        (void)td_hub_fail(&write->hub, 404, "RepoNotFound", "%s", err.message);
    else if (err.code != TD_OK)
        td_publishing_fail(call, &err, 500);
}

/* Reads the id in the member `name` of the body, and checks who asks. */
static bool read_id(struct td_hub_write *write, struct td_hub_body *body, const char *name)
{
    const char *id = td_hub_write_string(write, body, body->root, name, "");
    if (id == NULL)
        return false;
    write->hub.id = td_text_of(id);
    return td_hub_write_begin(write);
}

static bool note_ref(void *context, const char *name, const char *commit)
{
    const struct td_hub_write *write = context;
    (void)name;
    td_catalog_note_commit(write->hub.call->api->catalog, write->name.path, commit);
    return true;
}

/* Notes for the next scan that the commits of a repository, which has moved, are whole. */
static void note_commits(struct td_hub_write *write)
{
    struct td_publish_repo repo;
    if (!td_publish_repo_open(&write->hub.call->api->publish->disk, &write->name, false, &repo, NULL))
        return;
    if (repo.fd >= 0 && !repo.is_new)
        (void)td_publish_each_ref(&repo, note_ref, write);
    td_publish_repo_close(&repo);
}

void td_hub_move_repo(struct td_hub_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_hub_body body;
    const struct td_call *call = write->hub.call;
    if (!td_hub_write_read(write, &body) || !read_type(write, &body) || !read_id(write, &body, "toRepo"))
        return;
    const struct td_publish_name to = write->name;
    if (!read_id(write, &body, "fromRepo"))
        return;
    if (!td_publish_move(call->api->publish, &write->name, &to, &err)) {
        if (err.code == TD_NOT_FOUND)
            (void)td_hub_fail(&write->hub, 404, "RepoNotFound", "%s", err.message);
        else
            td_publishing_fail(call, &err, 500);
        return;
    }
    td_log(TD_LOG_INFO, "publish: moved token=%s model=\"%s\" to=\"%s\"",
           call->response->token[0] == '\0' ? "-" : call->response->token, write->name.path, to.path);
    const struct td_publish_name from = write->name;
    write->name = to;
    note_commits(write);
    bool is_shown = td_publishing_show(call, "it was moved");
    td_publishing_forget(call, &from);
    if (is_shown)
        td_hub_write_answer_text(write, "{}");
}

/* Accepts settings that change nothing: tokens decide who sees a repository, not `private` and `visibility`. */
void td_hub_set_settings(struct td_hub_write *write)
{
    struct td_hub_body body;
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const cJSON *gated = cJSON_GetObjectItemCaseSensitive(body.root, "gated");
    if (gated != NULL && !cJSON_IsNull(gated) && !cJSON_IsFalse(gated)) {
        (void)td_hub_fail(&write->hub, 400, NULL,
                          "no repository of this server is gated; its operator gives tokens for what each may read");
        return;
    }
    if (td_hub_write_has_repo(write))
        td_hub_write_answer_text(write, "{}");
}

void td_hub_refuse_discussion(struct td_hub_write *write)
{
    if (td_hub_write_begin(write))
        (void)td_hub_fail(&write->hub, 400, NULL,
                          "this server has neither discussions nor pull requests; commit to a branch");
}
