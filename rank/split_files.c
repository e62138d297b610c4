#include "rank/split_files.h"

#include "core/waiting.h"

#include <stdlib.h>

bool td_split_files_init(struct td_split_files *files, const struct td_split_view *view, size_t most,
                         struct td_error *err)
{
    size_t count = view->split->file_count < most ? view->split->file_count : most, slots = 2;
    count = count < TD_SPLIT_FILES_MOST ? count : TD_SPLIT_FILES_MOST;
    *files = (struct td_split_files){.view = view, .most = count};
    while (slots < 2 * count)
        slots *= 2;
    if (!td_budget_take(view->budget, slots * sizeof *files->slots))
        return td_budget_refuse(view->budget, slots * sizeof *files->slots, err);
    files->slot_count = slots;
    files->slots = calloc(slots, sizeof *files->slots);
    return files->slots != NULL || td_error_no_memory(err);
}

static void close_all(struct td_split_files *files)
{
    for (size_t i = 0; files->slots != NULL && i < files->slot_count; i++) {
        td_blob_unref(files->slots[i].data);
        td_blob_unref(files->slots[i].table);
        files->slots[i] = (struct td_opened_file){0};
    }
    files->open_count = 0;
}

void td_split_files_fini(struct td_split_files *files)
{
    close_all(files);
    free(files->slots);
    td_budget_give(files->view->budget, files->slot_count * sizeof *files->slots);
    *files = (struct td_split_files){.view = files->view};
}

static bool map_entry(const struct td_split_view *view, const struct td_entry *entry, struct td_blob **out,
                      struct td_error *err)
{
    return td_file_source_map(td_catalog_maps(view->catalog), view->snapshot->root, &entry->file->source, out, err);
}

/* Makes room for one more file. */
static bool make_room(struct td_split_files *files, struct td_error *err)
{
    if (files->open_count < files->most)
        return true;
    if (!files->closes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the rows are in more than %zu files; ask for fewer at once",
                            files->most);
    if (!td_split_files_are_unchanged(files, err))
        return false;
    close_all(files);
    return true;
}

/* Returns the slot of the file, or the free one where it belongs. */
static struct td_opened_file *slot_of(struct td_split_files *files, size_t number)
{
    size_t mask = files->slot_count - 1, slot = (number * UINT64_C(0x9E3779B97F4A7C15) >> 32) & mask;
    while (files->slots[slot].number != 0 && files->slots[slot].number != number + 1)
        slot = (slot + 1) & mask;
    return &files->slots[slot];
}

const struct td_opened_file *td_split_files_open(struct td_split_files *files, size_t number, struct td_error *err)
{
    const struct td_split_file *file = &files->view->split->files[number];
    struct td_opened_file *opened = slot_of(files, number);
    if (opened->number != 0)
        return opened;
    if (!make_room(files, err))
        return NULL;
    opened = slot_of(files, number);
    struct td_blob *data = NULL, *table = NULL;
    if (!map_entry(files->view, file->entry, &data, err) ||
        (file->table != NULL && !map_entry(files->view, file->table, &table, err))) {
        td_blob_unref(data);
        return NULL;
    }
    *opened = (struct td_opened_file){.number = number + 1, .data = data, .table = table};
    files->open_count++;
    return opened;
}

/* Returns false with an error when the request is cancelled. Asking costs a system call. */
static bool goes_on(const struct td_cancel *cancel, struct td_error *err)
{
    return !td_cancel_is_asked(cancel) || td_error_set(err, TD_UNAVAILABLE, "the request was cancelled");
}

static bool read_blob(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct td_split_reader *reader = (struct td_split_reader *)(uintptr_t)context;
    if (reader->read_bytes >= reader->ask_at) {
        if (!goes_on(reader->cancel, err))
            return false;
        reader->ask_at = reader->read_bytes + TD_SPLIT_ASK_BYTES;
    }
    reader->read_bytes += len;
    return (reader->read_bytes <= TD_SPLIT_QUICK_BYTES || td_may_wait(err)) &&
           td_blob_read(reader->blob, off, out, len, err);
}

struct td_input td_split_input(struct td_split_reader *reader)
{
    if (reader->blob == NULL)
        return (struct td_input){0};
    return (struct td_input){.size_bytes = reader->blob->len_bytes, .read = read_blob, .context = reader};
}

/* Rows that are looked for at once. */
enum { ROWS_AT_ONCE = 256 };

/* Finds rows [first, first + count) of one file. */
static bool find_in_file(const struct td_split_view *view, const struct td_split_file *file,
                         const struct td_opened_file *opened, uint64_t first, size_t count, size_t slot,
                         struct td_row_place *places, struct td_error *err)
{
    struct td_row rows[ROWS_AT_ONCE];
    struct td_split_reader data = {.blob = opened->data, .cancel = view->cancel, .ask_at = TD_SPLIT_ASK_BYTES};
    struct td_split_reader table = {.blob = opened->table, .cancel = view->cancel, .ask_at = TD_SPLIT_ASK_BYTES};
    const struct td_row_files inputs = {.data = td_split_input(&data), .table = td_split_input(&table)};
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < ROWS_AT_ONCE ? count - done : ROWS_AT_ONCE;
        if (file->rows == NULL)
            rows[0] = (struct td_row){.bytes = opened->data->len_bytes}; /* the file is the row, so count is 1 */
        else if (!td_row_index_find(&file->rows->index, &inputs, first + done, n, rows, err))
            return false;
        for (size_t i = 0; i < n; i++)
            places[done + i] = (struct td_row_place){.row = rows[i], .slot = slot};
    }
    return true;
}

size_t td_split_files_find(struct td_split_files *files, uint64_t row, size_t count, struct td_row_place *places,
                           struct td_error *err)
{
    enum { FINDS_PER_QUESTION = 64 };
    const struct td_split_view *view = files->view;
    uint64_t within, left;
    if (files->find_count++ % FINDS_PER_QUESTION == 0 && !goes_on(view->cancel, err))
        return 0;
    size_t number = td_split_locate(view->split, view->rows, row, &within);
    left = view->rows->ends[number] - row;
    count = left < count ? (size_t)left : count;
    const struct td_opened_file *opened = td_split_files_open(files, number, err);
    bool ok = opened != NULL && find_in_file(view, &view->split->files[number], opened, within, count,
                                             (size_t)(opened - files->slots), places, err);
    return ok ? count : 0;
}

bool td_split_files_are_unchanged(const struct td_split_files *files, struct td_error *err)
{
    for (size_t i = 0; i < files->slot_count; i++) {
        const struct td_opened_file *opened = &files->slots[i];
        if (opened->number != 0 &&
            (!td_blob_unchanged(opened->data) || (opened->table != NULL && !td_blob_unchanged(opened->table))))
            return td_error_set(err, TD_UNAVAILABLE, "\"%.200s\" changed while its rows were read; try again",
                                files->view->split->files[opened->number - 1].entry->path);
    }
    return true;
}

bool td_split_append_text(const struct td_split_view *view, struct td_buffer *text, struct td_body *body,
                          struct td_error *err)
{
    struct td_blob *blob = NULL;
    size_t len;
    if (text->failed)
        return td_buffer_refuse(text, err);
    char *data = td_buffer_release(text, &len);
    bool ok = td_blob_from_budget(data, len, view->budget, &blob, err) && td_body_append(body, blob, 0, len, err);
    td_blob_unref(blob);
    return ok;
}

/* Sets *blob and *area to the bytes of the row and those that are read to find it, by the index alone. Returns false
 * when the index does not have the place, or the file does not have these bytes. */
static bool area_of(struct td_split_files *files, uint64_t row, struct td_blob **blob, struct td_row *area)
{
    const struct td_split_view *view = files->view;
    uint64_t within;
    size_t number = td_split_locate(view->split, view->rows, row, &within);
    const struct td_split_file *file = &view->split->files[number];
    const struct td_opened_file *opened = td_split_files_open(files, number, NULL);
    if (opened == NULL)
        return false;
    *blob = opened->data;
    *area = (struct td_row){.bytes = opened->data->len_bytes};
    return (file->rows == NULL || td_row_index_area(&file->rows->index, within, area)) && area->bytes > 0 &&
           area->bytes <= opened->data->len_bytes && area->offset <= opened->data->len_bytes - area->bytes;
}

static uint64_t row_at(const struct td_row_list *list, size_t i)
{
    return list->numbers == NULL ? list->first + i : list->numbers[i];
}

/* Returns whether one of the first rows is not in memory; then the others may not be in memory either. */
static bool are_cold(struct td_split_files *files, const struct td_row_list *list)
{
    enum { LOOKED_AT = 4 };
    for (size_t i = 0; i < list->count && i < LOOKED_AT; i++) {
        struct td_blob *blob;
        struct td_row area;
        if (area_of(files, row_at(list, i), &blob, &area) && !td_blob_is_resident(blob, area.offset, area.bytes))
            return true;
    }
    return false;
}

void td_split_files_read_ahead(struct td_split_files *files, const struct td_row_list *list)
{
    enum { MOST_ROWS = 4096 };
    if (td_waiting_is_forbidden() || !are_cold(files, list))
        return;
    for (size_t i = 0; i < list->count && i < MOST_ROWS; i++) {
        struct td_blob *blob;
        struct td_row area;
        if (area_of(files, row_at(list, i), &blob, &area))
            td_blob_will_need(blob, area.offset, area.bytes);
    }
}
