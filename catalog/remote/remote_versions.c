#include "catalog/remote/remote_versions.h"

#include "catalog/remote/remote_listing.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/json/json_document.h"
#include "storage/fetch/fetch_url.h"

#include <stdio.h>
#include <string.h>

enum {
    PAGE_ROWS = 1000,
    PAGE_BYTES = 16 * 1024 * 1024,
    DOCUMENT_BYTES = 256 * 1024 * 1024, /* memory for reading a page */
};

/* The means to read a list. */
struct asking {
    struct td_fetch_session *session;
    const struct td_remote_versions_query *query;
    struct td_remote_versions *versions;
    struct td_fetch_answer answer;
    struct td_buffer path, body;
    struct td_buffer next; /* the token of the next page; empty: there is none */
    struct td_error *err;
};

void td_remote_versions_init(struct td_remote_versions *versions)
{
    memset(versions, 0, sizeof *versions);
    td_arena_init(&versions->arena, TD_REMOTE_MAX_VERSIONS_BYTES);
}

void td_remote_versions_fini(struct td_remote_versions *versions)
{
    td_arena_fini(&versions->arena);
}

bool td_remote_version_check(struct td_text name, struct td_error *err)
{
    struct td_error ignored = TD_ERROR_INIT;
    if (name.len > 0 && name.len <= TD_REMOTE_VERSION_BYTES && name.p[0] != '.' && name.p[0] != '-' &&
        memchr(name.p, '/', name.len) == NULL && !td_text_equals(name, "latest") &&
        td_remote_path_check(name, &ignored))
        return true;
    return td_error_set(err, TD_INVALID_ARGUMENT,
                        "the server lists a version whose name cannot be that of a directory: \"%.*s\"",
                        TD_SHOW(name, 100));
}

/* ---- one page ------------------------------------------------------------------------------------------ */

/* Sets *out to a copy of a string member; to NULL when the member is null or not there. */
static bool copy_string(struct asking *asking, const struct td_json_document *page, const cJSON *object,
                        const char *key, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out = NULL;
    if (item == NULL || cJSON_IsNull(item))
        return true;
    if (!td_json_item_is_string(item))
        return td_json_document_fail(page, item, "\"%s\" has to be a string or null", key);
    const char *text = td_json_document_string(page, item);
    if (text == NULL)
        return false;
    *out = td_arena_strndup(&asking->versions->arena, td_text_of(text));
    return *out != NULL || td_arena_refuse(&asking->versions->arena, "the list of versions", asking->err);
}

/* Sets *out to a member that is a whole number, and *has (may be NULL) to whether it is one. null, or none, is 0. */
static bool copy_number(const struct td_json_document *page, const cJSON *object, const char *key, uint64_t *out,
                        bool *has)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    bool is_there = item != NULL && !cJSON_IsNull(item);
    *out = 0;
    if (has != NULL)
        *has = is_there;
    if (is_there && !cJSON_IsRaw(item))
        return td_json_document_fail(page, item, "\"%s\" has to be a number or null", key);
    return !is_there || td_json_document_u64(page, item, out);
}

/* Copies the array of refs. */
static bool copy_refs(struct asking *asking, const struct td_json_document *page, const cJSON *row,
                      struct td_remote_version *version)
{
    struct td_arena *arena = &asking->versions->arena;
    const cJSON *refs = cJSON_GetObjectItemCaseSensitive(row, "refs");
    const cJSON *ref;
    if (refs == NULL)
        return true;
    if (!cJSON_IsArray(refs))
        return td_json_document_fail(page, refs, "\"refs\" has to be an array");
    size_t capacity = 0;
    const char **items = NULL;
    cJSON_ArrayForEach(ref, refs)
    {
        if (!td_json_item_is_string(ref))
            return td_json_document_fail(page, ref, "a ref has to be a string");
        const char *text = td_json_document_string(page, ref);
        const char **grown =
            text == NULL ? NULL : td_arena_grow(arena, items, version->ref_count, &capacity, sizeof *items);
        const char *copy = grown == NULL ? NULL : td_arena_strndup(arena, td_text_of(text));
        if (copy == NULL)
            return text != NULL && td_arena_refuse(arena, "the list of versions", asking->err);
        items = grown;
        items[version->ref_count++] = copy;
    }
    version->refs = items;
    return true;
}

/* Reads "updated": a time, or null. */
static bool copy_time(const struct td_json_document *page, const cJSON *row, int64_t *updated_ns)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, "updated");
    int64_t seconds = 0;
    if (item == NULL || cJSON_IsNull(item))
        return true;
    const char *text = td_json_item_is_string(item) ? td_json_document_string(page, item) : "";
    if (text == NULL)
        return false;
    if (!td_wall_read_rfc3339(td_text_of(text), &seconds) || seconds < 0 || seconds > INT64_MAX / TD_NS_PER_S - 1)
        return td_json_document_fail(page, item, "\"updated\" has to be a time or null");
    const char *point = strchr(text, '.'); /* of milliseconds, as tensord writes them */
    uint64_t ms = 0;
    bool has_ms =
        point != NULL && strspn(point + 1, "0123456789") == 3 && td_number_read(td_text_n(point + 1, 3), 999, &ms);
    *updated_ns = seconds * TD_NS_PER_S + (has_ms ? (int64_t)ms * 1000000 : 0);
    return true;
}

/* Reads what else a row says about the version. */
static bool copy_facts(struct asking *asking, const struct td_json_document *page, const cJSON *row,
                       struct td_remote_version *version)
{
    return copy_number(page, row, "number", &version->number, &version->has_number) &&
           copy_string(asking, page, row, "commit", &version->commit) && copy_refs(asking, page, row, version) &&
           copy_number(page, row, "total_bytes", &version->total_bytes, NULL) &&
           copy_number(page, row, "file_bytes", &version->file_bytes, NULL) &&
           copy_time(page, row, &version->updated_ns);
}

static bool add_version(struct asking *asking, const struct td_json_document *page, const cJSON *row)
{
    struct td_remote_versions *versions = asking->versions;
    struct td_remote_version version = {0};
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(row, "kind");
    if (!cJSON_IsObject(row) || !cJSON_IsString(kind))
        return td_json_document_fail(page, row, "a version has to be an object with a \"kind\"");
    version.is_delta = strcmp(kind->valuestring, "delta") == 0;
    if (!copy_string(asking, page, row, "version", &version.name) ||
        !copy_string(asking, page, row, "base", &version.base))
        return false;
    if (version.name == NULL)
        return td_json_document_fail(page, row, "a version has no \"version\"");
    if (!td_remote_version_check(td_text_of(version.name), asking->err) || !copy_facts(asking, page, row, &version))
        return false;
    struct td_remote_version *items =
        td_arena_grow(&versions->arena, versions->items, versions->count, &versions->capacity, sizeof *items);
    if (items == NULL)
        return td_arena_refuse(&versions->arena, "the list of versions", asking->err);
    versions->items = items;
    items[versions->count++] = version;
    return true;
}

/* Reads the page. `is_first`: sets `latest`, too. */
static bool read_page(struct asking *asking, const struct td_json_document *page, bool is_first)
{
    const cJSON *root = td_json_document_object(page, "a list of versions, an object,");
    const char *latest = NULL;
    if (root == NULL)
        return false;
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(root, "versions");
    const cJSON *token = cJSON_GetObjectItemCaseSensitive(root, "next_page_token");
    if (!cJSON_IsArray(rows))
        return td_json_document_fail_end(page, root, "\"versions\" has to be an array");
    if (!copy_string(asking, page, root, "latest", &latest) ||
        (latest != NULL && !td_remote_version_check(td_text_of(latest), asking->err)))
        return false;
    if (is_first)
        asking->versions->latest = latest;
    const cJSON *row;
    if (asking->query->all)
        cJSON_ArrayForEach(row, rows)
        {
            if (!add_version(asking, page, row))
                return false;
        }
    td_buffer_clear(&asking->next);
    if (asking->query->all && cJSON_IsString(token))
        td_buffer_puts(&asking->next, token->valuestring);
    return td_json_document_end(page);
}

static bool take_page(struct asking *asking, bool is_first)
{
    struct td_arena arena;
    struct td_json_document page;
    struct td_error why = TD_ERROR_INIT;
    struct td_error *err = asking->err;
    td_arena_init_budget(&arena, DOCUMENT_BYTES, asking->query->budget);
    asking->err = &why;
    td_json_document_read(&page, td_buffer_text(&asking->body), &arena, &why);
    bool ok = read_page(asking, &page, is_first);
    td_arena_fini(&arena);
    asking->err = err;
    return ok || td_error_set(err, why.code, "the list of versions of %s: %s",
                              td_fetch_client_url(td_fetch_session_client(asking->session), asking->versions->server),
                              why.message);
}

/* ---- asking -------------------------------------------------------------------------------------------- */

static void write_path(struct asking *asking, bool is_first)
{
    const struct td_remote_versions_query *query = asking->query;
    struct td_buffer *path = &asking->path;
    td_buffer_clear(path);
    td_buffer_puts(path, "/models/");
    td_fetch_url_append_path(path, td_text_of(query->id));
    td_buffer_printf(path, "/versions?page_size=%d", query->all ? PAGE_ROWS : 1);
    if (!is_first) {
        td_buffer_puts(path, "&page_token=");
        td_fetch_url_append_path(path, td_buffer_text(&asking->next));
    } else if (query->waits) {
        td_buffer_printf(path, "&timeout=%u&wait=", query->timeout_s);
        td_fetch_url_append_path(path, td_text_of(query->tag));
    }
}

/* Sets the error for an answer other than 200. */
static bool refuse_answer(struct asking *asking)
{
    const struct td_fetch_client *client = td_fetch_session_client(asking->session);
    char what[400];
    (void)snprintf(what, sizeof what, "%.160s, versions of %.96s",
                   td_fetch_client_url(client, asking->versions->server), asking->query->id);
    return td_fetch_fault_of_answer(
        &asking->answer, asking->answer.status == 401 ? td_fetch_client_token_advice(client) : NULL, what, asking->err);
}

/* Gets a page, the first one from the servers in turn until one has the model. Later pages come from the same server.
 */
static bool get_page(struct asking *asking, bool is_first)
{
    size_t *server = &asking->versions->server;
    size_t count = td_fetch_client_count(td_fetch_session_client(asking->session));
    write_path(asking, is_first);
    const char *path = td_buffer_terminate(&asking->path);
    if (path == NULL)
        return td_buffer_refuse(&asking->path, asking->err);
    for (size_t tries = 1;; tries++) {
        if (!td_fetch_session_get(asking->session, path, PAGE_BYTES, !is_first, server, &asking->answer, &asking->body,
                                  asking->err))
            return false;
        if (!is_first || asking->answer.status < 400 || tries >= count)
            return true;
        *server = (*server + 1) % count;
    }
}

/* Copies the entity tag without its quotes. */
static void copy_tag(struct asking *asking)
{
    const char *etag = asking->answer.etag;
    size_t len = strlen(etag);
    if (len >= 2)
        (void)snprintf(asking->versions->tag, sizeof asking->versions->tag, "%.*s", (int)(len - 2), etag + 1);
}

static bool get_pages(struct asking *asking, bool *has_changed)
{
    for (size_t pages = 0; pages < TD_REMOTE_MAX_VERSION_PAGES; pages++) {
        if (!get_page(asking, pages == 0))
            return false;
        if (pages == 0 && asking->query->waits && asking->answer.status == 304) {
            *has_changed = false;
            return true;
        }
        if (asking->answer.status != 200)
            return refuse_answer(asking);
        if (pages == 0)
            copy_tag(asking);
        if (!take_page(asking, pages == 0))
            return false;
        if (asking->next.len == 0)
            return !asking->next.failed || td_buffer_refuse(&asking->next, asking->err);
    }
    return td_error_set(asking->err, TD_FAILED_PRECONDITION, "the list of versions has more than %d pages",
                        TD_REMOTE_MAX_VERSION_PAGES);
}

bool td_remote_versions_get(struct td_fetch_session *session, const struct td_remote_versions_query *query,
                            struct td_remote_versions *versions, bool *has_changed, struct td_error *err)
{
    struct td_remote_versions next;
    struct asking asking = {.session = session, .query = query, .versions = &next, .err = err};
    td_remote_versions_init(&next);
    td_arena_init_budget(&next.arena, TD_REMOTE_MAX_VERSIONS_BYTES, query->budget);
    next.server = versions->server;
    td_buffer_init(&asking.path);
    td_buffer_init(&asking.body);
    td_buffer_init(&asking.next);
    *has_changed = true;
    bool ok = get_pages(&asking, has_changed);
    td_buffer_fini(&asking.path);
    td_buffer_fini(&asking.body);
    td_buffer_fini(&asking.next);
    if (ok && *has_changed) {
        td_remote_versions_fini(versions);
        *versions = next;
        return true;
    }
    versions->server = next.server;
    td_remote_versions_fini(&next);
    return ok;
}
