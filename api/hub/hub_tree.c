#include "api/hub/hub_handlers.h"

#include "api/hub/hub_item.h"
#include "core/clock.h"
#include "core/json/json.h"
#include "core/json/json_document.h"
#include "parser/format/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A path that the request names, and its place in the request. */
struct asked {
    struct td_text path;
    size_t turn;
};

/* A list while it is written: all items of the view by path, and the state of the answer. */
struct tree {
    struct td_hub_call *hub;
    const struct td_repo_item *items;
    size_t count;
    uint64_t until_ns; /* monotonic ns; the answer waits for digests until then */
    bool expand;
    struct asked *asked; /* the paths of paths-info, in the arena */
    size_t asked_count, asked_capacity;
    size_t written;
    char link[TD_HEADER_VALUE_BYTES]; /* the link to the next page; empty on the last page */
    struct td_document *json;
    struct td_error *err;
};

static bool begin_item(struct tree *tree, size_t path_len, const char *type, const char *oid, uint64_t size_bytes)
{
    if (!td_reserved_json_room(&tree->hub->reserved, tree->json, path_len, tree->err))
        return false;
    tree->written++;
    td_document_begin_object(tree->json, NULL);
    td_document_add_string(tree->json, "type", type);
    td_document_add_string(tree->json, "oid", oid);
    td_document_add_u64(tree->json, "size", size_bytes);
    return true;
}

/* Prints the item, because the buffer's length decides where the page ends. */
static void end_item(struct tree *tree)
{
    const struct td_repo_view *view = &tree->hub->view;
    struct td_document *json = tree->json;
    if (tree->expand) {
        td_document_begin_object(json, "lastCommit");
        td_document_add_string(json, "id", view->commit);
        td_document_add_string(json, "title", "As stored on the server");
        td_hub_add_date(json, "date", view->updated_ns);
        td_document_end(json);
    }
    td_document_end(json);
}

static bool write_file(struct tree *tree, const struct td_repo_item *item)
{
    struct td_hub_blob blob;
    struct td_document *json = tree->json;
    const char *error = td_hub_error_of(item);
    if (!td_hub_blob_of(tree->hub, item, tree->until_ns, &blob, tree->err) ||
        !begin_item(tree, strlen(item->path) + strlen(error), "file", blob.oid, blob.size_bytes))
        return false;
    td_document_add_string(json, "path", item->path);
    td_hub_add_lfs(json, "oid", &blob);
    td_hub_add_error(json, error);
    end_item(tree);
    return true;
}

/* Writes the item of a directory. */
static bool write_directory(struct tree *tree, struct td_text path)
{
    char oid[TD_COMMIT_BYTES];
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, tree->hub->view.commit);
    td_digest_add(digest, path.p, path.len);
    if (!td_digest_finish_text(digest, oid, sizeof oid))
        return td_error_no_memory(tree->err);
    if (!begin_item(tree, path.len, "directory", oid, 0))
        return false;
    td_document_add_text(tree->json, "path", path);
    end_item(tree);
    return true;
}

/* Returns the first item whose path is not less than path + border. */
static size_t first_not_before(const struct tree *tree, struct td_text path, char border)
{
    size_t low = 0;
    size_t high = tree->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const char *other = tree->items[mid].path;
        int order = strncmp(other, path.p, path.len);
        if (order == 0)
            order = (unsigned char)other[path.len] < (unsigned char)border ? -1 : 1;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Finds the items below a directory; all items for the empty path. */
static void items_below(const struct tree *tree, struct td_text path, size_t *first, size_t *end)
{
    *first = path.len == 0 ? 0 : first_not_before(tree, path, '/');
    *end = path.len == 0 ? tree->count : first_not_before(tree, path, '/' + 1);
}

/* Returns the length of the directories that two paths share, with the last '/'. */
static size_t shared_directories(const char *a, const char *b)
{
    size_t shared = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        if (a[i] == '/')
            shared = i + 1;
    return shared;
}

/* Writes the directories that begin with this item: the directories of the item below path[0, from) that do not hold
 * the item before. Writes only the first of them unless the list is recursive. */
static bool write_new_directories(struct tree *tree, const char *before, const char *path, size_t from, bool recursive)
{
    size_t shared = before == NULL ? from : shared_directories(before, path);
    if (!recursive && shared > from)
        return true;
    for (size_t i = shared < from ? from : shared; path[i] != '\0'; i++) {
        if (path[i] != '/')
            continue;
        if (!write_directory(tree, td_text_n(path, i)))
            return false;
        if (!recursive)
            return true;
    }
    return true;
}

/* Writes the link to the page that begins with item i. The link names the commit, so that i stays the same item.
 * Returns false when the link cannot be written. */
static bool set_next(struct tree *tree, struct td_text directory, bool recursive, size_t i)
{
    const struct td_hub_call *hub = tree->hub;
    struct td_buffer target;
    td_buffer_init(&target);
    td_buffer_printf(&target, "/api/%s/", hub->as_dataset ? "datasets" : "models");
    td_uri_encode(&target, hub->id, true);
    td_buffer_printf(&target, "/tree/%s/", hub->view.commit);
    td_uri_encode(&target, directory, false);
    td_buffer_printf(&target, "?recursive=%s&expand=%s&cursor=%zu", recursive ? "true" : "false",
                     tree->expand ? "true" : "false", i);
    bool ok = td_hub_next_link(hub, &target, tree->link);
    if (!ok)
        tree->link[0] = '\0';
    td_buffer_fini(&target);
    return ok;
}

/* Returns whether the page should end. Virtual files take time to plan, so a slow page is short, but never empty. */
static bool is_full(const struct tree *tree)
{
    return tree->written >= TD_HUB_PAGE_ITEMS || tree->json->out->len >= TD_HUB_PAGE_BYTES ||
           (tree->written > 0 && td_clock_ns() > tree->until_ns + TD_HUB_PLAN_NS);
}

/* Lists the directory's files and directories, or recursively all below it, from ?cursor= on until the page is full. */
static bool write_tree(struct tree *tree, struct td_text directory, bool recursive)
{
    size_t first;
    size_t end;
    size_t from = directory.len == 0 ? 0 : directory.len + 1;
    uint64_t cursor;
    if (!td_hub_cursor(tree->hub, &cursor))
        return false;
    items_below(tree, directory, &first, &end);
    const char *before = cursor > first && cursor < end ? tree->items[cursor - 1].path : NULL;
    for (size_t i = cursor > first ? (size_t)cursor : first; i < end && !tree->json->out->failed; i++) {
        const char *path = tree->items[i].path;
        if (is_full(tree) && set_next(tree, directory, recursive, i))
            return true;
        bool here = strchr(path + from, '/') == NULL;
        if (!write_new_directories(tree, before, path, from, recursive) ||
            ((here || recursive) && !write_file(tree, &tree->items[i])))
            return false;
        before = path;
    }
    return true;
}

static bool is_directory(const struct tree *tree, struct td_text path)
{
    size_t first;
    size_t end;
    items_below(tree, path, &first, &end);
    return first < end;
}

/* Returns the file at this path, or NULL. */
static const struct td_repo_item *find_file(const struct tree *tree, struct td_text path)
{
    size_t at = first_not_before(tree, path, '\0'); /* the path itself sorts before the paths that begin with it */
    if (at < tree->count && td_text_compare(td_text_of(tree->items[at].path), path) == 0)
        return &tree->items[at];
    return NULL;
}

static struct td_text without_slashes(struct td_text path)
{
    while (path.len > 0 && path.p[path.len - 1] == '/')
        path.len--;
    return path;
}

/* Starts the answer's list. */
static bool open_tree(struct td_hub_call *hub, struct tree *tree, struct td_document *json, struct td_error *err)
{
    struct td_repo_item *items;
    *tree = (struct tree){.hub = hub,
                          .until_ns = td_clock_ns() + TD_HUB_WAIT_NS,
                          .expand = td_hub_flag(hub, "expand"),
                          .json = json,
                          .err = err};
    td_document_begin_array(json, NULL);
    bool ok = td_hub_list_items(hub, &items, &tree->count, err);
    tree->items = ok ? items : NULL;
    return ok;
}

void td_hub_answer_tree(struct td_hub_call *hub)
{
    struct tree tree;
    struct td_buffer out;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    struct td_text path = without_slashes(hub->below);
    bool ok = open_tree(hub, &tree, &json, &err);
    const struct td_repo_item *file = ok && path.len > 0 ? find_file(&tree, path) : NULL;
    if (file != NULL)
        ok = write_file(&tree, file);
    else if (ok && path.len > 0 && !is_directory(&tree, path))
        ok = td_hub_no_file(hub, "file or directory", path);
    else
        ok = ok && write_tree(&tree, path, td_hub_flag(hub, "recursive"));
    td_hub_answer_built(hub, ok, &json, &err);
    if (tree.link[0] != '\0' && hub->call->response->status == 200)
        td_hub_add_link(hub, tree.link);
}

/* ---- paths-info ---------------------------------------------------------------------------------------- */

/* Limits the memory of a JSON body's tree: 10,000 paths of 80 bytes each, and the bytes of the paths. */
enum { BODY_FREE_BYTES = 2 * 1024 * 1024, BODY_PER_BYTE = 4 };

static bool add_path(struct tree *tree, struct td_text path)
{
    enum { PATHS_MAX = 10000 };
    if (tree->asked_count == PATHS_MAX)
        return td_error_set(tree->err, TD_INVALID_ARGUMENT, "more than %d paths", PATHS_MAX);
    struct asked *grown =
        td_arena_grow(&tree->hub->arena, tree->asked, tree->asked_count, &tree->asked_capacity, sizeof *grown);
    if (grown == NULL)
        return td_error_no_memory(tree->err);
    tree->asked = grown;
    grown[tree->asked_count] = (struct asked){.path = without_slashes(path), .turn = tree->asked_count};
    tree->asked_count++;
    return true;
}

static int by_turn(const void *a, const void *b)
{
    const struct asked *x = a;
    const struct asked *y = b;
    return (x->turn > y->turn) - (x->turn < y->turn);
}

static int by_path(const void *a, const void *b)
{
    const struct asked *x = a;
    const struct asked *y = b;
    int order = td_text_compare(x->path, y->path);
    return order != 0 ? order : by_turn(a, b);
}

/* Removes repeated paths and keeps the order in which paths were first named. The Hub's answer to a repeated path is
 * not known; its clients name each path once. */
static void drop_repeated(struct tree *tree)
{
    size_t kept = 0;
    if (tree->asked_count < 2)
        return;
    qsort(tree->asked, tree->asked_count, sizeof *tree->asked, by_path);
    for (size_t i = 0; i < tree->asked_count; i++) {
        const struct asked *next = &tree->asked[i];
        const struct asked *last = kept > 0 ? &tree->asked[kept - 1] : NULL;
        if (last == NULL || td_text_compare(last->path, next->path) != 0)
            tree->asked[kept++] = *next;
    }
    tree->asked_count = kept;
    qsort(tree->asked, kept, sizeof *tree->asked, by_turn);
}

/* Writes the items of the paths. Leaves out paths that do not exist. */
static bool write_path(struct tree *tree, struct td_text path)
{
    const struct td_repo_item *file = path.len == 0 ? NULL : find_file(tree, path);
    if (file != NULL)
        return write_file(tree, file);
    return path.len == 0 || !is_directory(tree, path) || write_directory(tree, path);
}

static bool write_paths(struct tree *tree)
{
    bool ok = true;
    drop_repeated(tree);
    for (size_t i = 0; ok && i < tree->asked_count; i++)
        ok = write_path(tree, tree->asked[i].path);
    return ok;
}

/* Takes the next name=value off the form. Returns false at its end. */
static bool next_field(struct td_text *form, struct td_text *field)
{
    bool found = form->len > 0;
    *field = td_text_take_until(form, '&');
    return found;
}

/* Returns whether the text is a form for this request: empty, or with one of its fields. The Hub's clients always send
 * "expand". */
static bool is_form(struct td_text form)
{
    struct td_text field;
    bool is_empty = form.len == 0;
    while (next_field(&form, &field)) {
        struct td_text name = td_text_take_until(&field, '=');
        if (td_text_equals(name, "paths") || td_text_equals(name, "expand"))
            return true;
    }
    return is_empty;
}

/* Returns whether the form has expand=true, before or after its paths. */
static bool form_expands(struct td_text form)
{
    struct td_text field;
    while (next_field(&form, &field))
        if (td_text_equals(field, "expand=true") || td_text_equals(field, "expand=True"))
            return true;
    return false;
}

/* Reads a form such as paths=a&paths=b%2Fc&expand=true. */
static bool read_form(struct tree *tree, struct td_text form)
{
    const struct td_text name = TD_TEXT("paths=");
    struct td_text item;
    if (!is_form(form))
        return false;
    tree->expand = tree->expand || form_expands(form);
    while (next_field(&form, &item)) {
        if (!td_text_begins(item, name))
            continue;
        struct td_text path = {.len = 0};
        char *decoded = td_arena_alloc(&tree->hub->arena, item.len);
        path.p = decoded;
        if (decoded == NULL)
            return td_error_no_memory(tree->err);
        item = td_text_skip(item, name.len);
        if (!td_uri_decode(item, true, "the request's body", decoded, &path.len, tree->err) || !add_path(tree, path))
            return false;
    }
    return true;
}

static bool read_json_paths(struct tree *tree, const struct td_json_document *document, const cJSON *list)
{
    if (!cJSON_IsArray(list))
        return td_json_document_fail(document, list, "an array of paths expected");
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        if (!td_json_item_is_string(item))
            return td_json_document_fail(document, item, "\"paths\" are strings");
        const char *path = td_json_document_string(document, item);
        if (path == NULL || !add_path(tree, td_text_of(path)))
            return false;
    }
    return true;
}

/* Reads {"paths": [...], "expand": true}; ignores other members. */
static bool read_json(struct tree *tree, struct td_text body)
{
    struct td_json_document document;
    struct td_arena *arena = &tree->hub->arena; /* the paths stay in the arena */
    const size_t limit = arena->limit_bytes;
    arena->limit_bytes = arena->used_bytes + BODY_FREE_BYTES + BODY_PER_BYTE * body.len;
    td_json_document_read(&document, body, arena, tree->err);
    arena->limit_bytes = limit;
    const cJSON *root = td_json_document_object(&document, "an object with \"paths\"");
    if (root == NULL)
        return false;
    tree->expand = tree->expand || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "expand"));
    bool has_paths = false;
    for (const cJSON *item = root->child; item != NULL; item = item->next) {
        if (strcmp(item->string, "paths") != 0)
            continue;
        has_paths = true;
        if (!read_json_paths(tree, &document, item))
            return false;
    }
    return td_json_document_end(&document) && has_paths;
}

void td_hub_answer_paths_info(struct td_hub_call *hub)
{
    struct tree tree;
    struct td_buffer out;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    struct td_text body = hub->call->request->body;
    size_t blank = 0;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    while (blank < body.len && memchr(" \t\r\n", body.p[blank], 4) != NULL)
        blank++;
    bool is_json = blank < body.len && body.p[blank] == '{';
    bool ok = open_tree(hub, &tree, &json, &err) && (is_json ? read_json(&tree, body) : read_form(&tree, body)) &&
              write_paths(&tree);
    if (!ok && err.code == TD_OK)
        (void)td_error_set(&err, TD_INVALID_ARGUMENT, "the body is neither a form nor JSON with \"paths\"");
    td_hub_answer_built(hub, ok, &json, &err);
}
