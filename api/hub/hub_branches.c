/* Branches and tags of the Hub's interface: both are revisions. */
#include "api/hub/hub_writers.h"
#include "catalog/publish/publish_commit.h"

#include <string.h>

/* Answers an empty object when every face shows what was changed. */
static void answer_changed(struct td_hub_write *write)
{
    if (td_publishing_show(write->hub.call, "the revision was changed"))
        td_hub_write_answer_text(write, "{}");
}

/* Answers a failure of td_publish_set_ref and td_publish_delete_ref. */
static void fail(struct td_hub_write *write, const struct td_error *err)
{
    if (err->code == TD_NOT_FOUND)
        (void)td_hub_fail(&write->hub, 404, "RevisionNotFound", "%s", err->message);
    else
        td_publishing_fail(write->hub.call, err, 409);
}

/* Makes the revision `name` of what `target` names. */
static void create(struct td_hub_write *write, const char *name, const char *target)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    char commit[TD_COMMIT_BYTES];
    if (!td_hub_write_open(write, &repo))
        return;
    bool ok = td_publish_set_ref(&repo, name, target, false, &err);
    if (ok && td_publish_resolve(&repo, name, commit))
        td_catalog_note_commit(write->hub.call->api->catalog, write->name.path, commit);
    td_publish_repo_close(&repo);
    if (ok)
        answer_changed(write);
    else
        fail(write, &err);
}

/* Sets *has_main as td_hub_write_has_main. Returns false after it answered. */
static bool look_for_main(struct td_hub_write *write, bool *has_main)
{
    struct td_publish_repo repo;
    if (!td_hub_write_open(write, &repo))
        return false;
    *has_main = td_hub_write_has_main(&repo);
    td_publish_repo_close(&repo);
    return true;
}

void td_hub_create_branch(struct td_hub_write *write)
{
    struct td_hub_body body;
    struct td_error err = TD_ERROR_INIT;
    bool has_main;
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const char *name = td_hub_write_copy(write, write->hub.revision);
    const char *from = name == NULL ? NULL : td_hub_write_string(write, &body, body.root, "startingPoint", "main");
    if (from == NULL)
        return;
    if (!td_commit_check_revision(name, &err)) {
        (void)td_hub_fail_error(&write->hub, &err);
    } else if (look_for_main(write, &has_main) && (has_main || strcmp(from, "main") != 0)) {
        create(write, name, from);
    } else if (write->hub.call->response->status == 200) { /* the first commit to it makes it */
        td_hub_write_answer_text(write, "{}");
    }
}

void td_hub_create_tag(struct td_hub_write *write)
{
    struct td_hub_body body;
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const char *target = td_hub_write_copy(write, write->hub.revision);
    const char *name = target == NULL ? NULL : td_hub_write_string(write, &body, body.root, "tag", "");
    if (name != NULL)
        create(write, name, target);
}

void td_hub_delete_ref(struct td_hub_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    if (!td_hub_write_begin(write))
        return;
    const char *name = td_hub_write_copy(write, write->hub.revision);
    if (name == NULL || !td_hub_write_open(write, &repo))
        return;
    bool ok = td_publish_delete_ref(&repo, name, &err);
    td_publish_repo_close(&repo);
    if (ok)
        answer_changed(write);
    else
        fail(write, &err);
}

void td_hub_squash(struct td_hub_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    struct td_hub_body body;
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const char *branch = td_hub_write_copy(write, write->hub.revision);
    const char *message = branch == NULL ? NULL : td_hub_write_string(write, &body, body.root, "message", "");
    if (message == NULL || !td_hub_write_open(write, &repo))
        return;
    bool ok = td_publish_squash(&repo, branch, message, write->hub.call->response->token, &err);
    td_publish_repo_close(&repo);
    if (ok)
        answer_changed(write);
    else
        fail(write, &err);
}
