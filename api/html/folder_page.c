/* Rows are numbered by the snapshot's entries, and the row of a sub-folder jumps over all entries in it. */
#include "api/html/folder_page.h"

#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "core/waiting.h"

#include <stdlib.h>
#include <string.h>

struct folder {
    struct td_snapshot *snapshot;
    char *title;         /* "NAME: files/PATH" */
    char *base;          /* the beginning of the links of the items, encoded */
    char *up;            /* the link to the page above; empty: none */
    size_t first, count; /* the entries */
    size_t name_at;      /* where the names of the items begin in the paths of the entries */
};

static void destroy(void *context)
{
    struct folder *folder = context;
    td_snapshot_unref(folder->snapshot);
    free(folder->title);
    free(folder->base);
    free(folder->up);
    free(folder);
}

static const struct td_entry *entry_at(const struct td_page_place *place)
{
    const struct folder *folder = place->context;
    return &folder->snapshot->entries[folder->first + place->row[0]];
}

/* Returns the name of the row's item; that of a folder ends with '/'. */
static struct td_text item_at(const struct td_page_place *place)
{
    const struct folder *folder = place->context;
    const char *name = entry_at(place)->path + folder->name_at;
    size_t len = strcspn(name, "/");
    return td_text_n(name, len + (name[len] == '/' ? 1 : 0));
}

static bool is_folder(struct td_text item)
{
    return item.len > 0 && item.p[item.len - 1] == '/';
}

static void write_slot(const struct td_page_place *place, unsigned slot, struct td_buffer *out)
{
    const struct folder *folder = place->context;
    switch ((enum td_folder_slot)slot) {
    case TD_SLOT_FOLDER_TITLE:
        td_buffer_puts(out, folder->title);
        break;
    case TD_SLOT_FOLDER_UP:
        td_buffer_puts(out, folder->up);
        break;
    case TD_SLOT_FOLDER_ITEM: {
        struct td_text item = item_at(place);
        td_buffer_append(out, item.p, item.len);
        break;
    }
    case TD_SLOT_FOLDER_ITEM_LINK:
        td_buffer_puts(out, folder->base);
        td_uri_encode(out, item_at(place), true);
        break;
    case TD_SLOT_FOLDER_ITEM_BYTES:
        td_buffer_u64(out, entry_at(place)->file->source.id.size_bytes);
        break;
    case TD_SLOT_FOLDER_ITEM_SIZE:
        td_shown_bytes(out, entry_at(place)->file->source.id.size_bytes);
        break;
    case TD_SLOT_FOLDER_ITEM_NOTE:
        if (!is_folder(item_at(place)) && entry_at(place)->file->error != NULL)
            td_buffer_puts(out, entry_at(place)->file->error);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct folder *folder = place->context;
    switch ((enum td_folder_section)section) {
    case TD_SECTION_FOLDER_WAY_UP:
        return folder->up[0] != '\0' ? 1 : 0;
    case TD_SECTION_FOLDER_ITEMS:
        return folder->count;
    case TD_SECTION_FOLDER_FILE:
        return is_folder(item_at(place)) ? 0 : 1;
    }
    return 0;
}

static size_t next_row(const struct td_page_place *place, unsigned section)
{
    const struct folder *folder = place->context;
    size_t first;
    size_t count;
    if (section != TD_SECTION_FOLDER_ITEMS || !is_folder(item_at(place)))
        return place->row[0] + 1;
    struct td_text path = td_text_n(entry_at(place)->path, folder->name_at + item_at(place).len - 1);
    td_snapshot_entries_below(folder->snapshot, path, &first, &count);
    return first + count - folder->first;
}

static const struct td_page_class folder_class = {
    .page = &td_template_folder, .write = write_slot, .rows = count_rows, .next = next_row, .destroy = destroy};

/* Finds the entries below a folder of these files: a run, because paths are sorted. */
static bool find_run(const struct td_snapshot *snapshot, const struct td_html_files *files, struct td_text path,
                     size_t *first, size_t *count, struct td_error *err)
{
    struct td_buffer folder;
    *first = files->first_entry;
    *count = files->entry_count;
    if (path.len == 0)
        return true;
    td_buffer_init(&folder);
    if (files->entry_count > 0)
        td_buffer_append(&folder, snapshot->entries[*first].path, files->prefix_len);
    td_buffer_append(&folder, path.p, path.len);
    bool ok = !folder.failed || td_error_no_memory(err);
    if (ok)
        td_snapshot_entries_below(snapshot, td_buffer_text(&folder), first, count);
    td_buffer_fini(&folder);
    /* files directly in the root are a model each, which does not own the entries below */
    if (ok && (*count == 0 || *first < files->first_entry || *first + *count > files->first_entry + files->entry_count))
        ok = td_error_set(err, TD_NOT_FOUND, "no such folder");
    return ok;
}

static char *title_of(const struct td_html_files *files, struct td_text path)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_append(&out, files->name.p, files->name.len);
    td_buffer_puts(&out, ": files/");
    td_buffer_append(&out, path.p, path.len);
    return td_buffer_release_string(&out);
}

static char *base_of(const struct td_html_files *files, struct td_text path)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_append(&out, files->base.p, files->base.len);
    td_uri_encode(&out, path, true);
    td_buffer_puts(&out, path.len > 0 ? "/" : "");
    return td_buffer_release_string(&out);
}

/* Returns the link to the page above a folder. */
static char *way_up(const struct td_html_files *files, struct td_text path)
{
    struct td_text rest = path;
    struct td_text last = td_text_take_last(&rest, '/');
    struct td_buffer out;
    td_buffer_init(&out);
    if (path.len == 0) {
        td_buffer_append(&out, files->above.p, files->above.len);
    } else {
        td_buffer_append(&out, files->base.p, files->base.len);
        td_uri_encode(&out, td_text_n(path.p, path.len - last.len), true);
    }
    return td_buffer_release_string(&out);
}

bool td_html_files_page(const struct td_call *call, const struct td_html_files *files, struct td_text path,
                        struct td_error *err)
{
    size_t first;
    size_t count;
    if (!td_may_wait(err)) /* a folder may have many files */
        return false;
    if (!find_run(call->snapshot, files, path, &first, &count, err))
        return false;
    struct folder *folder = calloc(1, sizeof *folder);
    if (folder == NULL)
        return td_error_no_memory(err);
    folder->snapshot = td_snapshot_ref(call->snapshot);
    folder->title = title_of(files, path);
    folder->base = base_of(files, path);
    folder->up = way_up(files, path);
    folder->first = first;
    folder->count = count;
    folder->name_at = files->prefix_len + (path.len > 0 ? path.len + 1 : 0);
    if (folder->title == NULL || folder->base == NULL || folder->up == NULL) {
        destroy(folder);
        return td_error_no_memory(err);
    }
    return td_page_set(call->response, &folder_class, folder, err);
}

bool td_html_folder(const struct td_call *call, struct td_text path)
{
    const struct td_model *model = call->model;
    struct td_html_files files = {.name = td_text_of(model->id)};
    struct td_buffer base;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&base);
    td_buffer_puts(&base, "/models/");
    td_uri_encode(&base, td_text_of(model->id), true);
    td_buffer_puts(&base, "/files/");
    files.base = td_buffer_text(&base);
    files.above = files.base;
    files.above.len -= base.failed ? files.above.len : strlen("files/");
    files.first_entry = model->first_entry;
    files.entry_count = model->entry_count;
    files.prefix_len = model->directory_len > 0 ? model->directory_len + 1 : 0;
    bool ok = base.failed ? td_error_no_memory(&err) : td_html_files_page(call, &files, path, &err);
    td_buffer_fini(&base);
    if (!ok && err.code != TD_NOT_FOUND)
        td_response_fail_error(call->response, &err);
    return ok || err.code != TD_NOT_FOUND;
}
