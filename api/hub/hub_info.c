#include "api/hub/hub_about.h"

#include "core/clock.h"
#include "core/json.h"

#include <inttypes.h>
#include <string.h>

/* ---- one repository ------------------------------------------------------------------------------------ */

struct td_text td_hub_author_of(const char *id)
{
    const char *slash = strchr(id, '/');
    const char *author = slash == NULL ? TD_REPO_DEFAULT_NAMESPACE : id;
    return (struct td_text){.p = author, .len = slash == NULL ? strlen(author) : (size_t)(slash - id)};
}

bool td_hub_write_head(struct td_hub_call *hub, struct td_buffer *out, const struct td_repo *repo, const char *commit,
                       struct td_error *err)
{
    const char *id = repo->hub_id;
    struct td_text author = td_hub_author_of(id);
    if (!td_reserved_json_room(&hub->reserved, out, 4 * strlen(id), err))
        return false;
    td_buffer_puts(out, "{\"_id\":");
    td_json_write_cstring(out, id);
    td_buffer_puts(out, ",\"id\":");
    td_json_write_cstring(out, id);
    if (!td_repo_is_dataset(repo)) {
        td_buffer_puts(out, ",\"modelId\":");
        td_json_write_cstring(out, id);
    }
    td_buffer_puts(out, ",\"author\":");
    td_json_write_string(out, author);
    td_buffer_printf(out, ",\"sha\":\"%s\",\"lastModified\":", commit);
    td_hub_write_date(out, repo->updated_ns);
    td_buffer_puts(out, ",\"createdAt\":");
    td_hub_write_date(out, repo->updated_ns);
    td_buffer_printf(out,
                     ",\"private\":false,\"gated\":false,\"disabled\":false,\"downloads\":0,\"likes\":0,"
                     "\"usedStorage\":%" PRIu64,
                     repo->file_bytes);
    return true;
}

/* One of `siblings`: with blobs also what its content is. */
static bool write_sibling(struct td_hub_call *hub, const struct td_repo_item *item, bool blobs, uint64_t until_ns,
                          struct td_buffer *out, struct td_error *err)
{
    struct td_hub_blob blob;
    const char *error = td_hub_error_of(item);
    if (!td_reserved_json_room(&hub->reserved, out, strlen(item->path) + strlen(error), err))
        return false;
    td_buffer_puts(out, "{\"rfilename\":");
    td_json_write_cstring(out, item->path);
    if (blobs) {
        if (!td_hub_blob_of(hub, item, until_ns, &blob, err))
            return false;
        td_buffer_printf(out, ",\"size\":%" PRIu64 ",\"blobId\":\"%s\"", blob.size_bytes, blob.oid);
        if (blob.sha256[0] != '\0')
            td_buffer_printf(out, ",\"lfs\":{\"sha256\":\"%s\",\"size\":%" PRIu64 ",\"pointerSize\":%zu}", blob.sha256,
                             blob.size_bytes, blob.pointer_bytes);
    }
    td_hub_write_error(out, error);
    td_buffer_putc(out, '}');
    return true;
}

/* Those of a very large repository are left out: clients ask for the tree then, which has pages. */
static bool write_siblings(struct td_hub_call *hub, struct td_buffer *out, struct td_error *err)
{
    struct td_repo_item *items;
    size_t count;
    bool blobs = td_hub_flag(hub, "blobs");
    uint64_t until_ns = td_clock_ns() + TD_HUB_WAIT_NS;
    if (!td_hub_list_items(hub, &items, &count, err))
        return false;
    if (count > TD_HUB_MOST_SIBLINGS)
        return true;
    td_buffer_puts(out, ",\"siblings\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        if (!write_sibling(hub, &items[i], blobs, until_ns, out, err))
            return false;
    }
    td_buffer_putc(out, ']');
    return true;
}

/* What the Hub tells of a repository that was asked for by itself. */
static bool write_about(struct td_hub_call *hub, struct td_buffer *out, struct td_error *err)
{
    static const struct td_hub_parts all = {.config = true, .card = true, .safetensors = true, .gguf = true};
    struct td_hub_about about;
    td_hub_about_init(&about, &hub->view, td_repo_is_dataset(hub->repo), hub->repo->error_count);
    return td_hub_about_write(hub, &about, out, err) && td_hub_about_write_parts(hub, &about, &all, out, err);
}

void td_hub_answer_info(struct td_hub_call *hub)
{
    struct td_buffer json;
    struct td_error err = TD_ERROR_INIT;
    if (hub->view.commit[0] == '\0' && !td_hub_open_view(hub))
        return;
    td_buffer_init(&json);
    if (td_hub_write_head(hub, &json, hub->repo, hub->view.commit, &err) && write_about(hub, &json, &err) &&
        td_hub_write_errors(hub, &json, &hub->view, &err) && write_siblings(hub, &json, &err)) {
        td_buffer_puts(&json, "}\n");
        td_hub_answer_json(hub, &json);
    } else {
        (void)td_hub_fail_error(hub, &err);
    }
    td_buffer_fini(&json);
}

/* ---- refs and commits ---------------------------------------------------------------------------------- */

static bool write_ref(struct td_hub_call *hub, struct td_buffer *out, bool *first, const char *name, const char *prefix,
                      const char *commit, struct td_error *err)
{
    if (!td_reserved_json_room(&hub->reserved, out, 2 * strlen(name), err))
        return false;
    td_buffer_puts(out, *first ? "{\"name\":" : ",{\"name\":");
    *first = false;
    td_json_write_cstring(out, name);
    td_buffer_puts(out, ",\"ref\":");
    struct td_buffer ref;
    td_buffer_init(&ref);
    td_buffer_printf(&ref, "%s%s", prefix, name);
    const char *text = td_buffer_terminate(&ref);
    td_json_write_cstring(out, text == NULL ? "" : text);
    out->failed = out->failed || text == NULL;
    td_buffer_fini(&ref);
    td_buffer_printf(out, ",\"targetCommit\":\"%s\"}", commit);
    return true;
}

static bool is_pull_request(const char *name)
{
    return strncmp(name, "refs/", strlen("refs/")) == 0;
}

/* A cache's refs whose commits are there, of one sort. main was written before. */
static bool write_refs(struct td_hub_call *hub, struct td_buffer *out, bool pull_requests, bool first,
                       struct td_error *err)
{
    const struct td_repo *repo = hub->repo;
    for (size_t i = 0; i < repo->ref_count; i++) {
        const struct td_repo_ref *ref = &repo->refs[i];
        const struct td_repo *at = td_repo_at(repo, td_text_of(ref->name));
        if (at != NULL && is_pull_request(ref->name) == pull_requests && strcmp(ref->name, "main") != 0 &&
            !write_ref(hub, out, &first, ref->name, pull_requests ? "" : "refs/heads/", at->commit, err))
            return false;
    }
    return true;
}

/* Writes the branch of what is made, where all of it can be. */
static bool write_made_ref(struct td_hub_call *hub, struct td_buffer *out, struct td_error *err)
{
    static const char made[] = TD_SAFETENSORS_REVISION;
    struct td_repo_view view;
    struct td_error none = TD_ERROR_INIT;
    bool first = false;
    if (!td_repo_view_open(hub->call->snapshot, hub->repo, td_text_of(made), &view, &none)) {
        if (none.code == TD_NOT_FOUND)
            return true;
        *err = none;
        return false;
    }
    return view.kind != TD_REVISION_SAFETENSORS || /* a cache may have a ref of that name */
           !td_repo_view_fits(&view) || write_ref(hub, out, &first, made, "refs/heads/", view.commit, err);
}

void td_hub_answer_refs(struct td_hub_call *hub)
{
    struct td_buffer json;
    struct td_error err = TD_ERROR_INIT;
    bool first = true;
    td_buffer_init(&json);
    td_buffer_puts(&json, "{\"branches\":[");
    bool ok = write_ref(hub, &json, &first, "main", "refs/heads/", hub->repo->commit, &err) &&
              write_refs(hub, &json, false, first, &err) && write_made_ref(hub, &json, &err);
    td_buffer_puts(&json, "],\"converts\":[],\"tags\":[],\"pullRequests\":[");
    ok = ok && write_refs(hub, &json, true, true, &err);
    td_buffer_puts(&json, "]}\n");
    if (ok)
        td_hub_answer_json(hub, &json);
    else
        (void)td_hub_fail_error(hub, &err);
    td_buffer_fini(&json);
}

void td_hub_answer_commits(struct td_hub_call *hub)
{
    struct td_buffer json;
    td_buffer_init(&json);
    td_buffer_printf(&json,
                     "[{\"id\":\"%s\",\"title\":\"As it lies on the server\",\"message\":\"\",\"authors\":[],\"date\":",
                     hub->view.commit);
    td_hub_write_date(&json, hub->view.updated_ns);
    td_buffer_puts(&json, "}]\n");
    td_hub_answer_json(hub, &json);
    td_buffer_fini(&json);
}
