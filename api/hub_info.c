#include "api/hub_call.h"

#include "core/clock.h"
#include "core/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one repository ------------------------------------------------------------------------------------ */

/* What lists and descriptions have in common: {"_id","id",... without the closing brace. */
static bool write_head(struct td_hub_call *hub, struct td_buffer *out, const struct td_repo *repo,
                       const char *id, size_t id_len, const char *commit, struct td_error *err)
{
    const char *slash = memchr(id, '/', id_len);
    if (!td_held_json_room(&hub->held, out, 4 * id_len, err))
        return false;
    td_buffer_puts(out, "{\"_id\":");
    td_json_write_string(out, id, id_len);
    td_buffer_puts(out, ",\"id\":");
    td_json_write_string(out, id, id_len);
    if (!td_repo_is_dataset(repo)) {
        td_buffer_puts(out, ",\"modelId\":");
        td_json_write_string(out, id, id_len);
    }
    td_buffer_puts(out, ",\"author\":");
    td_json_write_string(out, slash == NULL ? TD_REPO_DEFAULT_NAMESPACE : id,
                         slash == NULL ? strlen(TD_REPO_DEFAULT_NAMESPACE) : (size_t)(slash - id));
    td_buffer_printf(out, ",\"sha\":\"%s\",\"lastModified\":", commit);
    td_hub_write_date(out, repo->updated_ns);
    td_buffer_puts(out, ",\"createdAt\":");
    td_hub_write_date(out, repo->updated_ns);
    td_buffer_printf(
        out,
        ",\"private\":false,\"gated\":false,\"disabled\":false,\"downloads\":0,\"likes\":0,\"tags\":[],"
        "\"usedStorage\":%" PRIu64,
        repo->file_bytes);
    return true;
}

/* One of `siblings`: with blobs also what its content is. */
static bool write_sibling(struct td_hub_call *hub, const struct td_view_item *item, bool blobs,
                          uint64_t until_ns, struct td_buffer *out, struct td_error *err)
{
    struct td_hub_blob blob;
    if (!td_held_json_room(&hub->held, out, strlen(item->path), err))
        return false;
    td_buffer_puts(out, "{\"rfilename\":");
    td_json_write_cstring(out, item->path);
    if (blobs) {
        if (!td_hub_blob_of(hub, item, until_ns, &blob, err))
            return false;
        td_buffer_printf(out, ",\"size\":%" PRIu64 ",\"blobId\":\"%s\"", blob.size_bytes, blob.oid);
        if (blob.sha256[0] != '\0')
            td_buffer_printf(out, ",\"lfs\":{\"sha256\":\"%s\",\"size\":%" PRIu64 ",\"pointerSize\":%zu}",
                             blob.sha256, blob.size_bytes, blob.pointer_bytes);
    }
    td_buffer_putc(out, '}');
    return true;
}

/* Those of a very large repository are left out: clients ask for the tree then, which has pages. */
static bool write_siblings(struct td_hub_call *hub, struct td_buffer *out, struct td_error *err)
{
    struct td_view_item *items;
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

void td_hub_answer_info(struct td_hub_call *hub)
{
    struct td_buffer json;
    struct td_error err;
    if (hub->view.commit[0] == '\0' && !td_hub_open_view(hub))
        return;
    td_error_init(&err);
    td_buffer_init(&json);
    if (write_head(hub, &json, hub->repo, hub->id.p, hub->id.len, hub->view.commit, &err) &&
        write_siblings(hub, &json, &err)) {
        td_buffer_puts(&json, "}\n");
        td_hub_answer_json(hub, &json);
    } else {
        (void)td_hub_fail_error(hub, &err);
    }
    td_buffer_fini(&json);
}

/* ---- refs and commits ---------------------------------------------------------------------------------- */

static bool write_ref(struct td_hub_call *hub, struct td_buffer *out, bool *first, const char *name,
                      const char *prefix, const char *commit, struct td_error *err)
{
    if (!td_held_json_room(&hub->held, out, 2 * strlen(name), err))
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
        const struct td_repo *at = td_repo_at(repo, ref->name, strlen(ref->name));
        if (at != NULL && is_pull_request(ref->name) == pull_requests && strcmp(ref->name, "main") != 0 &&
            !write_ref(hub, out, &first, ref->name, pull_requests ? "" : "refs/heads/", at->commit, err))
            return false;
    }
    return true;
}

/* The branch of what is made, where something can be. */
static bool write_made_ref(struct td_hub_call *hub, struct td_buffer *out, struct td_error *err)
{
    static const char made[] = TD_SAFETENSORS_REVISION;
    struct td_repo_view view;
    struct td_error none;
    bool first = false;
    td_error_init(&none);
    if (!td_repo_view_open(hub->call->snapshot, hub->repo, made, strlen(made), &view, &none)) {
        if (none.code == TD_NOT_FOUND)
            return true;
        *err = none;
        return false;
    }
    return view.kind != TD_VIEW_SAFETENSORS || /* a cache may have a ref of that name */
           write_ref(hub, out, &first, made, "refs/heads/", view.commit, err);
}

void td_hub_answer_refs(struct td_hub_call *hub)
{
    struct td_buffer json;
    struct td_error err;
    bool first = true;
    td_error_init(&err);
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
    td_buffer_printf(
        &json,
        "[{\"id\":\"%s\",\"title\":\"As it lies on the server\",\"message\":\"\",\"authors\":[],\"date\":",
        hub->view.commit);
    td_hub_write_date(&json, hub->view.updated_ns);
    td_buffer_puts(&json, "}]\n");
    td_hub_answer_json(hub, &json);
    td_buffer_fini(&json);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

/* What /api/models and /api/datasets were asked. */
struct listing {
    const struct td_text *search, *author;
    uint64_t limit, offset;
    bool by_date; /* newest first */
    bool siblings;
};

/* Whether text contains word; both without case (ASCII). */
static bool contains(const char *text, struct td_text word)
{
    size_t len = strlen(text);
    for (size_t at = 0; at + word.len <= len; at++) {
        size_t i = 0;
        while (i < word.len && tolower((unsigned char)text[at + i]) == tolower((unsigned char)word.p[i]))
            i++;
        if (i == word.len)
            return true;
    }
    return false;
}

/* org/name; of one segment local/name. In the buffer, which is emptied. */
static const char *listed_id(const struct td_repo *repo, struct td_buffer *memory)
{
    if (strchr(repo->id, '/') != NULL)
        return repo->id;
    memory->len = 0;
    td_buffer_printf(memory, TD_REPO_DEFAULT_NAMESPACE "/%s", repo->id);
    return td_buffer_terminate(memory);
}

static bool is_listed(const struct listing *listing, bool datasets, const struct td_repo *repo,
                      const char *id)
{
    const char *slash = strchr(id, '/');
    if (repo->is_other_revision || td_repo_is_dataset(repo) != datasets ||
        (slash != NULL && strchr(slash + 1, '/') != NULL)) /* which clients do not take for an id */
        return false;
    if (listing->search != NULL && !contains(id, *listing->search))
        return false;
    size_t space_len = strcspn(id, "/");
    return listing->author == NULL ||
           (listing->author->len == space_len && memcmp(listing->author->p, id, space_len) == 0);
}

static int newest_first(const void *a, const void *b)
{
    const struct td_repo *x = *(const struct td_repo *const *)a;
    const struct td_repo *y = *(const struct td_repo *const *)b;
    int order = (x->updated_ns < y->updated_ns) - (x->updated_ns > y->updated_ns);
    return order != 0 ? order : (x > y) - (x < y); /* the same in every page: they lie in one array */
}

/* Where the next page is. */
static void add_next_link(const struct td_hub_call *hub, const struct listing *listing, uint64_t offset)
{
    char link[TD_HEADER_VALUE_BYTES];
    struct td_buffer target;
    td_buffer_init(&target);
    td_buffer_printf(&target, "/api/%s?limit=%" PRIu64 "&cursor=%" PRIu64,
                     hub->as_dataset ? "datasets" : "models", listing->limit, offset);
    if (listing->by_date)
        td_buffer_puts(&target, "&sort=lastModified");
    if (listing->siblings)
        td_buffer_puts(&target, "&full=true");
    if (listing->search != NULL) {
        td_buffer_puts(&target, "&search=");
        td_uri_encode(&target, listing->search->p, listing->search->len, false);
    }
    if (listing->author != NULL) {
        td_buffer_puts(&target, "&author=");
        td_uri_encode(&target, listing->author->p, listing->author->len, false);
    }
    if (td_hub_next_link(hub, &target, link))
        td_response_add_header(hub->call->response, "Link", "%s", link);
    td_buffer_fini(&target);
}

static bool write_listed(struct td_hub_call *hub, const struct listing *listing, const struct td_repo *repo,
                         const char *id, struct td_buffer *out, struct td_error *err)
{
    const struct td_snapshot *snapshot = hub->call->snapshot;
    if (!write_head(hub, out, repo, id, strlen(id), repo->commit, err))
        return false;
    if (listing->siblings && repo->entry_count <= TD_HUB_MOST_SIBLINGS) {
        td_buffer_puts(out, ",\"siblings\":[");
        for (size_t i = 0; i < repo->entry_count; i++) {
            const char *path = td_repo_relative(repo, &snapshot->entries[repo->first_entry + i]);
            if (!td_held_json_room(&hub->held, out, strlen(path), err))
                return false;
            td_buffer_puts(out, i > 0 ? ",{\"rfilename\":" : "{\"rfilename\":");
            td_json_write_cstring(out, path);
            td_buffer_putc(out, '}');
        }
        td_buffer_putc(out, ']');
    }
    td_buffer_putc(out, '}');
    return true;
}

/* All that are to be listed, in their order. */
static bool collect(const struct td_hub_call *hub, const struct listing *listing,
                    const struct td_repo **repos, size_t *count)
{
    const struct td_snapshot *snapshot = hub->call->snapshot;
    struct td_buffer memory;
    td_buffer_init(&memory);
    *count = 0;
    for (size_t i = 0; i < snapshot->repo_count; i++) {
        const char *id = listed_id(&snapshot->repos[i], &memory);
        if (id != NULL && is_listed(listing, hub->as_dataset, &snapshot->repos[i], id))
            repos[(*count)++] = &snapshot->repos[i];
    }
    bool ok = !memory.failed;
    td_buffer_fini(&memory);
    if (listing->by_date && *count > 1)
        qsort(repos, *count, sizeof *repos, newest_first);
    return ok;
}

static void read_listing(const struct td_hub_call *hub, struct listing *listing)
{
    enum { DEFAULT_LIMIT = 1000, MAX_LIMIT = 10000 };
    static const char *const dates[] = {"lastModified", "last_modified", "createdAt", "created_at"};
    const struct td_uri *uri = hub->call->uri;
    const struct td_text *sort = td_uri_parameter(uri, "sort");
    *listing = (struct listing){.search = td_uri_parameter(uri, "search"),
                                .author = td_uri_parameter(uri, "author"),
                                .limit = td_hub_number(hub, "limit", DEFAULT_LIMIT),
                                .offset = td_hub_number(hub, "cursor", 0),
                                .siblings = td_hub_flag(hub, "full") || td_hub_expands(hub, "siblings")};
    for (size_t i = 0; sort != NULL && i < sizeof dates / sizeof *dates; i++)
        listing->by_date = listing->by_date || td_text_equals(*sort, dates[i]);
    if (listing->limit == 0 || listing->limit > MAX_LIMIT)
        listing->limit = MAX_LIMIT;
}

/* The page that begins at the listing's offset; *end is where the next one does. */
static bool write_page(struct td_hub_call *hub, const struct listing *listing,
                       const struct td_repo *const *repos, size_t count, struct td_buffer *json,
                       uint64_t *end, struct td_error *err)
{
    enum { PAGE_BYTES = 4 * 1024 * 1024 };
    struct td_buffer memory;
    bool ok = true;
    uint64_t i = listing->offset;
    td_buffer_init(&memory);
    td_buffer_putc(json, '[');
    for (; ok && i < count && i - listing->offset < listing->limit && json->len < PAGE_BYTES; i++) {
        const char *id = listed_id(repos[i], &memory);
        if (i > listing->offset)
            td_buffer_putc(json, ',');
        ok = id == NULL ? td_error_no_memory(err) : write_listed(hub, listing, repos[i], id, json, err);
    }
    td_buffer_puts(json, "]\n");
    td_buffer_fini(&memory);
    *end = i;
    return ok;
}

void td_hub_answer_list(struct td_hub_call *hub)
{
    struct listing listing;
    struct td_buffer json;
    struct td_error err;
    size_t count = 0;
    uint64_t end = 0;
    size_t most = hub->call->snapshot->repo_count + 1;
    const struct td_repo **repos = NULL;
    td_error_init(&err);
    td_buffer_init(&json);
    read_listing(hub, &listing);
    bool ok = td_held_take(&hub->held, most * sizeof *repos, &err);
    if (ok)
        repos = calloc(most, sizeof *repos);
    ok = ok && ((repos != NULL && collect(hub, &listing, repos, &count)) || td_error_no_memory(&err)) &&
         write_page(hub, &listing, repos, count, &json, &end, &err);
    if (ok)
        td_hub_answer_json(hub, &json);
    else
        (void)td_hub_fail_error(hub, &err);
    if (ok && end < count && hub->call->response->status == 200)
        add_next_link(hub, &listing, end);
    td_buffer_fini(&json);
    free(repos);
}
