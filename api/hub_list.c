#include "api/hub_call.h"

#include "core/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
        td_hub_add_link(hub, link);
    td_buffer_fini(&target);
}

static bool write_listed(struct td_hub_call *hub, const struct listing *listing, const struct td_repo *repo,
                         const char *id, struct td_buffer *out, struct td_error *err)
{
    struct td_snapshot *snapshot = hub->call->snapshot;
    const struct td_repo_view files = {.snapshot = snapshot,
                                       .kind = TD_VIEW_FILES,
                                       .first_entry = repo->first_entry,
                                       .entry_count = repo->entry_count,
                                       .prefix_len = repo->prefix_len};
    if (!td_hub_write_head(hub, out, repo, id, strlen(id), repo->commit, err) ||
        (repo->error_count > 0 && !td_hub_write_errors(hub, out, &files, err)))
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
