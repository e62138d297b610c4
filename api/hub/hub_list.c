#include "api/hub/hub_handlers.h"

#include "api/hub/hub_about.h"
#include "core/digits.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 16 };

/* The query of a request for /api/models or /api/datasets. Texts are in the call's arena; p is NULL where the request
 * gives none. */
struct listing {
    struct td_text searches[MOST_WORDS], tags[MOST_WORDS]; /* a repository must fit all of them */
    size_t search_count, tag_count;
    struct td_text author, task;
    uint64_t limit, offset;
    bool by_date, ascending; /* descending unless ascending is set */
    bool none;               /* no repository here can match the request */
    bool siblings;
    struct td_hub_parts parts;
};

/* Returns whether text contains word, without regard to ASCII case. */
static bool contains_word(const char *text, struct td_text word)
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

static bool is_listed(const struct listing *listing, bool datasets, const struct td_repo *repo)
{
    const char *id = repo->hub_id;
    const char *slash = strchr(id, '/');
    if (repo->is_other_revision || td_repo_is_dataset(repo) != datasets ||
        (slash != NULL && strchr(slash + 1, '/') != NULL)) /* clients do not accept such an id */
        return false;
    for (size_t i = 0; i < listing->search_count; i++)
        if (!contains_word(id, listing->searches[i]))
            return false;
    struct td_text author = td_hub_author_of(id);
    return !listing->none && (listing->author.p == NULL || td_text_compare(listing->author, author) == 0);
}

/* Returns a view of the repository's files on disk. */
static struct td_repo_view files_of(const struct td_hub_call *hub, const struct td_repo *repo)
{
    return (struct td_repo_view){.snapshot = hub->call->snapshot,
                                 .kind = TD_REVISION_FILES,
                                 .first_entry = repo->first_entry,
                                 .entry_count = repo->entry_count,
                                 .prefix_len = repo->prefix_len};
}

/* Returns whether the repository has every tag and is for the task. */
static bool matches_filters(const struct td_hub_call *hub, const struct listing *listing, const struct td_repo *repo)
{
    struct td_repo_view files = files_of(hub, repo);
    struct td_repo_about about;
    if (listing->tag_count == 0 && listing->task.p == NULL)
        return true;
    td_repo_about_init(&about, &files, hub->as_dataset, repo->error_count);
    for (size_t i = 0; i < listing->tag_count; i++)
        if (!td_hub_about_has_tag(&about, listing->tags[i]))
            return false;
    return listing->task.p == NULL || (about.pipeline_tag != NULL && td_text_equals(listing->task, about.pipeline_tag));
}

static int newest_first(const void *a, const void *b)
{
    const struct td_repo *x = *(const struct td_repo *const *)a;
    const struct td_repo *y = *(const struct td_repo *const *)b;
    int order = (x->updated_ns < y->updated_ns) - (x->updated_ns > y->updated_ns);
    return order != 0
               ? order
               : (x > y) - (x < y); /* addresses give the same order in every page: all repositories are in one array */
}

static int oldest_first(const void *a, const void *b)
{
    return newest_first(b, a);
}

static void add_parameter(struct td_buffer *target, const char *name, struct td_text value)
{
    if (value.p == NULL)
        return;
    td_buffer_printf(target, "&%s=", name);
    td_uri_encode(target, value, false);
}

/* Writes the path and query of the next page. */
static void write_target(const struct td_hub_call *hub, const struct listing *listing, uint64_t offset,
                         struct td_buffer *target)
{
    td_buffer_printf(target, "/api/%s?limit=%" PRIu64 "&cursor=%" PRIu64, hub->as_dataset ? "datasets" : "models",
                     listing->limit, offset);
    td_buffer_puts(target, listing->by_date ? "&sort=lastModified" : "");
    td_buffer_puts(target, listing->ascending ? "&direction=1" : "");
    td_buffer_puts(target, listing->siblings ? "&full=true" : "");
    td_buffer_puts(target, listing->parts.config ? "&config=true" : "");
    td_buffer_puts(target, listing->parts.card ? "&cardData=true" : "");
    td_buffer_puts(target, listing->parts.safetensors ? "&expand=safetensors" : "");
    td_buffer_puts(target, listing->parts.gguf ? "&expand=gguf" : "");
    for (size_t i = 0; i < listing->search_count; i++)
        add_parameter(target, "search", listing->searches[i]);
    add_parameter(target, "author", listing->author);
    for (size_t i = 0; i < listing->tag_count; i++)
        add_parameter(target, "filter", listing->tags[i]);
    add_parameter(target, "pipeline_tag", listing->task);
}

/* Adds the link to the next page. Answers an error when the link cannot be written: the first page would look like the
 * whole list. */
static void add_next_link(const struct td_hub_call *hub, const struct listing *listing, uint64_t offset)
{
    enum { MOST_TARGET_BYTES = TD_HEADER_VALUE_BYTES - 128 }; /* the rest is for the host's name */
    char link[TD_HEADER_VALUE_BYTES];
    struct td_buffer target;
    td_buffer_init(&target);
    write_target(hub, listing, offset, &target);
    if (target.len > MOST_TARGET_BYTES)
        (void)td_hub_fail(hub, 400, NULL,
                          "search and filters are too long for a list of several pages: ask for less, or for a "
                          "limit of up to 10000");
    else if (td_hub_next_link(hub, &target, link))
        td_hub_add_link(hub, link);
    else
        (void)td_hub_fail(hub, 400, NULL,
                          "the list has several pages, and the Host header is not a plain host name that could lead to "
                          "the next: send one, or ask for a limit of up to 10000");
    td_buffer_fini(&target);
}

static bool write_listed(struct td_hub_call *hub, const struct listing *listing, const struct td_repo *repo,
                         struct td_document *json, struct td_error *err)
{
    const struct td_snapshot *snapshot = hub->call->snapshot;
    struct td_repo_view files = files_of(hub, repo);
    struct td_repo_about about;
    td_repo_about_init(&about, &files, hub->as_dataset, repo->error_count);
    if (!td_hub_begin_repo(hub, json, repo, repo->commit, err) || !td_hub_about_add(hub, &about, json, err) ||
        !td_hub_about_add_parts(hub, &about, &listing->parts, json, err) ||
        (repo->error_count > 0 && !td_hub_add_errors(hub, json, &files, err)))
        return false;
    if (listing->siblings && repo->entry_count <= TD_HUB_MOST_SIBLINGS) {
        td_document_begin_array(json, "siblings");
        for (size_t i = 0; i < repo->entry_count; i++) {
            const char *path = td_repo_relative(repo, &snapshot->entries[repo->first_entry + i]);
            if (!td_reserved_json_room(&hub->reserved, json, strlen(path), err))
                return false;
            td_document_begin_object(json, NULL);
            td_document_add_string(json, "rfilename", path);
            td_document_end(json);
        }
        td_document_end(json);
    }
    td_document_end(json);
    return true;
}

/* Collects the repositories to list, in their order. */
static void collect_repos(const struct td_hub_call *hub, const struct listing *listing, const struct td_repo **repos,
                          size_t *count)
{
    const struct td_snapshot *snapshot = hub->call->snapshot;
    *count = 0;
    const struct td_repos *all = td_repos_of(snapshot);
    for (size_t i = 0; i < all->count; i++)
        if (is_listed(listing, hub->as_dataset, &all->items[i]) && matches_filters(hub, listing, &all->items[i]))
            repos[(*count)++] = &all->items[i];
    if (listing->by_date && *count > 1)
        qsort(repos, *count, sizeof *repos, listing->ascending ? oldest_first : newest_first);
}

/* ---- the query ----------------------------------------------------------------------------------------- */

static bool refuse_parameter(const struct td_hub_call *hub, const char *what, struct td_text text)
{
    return td_hub_fail(
        hub, 400, NULL,
        "%s \"%.*s\" is not known here; a list takes search, author, filter, pipeline_tag, library, gated, "
        "inference, inference_provider, sort (lastModified, createdAt, id, downloads, likes, trendingScore), "
        "direction, limit, full, config, cardData and expand",
        what, TD_SHOW(text, 60));
}

static bool add_word(const struct td_hub_call *hub, struct td_text words[MOST_WORDS], size_t *count,
                     struct td_text word)
{
    if (*count == MOST_WORDS)
        return td_hub_fail(hub, 400, NULL, "more than %d words to search or to filter by", MOST_WORDS);
    words[(*count)++] = word;
    return true;
}

/* Reads tags that are separated by commas. */
static bool add_tags(const struct td_hub_call *hub, struct listing *listing, struct td_text value)
{
    while (value.len > 0) {
        struct td_text tag = td_text_take_until(&value, ',');
        if (tag.len > 0 && !add_word(hub, listing->tags, &listing->tag_count, tag))
            return false;
    }
    return true;
}

static bool is_one_of(struct td_text value, const char *const *words)
{
    for (; *words != NULL; words++)
        if (td_text_equals(value, *words))
            return true;
    return false;
}

/* Reads the order. The server counts no downloads or likes, so an order by them is any order. */
static bool set_sort(const struct td_hub_call *hub, struct listing *listing, struct td_text value)
{
    static const char *const dates[] = {"lastModified", "last_modified", "createdAt", "created_at", NULL};
    static const char *const equals[] = {"",      "id",       "author",        "downloads",      "downloadsAllTime",
                                         "likes", "likes30d", "trendingScore", "trending_score", NULL};
    listing->by_date = is_one_of(value, dates);
    return listing->by_date || is_one_of(value, equals) || refuse_parameter(hub, "sort", value);
}

static bool set_direction(const struct td_hub_call *hub, struct listing *listing, struct td_text value)
{
    static const char *const known[] = {"", "-1", "1", NULL};
    listing->ascending = td_text_equals(value, "1");
    return is_one_of(value, known) || refuse_parameter(hub, "direction", value);
}

/* Ignores members that a list has in any case. */
static void set_expand(struct listing *listing, struct td_text value)
{
    listing->siblings = listing->siblings || td_text_equals(value, "siblings");
    listing->parts.config = listing->parts.config || td_text_equals(value, "config");
    listing->parts.card = listing->parts.card || td_text_equals(value, "cardData");
    listing->parts.safetensors = listing->parts.safetensors || td_text_equals(value, "safetensors");
    listing->parts.gguf = listing->parts.gguf || td_text_equals(value, "gguf");
}

/* Reads one parameter of the query. Returns false after it answered an error. */
static bool take_parameter(const struct td_hub_call *hub, struct listing *listing, struct td_text name,
                           struct td_text value)
{
    static const char *const elsewhere[] = {"limit", "cursor", NULL}; /* numbers; read_listing reads them */
    if (td_text_equals(name, "search"))
        return add_word(hub, listing->searches, &listing->search_count, value);
    if (td_text_equals(name, "filter") || td_text_equals(name, "library"))
        return add_tags(hub, listing, value);
    if (td_text_equals(name, "author"))
        listing->author = value;
    else if (td_text_equals(name, "pipeline_tag"))
        listing->task = value;
    else if (td_text_equals(name, "gated"))
        listing->none = listing->none || td_hub_is_yes(value);
    else if (td_text_equals(name, "inference") || td_text_equals(name, "inference_provider"))
        listing->none = true; /* no inference provider serves these repositories */
    else if (td_text_equals(name, "full"))
        listing->siblings = listing->siblings || td_hub_is_yes(value);
    else if (td_text_equals(name, "config"))
        listing->parts.config = listing->parts.config || td_hub_is_yes(value);
    else if (td_text_equals(name, "cardData"))
        listing->parts.card = listing->parts.card || td_hub_is_yes(value);
    else if (td_text_equals(name, "expand") || td_text_equals(name, "expand[]"))
        set_expand(listing, value);
    else if (td_text_equals(name, "sort"))
        return set_sort(hub, listing, value);
    else if (td_text_equals(name, "direction"))
        return set_direction(hub, listing, value);
    else if (name.len > 0 && !is_one_of(name, elsewhere))
        return refuse_parameter(hub, "parameter", name);
    return true;
}

/* Decodes name=value of a raw query into the arena. */
static bool decode_parameter(struct td_hub_call *hub, struct td_text raw, struct td_text *out, struct td_error *err)
{
    char *text = td_arena_alloc(&hub->arena, raw.len + 1);
    *out = td_text_n(text, 0);
    return text != NULL ? td_uri_decode(raw, true, TD_URI_TARGET, text, &out->len, err) : td_error_no_memory(err);
}

/* Reads the whole query, in which parameters may repeat. Returns false after it answered an error. */
static bool read_query(struct td_hub_call *hub, struct listing *listing)
{
    struct td_text query = td_uri_raw_query(hub->call->request->target);
    struct td_error err = TD_ERROR_INIT;
    while (query.len > 0) {
        struct td_text raw_value = td_text_take_until(&query, '&');
        struct td_text raw_name = td_text_take_until(&raw_value, '=');
        struct td_text name;
        struct td_text value;
        if (!decode_parameter(hub, raw_name, &name, &err) || !decode_parameter(hub, raw_value, &value, &err))
            return td_hub_fail_error(hub, &err);
        if (!take_parameter(hub, listing, name, value))
            return false;
    }
    return true;
}

static bool read_listing(struct td_hub_call *hub, struct listing *listing)
{
    enum { DEFAULT_LIMIT = 1000, MAX_LIMIT = 10000 };
    const struct td_text *limit = td_uri_parameter(hub->call->uri, "limit");
    *listing = (struct listing){.limit = DEFAULT_LIMIT};
    if (limit != NULL)
        (void)td_number_read(*limit, 999999999, &listing->limit); /* anything else counts as no limit given */
    if (listing->limit == 0 || listing->limit > MAX_LIMIT)
        listing->limit = MAX_LIMIT;
    return td_hub_cursor(hub, &listing->offset) && read_query(hub, listing);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* Writes the page that begins at the listing's offset. The next page begins at *end. */
static bool write_page(struct td_hub_call *hub, const struct listing *listing, const struct td_repo *const *repos,
                       size_t count, struct td_buffer *json, uint64_t *end, struct td_error *err)
{
    enum { PAGE_BYTES = 4 * 1024 * 1024 };
    struct td_document builder;
    bool ok = true;
    uint64_t i = listing->offset;
    td_document_init(&builder, json);
    td_document_begin_array(&builder, NULL);
    for (; ok && i < count && i - listing->offset < listing->limit && json->len < PAGE_BYTES; i++)
        ok = write_listed(hub, listing, repos[i], &builder, err);
    td_document_end(&builder);
    td_buffer_putc(json, '\n');
    *end = i;
    return ok;
}

void td_hub_answer_list(struct td_hub_call *hub)
{
    struct listing listing;
    struct td_buffer json;
    struct td_error err = TD_ERROR_INIT;
    size_t count = 0;
    uint64_t end = 0;
    size_t most = td_repos_of(hub->call->snapshot)->count + 1;
    const struct td_repo **repos = NULL;
    char reason[TD_EARLY_REASON_BYTES];
    if (!read_listing(hub, &listing))
        return;
    if (td_call_lacks_files(hub->call, TD_TEXT(""), reason)) {
        (void)td_hub_fail(hub, 503, NULL, "%s", reason);
        return;
    }
    td_buffer_init(&json);
    bool ok = td_reserved_take(&hub->reserved, most * sizeof *repos, &err);
    if (ok)
        repos = calloc(most, sizeof *repos);
    ok = ok && (repos != NULL || td_error_no_memory(&err));
    if (repos != NULL)
        collect_repos(hub, &listing, repos, &count);
    ok = ok && write_page(hub, &listing, repos, count, &json, &end, &err);
    if (ok)
        td_hub_answer_json(hub, &json);
    else
        (void)td_hub_fail_error(hub, &err);
    if (ok && end < count && hub->call->response->status == 200)
        add_next_link(hub, &listing, end);
    td_buffer_fini(&json);
    free(repos);
}
