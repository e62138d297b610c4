#include "api/hub/hub_handlers.h"

#include "api/call/shown_model.h"
#include "api/hub/hub_about.h"
#include "api/hub/hub_history.h"
#include "api/hub/hub_item.h"
#include "catalog/names/family.h"
#include "core/clock.h"

#include <string.h>

/* ---- one repository ------------------------------------------------------------------------------------ */

/* Adds an element of `siblings`: with blobs also the digests of the file's content. */
static bool add_sibling(struct td_hub_call *hub, const struct td_repo_item *item, bool blobs, uint64_t until_ns,
                        struct td_document *json, struct td_error *err)
{
    struct td_hub_blob blob;
    const char *error = td_hub_error_of(item);
    if (!td_reserved_json_room(&hub->reserved, json, strlen(item->path) + strlen(error), err))
        return false;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "rfilename", item->path);
    if (blobs) {
        if (!td_hub_blob_of(hub, item, until_ns, &blob, err))
            return false;
        td_document_add_u64(json, "size", blob.size_bytes);
        td_document_add_string(json, "blobId", blob.oid);
        td_hub_add_lfs(json, "sha256", &blob);
    }
    td_hub_add_error(json, error);
    td_document_end(json);
    return true;
}

/* Adds the list of files, but not of more than TD_HUB_MOST_SIBLINGS: clients then ask for the tree, which has pages. */
static bool add_siblings(struct td_hub_call *hub, struct td_document *json, struct td_error *err)
{
    struct td_repo_item *items;
    size_t count;
    bool blobs = td_hub_flag(hub, "blobs");
    uint64_t until_ns = td_clock_ns() + TD_HUB_WAIT_NS;
    if (!td_hub_list_items(hub, &items, &count, err))
        return false;
    if (count > TD_HUB_MOST_SIBLINGS)
        return true;
    td_document_begin_array(json, "siblings");
    for (size_t i = 0; i < count; i++)
        if (!add_sibling(hub, &items[i], blobs, until_ns, json, err))
            return false;
    td_document_end(json);
    return true;
}

/* Adds the members of one repository's description that td_hub_begin_repo does not add. */
static bool add_about(struct td_hub_call *hub, struct td_document *json, struct td_error *err)
{
    static const struct td_hub_parts all = {.config = true, .card = true, .safetensors = true, .gguf = true};
    struct td_repo_about about;
    td_repo_about_init(&about, &hub->view, td_repo_is_dataset(hub->repo), hub->repo->error_count);
    return td_hub_about_add(hub, &about, json, err) && td_hub_about_add_parts(hub, &about, &all, json, err);
}

/* Adds X-Tensord-Version where main is only the newest version of a folder of versions, so that a server that pulls
 * does not take it for the folder's own model. */
static void note_version(const struct td_hub_call *hub)
{
    const struct td_family *family =
        hub->repo->is_added ? td_family_find(hub->call->snapshot, td_text_of(hub->repo->folder)) : NULL;
    if (family != NULL && family->latest != NULL && td_text_equals(hub->revision, "main"))
        td_shown_model_add_version(hub->call->response, family->latest->name);
}

void td_hub_answer_info(struct td_hub_call *hub)
{
    struct td_buffer out;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    if (hub->view.commit[0] == '\0' && !td_hub_try_view(hub, &err)) {
        (void)td_hub_fail_view(hub, &err);
        return;
    }
    td_buffer_init(&out);
    td_document_init(&json, &out);
    bool ok = td_hub_begin_repo(hub, &json, hub->repo, hub->view.commit, &err) && add_about(hub, &json, &err) &&
              td_hub_add_errors(hub, &json, &hub->view, &err) && add_siblings(hub, &json, &err);
    note_version(hub);
    td_hub_answer_built(hub, ok, &json, &err);
}

/* ---- refs and commits ---------------------------------------------------------------------------------- */

static bool add_ref(struct td_hub_call *hub, struct td_document *json, const char *name, const char *prefix,
                    const char *commit, struct td_error *err)
{
    struct td_buffer ref;
    if (!td_reserved_json_room(&hub->reserved, json, 2 * strlen(name), err))
        return false;
    td_buffer_init(&ref);
    td_buffer_puts(&ref, prefix);
    td_buffer_puts(&ref, name);
    bool ok = !ref.failed || td_error_no_memory(err);
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "name", name);
    td_document_add_text(json, "ref", td_buffer_text(&ref));
    td_document_add_string(json, "targetCommit", commit);
    td_document_end(json);
    td_buffer_fini(&ref);
    return ok;
}

static bool is_pull_request(const char *name)
{
    return strncmp(name, "refs/", strlen("refs/")) == 0;
}

/* Adds the refs of a cache that have their commits: the pull requests, or all other refs but main. */
static bool add_refs(struct td_hub_call *hub, struct td_document *json, bool pull_requests, struct td_error *err)
{
    const struct td_repo *repo = hub->repo;
    for (size_t i = 0; i < repo->ref_count; i++) {
        const struct td_repo_ref *ref = &repo->refs[i];
        const struct td_repo *at = td_repo_of_ref(repo, ref);
        if (at != NULL && is_pull_request(ref->name) == pull_requests && strcmp(ref->name, "main") != 0 &&
            !add_ref(hub, json, ref->name, pull_requests ? "" : "refs/heads/", at->commit, err))
            return false;
    }
    return true;
}

/* Adds the branch TD_SAFETENSORS_REVISION, if every file of it can be made. */
static bool add_virtual_ref(struct td_hub_call *hub, struct td_document *json, struct td_error *err)
{
    static const char name[] = TD_SAFETENSORS_REVISION;
    struct td_repo_view view;
    struct td_error none = TD_ERROR_INIT;
    if (!td_repo_view_open(hub->call->snapshot, hub->repo, td_text_of(name), &view, &none)) {
        if (none.code == TD_NOT_FOUND)
            return true;
        *err = none;
        return false;
    }
    return view.kind != TD_REVISION_SAFETENSORS || /* a cache may have a ref of that name */
           !td_repo_view_fits(&view) || add_ref(hub, json, name, "refs/heads/", view.commit, err);
}

void td_hub_answer_refs(struct td_hub_call *hub)
{
    struct td_buffer out;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "branches");
    bool ok = (hub->repo->lacks_main || add_ref(hub, &json, "main", "refs/heads/", hub->repo->commit, &err)) &&
              add_refs(hub, &json, false, &err) && add_virtual_ref(hub, &json, &err);
    td_document_end(&json);
    td_document_begin_array(&json, "converts");
    td_document_end(&json);
    td_document_begin_array(&json, "tags");
    td_document_end(&json);
    td_document_begin_array(&json, "pullRequests");
    ok = ok && add_refs(hub, &json, true, &err);
    td_document_end(&json);
    td_hub_answer_built(hub, ok, &json, &err);
}

/* Adds the one commit of files that were not published. */
static void add_stored(const struct td_hub_call *hub, struct td_document *json)
{
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "id", hub->view.commit);
    td_document_add_string(json, "title", "As stored on the server");
    td_document_add_string(json, "message", "");
    td_document_begin_array(json, "authors");
    td_document_end(json);
    td_hub_add_date(json, "date", hub->view.updated_ns);
    td_document_end(json);
}

void td_hub_answer_commits(struct td_hub_call *hub)
{
    size_t count;
    struct td_buffer out;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    td_document_begin_array(&json, NULL);
    bool ok = td_hub_history_add(hub, &json, &count, &err);
    if (ok && count == 0)
        add_stored(hub, &json);
    td_hub_answer_built(hub, ok, &json, &err);
}
