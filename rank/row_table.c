/* The body is a header in memory and a generated blob for each tensor. A blob turns a range of bytes into a run of
 * rows, and finds these again at each read, so that its memory does not grow with the rows. */
#include "rank/row_table.h"

#include "core/json/json.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, ALIGNMENT = 8, MAX_HEADER_BYTES = 100000000, ROWS_AT_ONCE = 256, OPEN_FILES = 64 };

enum column { COLUMN_OFFSET, COLUMN_NBYTES, COLUMN_FILE, COLUMNS };

static const struct {
    const char *name, *dtype;
    size_t item_bytes;
} columns[COLUMNS] = {
    [COLUMN_OFFSET] = {"offset", "U64", 8}, [COLUMN_NBYTES] = {"nbytes", "U64", 8}, [COLUMN_FILE] = {"file", "U32", 4}};

/* A column of the table, for one thread at a time. */
struct column_blob {
    struct td_blob blob;
    struct td_split_view view;
    struct td_split_files files;
    enum column column;
};

static struct column_blob *column_of(struct td_blob *blob)
{
    return (struct column_blob *)(void *)blob;
}

static void column_destroy(struct td_blob *blob)
{
    struct column_blob *column = column_of(blob);
    td_split_files_fini(&column->files);
    td_snapshot_unref(column->view.snapshot);
    free(column);
}

static bool column_unchanged(struct td_blob *blob)
{
    return td_split_files_are_unchanged(&column_of(blob)->files, NULL);
}

static void store_little_endian(uint8_t *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

/* Writes the values of up to `count` rows, from `row` on. Returns how many they are; 0: an error. */
static size_t write_values(struct column_blob *column, uint64_t row, size_t count, uint8_t *out, struct td_error *err)
{
    struct td_row_place places[ROWS_AT_ONCE];
    size_t item_bytes = columns[column->column].item_bytes;
    count = count < ROWS_AT_ONCE ? count : ROWS_AT_ONCE;
    if (column->column == COLUMN_FILE) {
        for (size_t i = 0; i < count; i++) {
            uint64_t within;
            store_little_endian(out + i * item_bytes,
                                td_split_locate(column->view.split, column->view.rows, row + i, &within), item_bytes);
        }
        return count;
    }
    size_t found = td_split_files_find(&column->files, row, count, places, err);
    for (size_t i = 0; i < found; i++)
        store_little_endian(out + i * item_bytes,
                            column->column == COLUMN_OFFSET ? places[i].row.offset : places[i].row.bytes, item_bytes);
    return found;
}

static bool column_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct column_blob *column = column_of(blob);
    size_t item_bytes = columns[column->column].item_bytes;
    uint8_t values[ROWS_AT_ONCE * 8], *to = out;
    while (len > 0) {
        uint64_t row = off / item_bytes;
        size_t within = (size_t)(off % item_bytes);
        size_t wanted = (within + len + item_bytes - 1) / item_bytes;
        size_t found = write_values(column, row, wanted, values, err);
        if (found == 0)
            return false;
        size_t part = found * item_bytes - within;
        part = part < len ? part : len;
        memcpy(to, values + within, part);
        to += part;
        off += part;
        len -= part;
    }
    return true;
}

static const struct td_blob_class column_class = {
    .destroy = column_destroy, .read = column_read, .unchanged = column_unchanged};

static bool append_column(const struct td_split_view *view, enum column number, struct td_body *body,
                          struct td_error *err)
{
    struct column_blob *column = calloc(1, sizeof *column);
    if (column == NULL)
        return td_error_no_memory(err);
    column->view = *view;
    column->column = number;
    if (!td_split_files_init(&column->files, &column->view, OPEN_FILES, err)) {
        td_split_files_fini(&column->files);
        free(column);
        return false;
    }
    column->files.closes = true;
    (void)td_snapshot_ref(view->snapshot);
    td_blob_init(&column->blob, &column_class, view->rows->row_count * columns[number].item_bytes);
    bool ok = td_body_append(body, &column->blob, 0, column->blob.len_bytes, err);
    td_blob_unref(&column->blob);
    return ok;
}

/* Writes the paths of the split's files as a JSON array. */
static void write_paths(const struct td_split_view *view, const struct td_dataset *dataset, struct td_buffer *out)
{
    td_buffer_putc(out, '[');
    for (size_t i = 0; i < view->split->file_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_json_write_cstring(out, td_repo_relative(dataset->repo, view->split->files[i].entry));
    }
    td_buffer_putc(out, ']');
}

/* Writes 8 bytes of room for the length, then the JSON, padded to a multiple of 8. By hand, because its bytes are
 * the file. */
static void write_header(const struct td_split_view *view, const struct td_dataset *dataset, const char *paths,
                         struct td_buffer *out)
{
    const char *metadata[][2] = {{"dataset", dataset->id},
                                 {"split", view->split->name},
                                 {"format", view->split->format->name},
                                 {"fingerprint", view->rows->fingerprint},
                                 {"files", paths}};
    uint64_t at = 0;
    td_buffer_append(out, "\0\0\0\0\0\0\0\0", LENGTH_BYTES);
    td_buffer_puts(out, "{\"__metadata__\":{");
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++) {
        td_buffer_puts(out, i > 0 ? "," : "");
        td_json_write_cstring(out, metadata[i][0]);
        td_buffer_putc(out, ':');
        td_json_write_cstring(out, metadata[i][1]);
    }
    td_buffer_putc(out, '}');
    for (size_t i = 0; i < COLUMNS; i++) {
        uint64_t end = at + view->rows->row_count * columns[i].item_bytes;
        td_buffer_printf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", columns[i].name, columns[i].dtype);
        td_buffer_u64(out, view->rows->row_count);
        td_buffer_puts(out, "],\"data_offsets\":[");
        td_buffer_u64(out, at);
        td_buffer_putc(out, ',');
        td_buffer_u64(out, end);
        td_buffer_puts(out, "]}");
        at = end;
    }
    td_buffer_putc(out, '}');
    while (!out->failed && out->len % ALIGNMENT != 0)
        td_buffer_putc(out, ' ');
}

/* Appends the header. Its memory comes from the budget. */
static bool append_header(const struct td_split_view *view, const struct td_dataset *dataset, struct td_body *body,
                          struct td_error *err)
{
    struct td_buffer paths, header;
    bool ok;
    td_buffer_init_budget(&paths, view->budget);
    td_buffer_init_budget(&header, view->budget);
    write_paths(view, dataset, &paths);
    const char *text = td_buffer_terminate(&paths);
    if (text != NULL)
        write_header(view, dataset, text, &header);
    if (text == NULL || header.failed) {
        ok = td_buffer_refuse(text == NULL ? &paths : &header, err);
    } else if (header.len > MAX_HEADER_BYTES) {
        ok = td_error_set(err, TD_FAILED_PRECONDITION,
                          "the paths of %zu files are more than a safetensors header takes", view->split->file_count);
    } else {
        store_little_endian((uint8_t *)header.data, header.len - LENGTH_BYTES, LENGTH_BYTES);
        ok = td_split_append_text(view, &header, body, err);
    }
    td_buffer_fini(&paths);
    td_buffer_fini(&header);
    return ok;
}

bool td_row_table_append(const struct td_split_view *view, const struct td_dataset *dataset, struct td_body *body,
                         struct td_error *err)
{
    if (view->rows->reason != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s", view->rows->reason);
    for (size_t i = 0; i < view->split->file_count; i++) {
        const struct td_file_rows *rows = view->split->files[i].rows;
        if (rows != NULL && rows->index.layout == TD_ROWS_BLOCKS)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "rows of %s files have no places of their own: they are stored in batches",
                                view->split->format->name);
    }
    bool ok = append_header(view, dataset, body, err);
    for (size_t i = 0; i < COLUMNS && ok; i++)
        ok = view->rows->row_count == 0 || append_column(view, (enum column)i, body, err);
    if (!ok)
        td_body_fini(body);
    return ok;
}
