#include "rank/row_json.h"

#include "core/array.h"
#include "core/text.h"
#include "core/utf8.h"
#include "core/waiting.h"
#include "parser/rows/text_rows.h"
#include "rank/row_features.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The names of the columns of a CSV file, as they are spelled in JSON. */
struct header {
    size_t file; /* number of the file in the split, plus 1; 0: none was read */
    char delimiter;
    struct td_buffer text;
    size_t *ends; /* the end of each name in `text`; owned */
    size_t count, capacity;
};

enum { MOST_RENAMED = 65536 }; /* tries to make names unique, over all headers of an answer */

struct making {
    const struct td_split_view *view;
    struct td_split_files files;
    struct td_row_features features;
    struct header header;
    struct td_buffer rows;    /* the text after "rows":[ */
    struct td_buffer scratch; /* one row */
    size_t renamed_count;
    struct td_error *err;
};

static bool is_csv(const struct td_row_format *format)
{
    return strcmp(format->row_type, td_row_format_csv.row_type) == 0;
}

bool td_row_json_has(const struct td_row_format *format)
{
    return strcmp(format->row_type, "application/json") == 0 || is_csv(format);
}

/* Sets TD_FAILED_PRECONDITION with the row's number and the reason. Returns false. */
static bool fail_row(struct making *m, uint64_t number, const char *why)
{
    return td_error_set(m->err, TD_FAILED_PRECONDITION,
                        "row %" PRIu64 " cannot be answered as format=json: %s; format=raw answers it as it is stored",
                        number, why);
}

static bool fail_long(struct making *m)
{
    return td_error_set(m->err, TD_FAILED_PRECONDITION,
                        "these rows are more than %d bytes, the most of format=json: ask for fewer rows at once",
                        TD_ROW_JSON_MOST_BYTES);
}

/* ---- rows of CSV ---- */

static struct td_text name_at(const struct header *header, size_t i)
{
    size_t begin = i == 0 ? 0 : header->ends[i - 1];
    return td_text_n(header->text.data + begin, header->ends[i] - begin);
}

/* Adds a column. If its name is empty or taken, adds it under the name that pandas would choose. */
static bool add_name(struct making *m, struct td_text name)
{
    struct header *header = &m->header;
    size_t begin = header->text.len;
    bool again = true;
    if (!TD_ARRAY_GROW(header->ends, header->count, header->capacity, m->err))
        return false;
    for (size_t number = 0; again && m->renamed_count < MOST_RENAMED; number++) {
        header->text.len = begin;
        if (name.len == 0)
            td_buffer_printf(&header->text, "Unnamed: %zu", header->count);
        else
            td_buffer_append(&header->text, name.p, name.len);
        if (number > 0)
            td_buffer_printf(&header->text, ".%zu", number);
        if (header->text.failed)
            return td_buffer_refuse(&header->text, m->err);
        struct td_text made = td_text_n(header->text.data + begin, header->text.len - begin);
        if (!td_row_features_add_string(&m->features, made, header->file, &again, m->err))
            return false;
        m->renamed_count += again ? 1 : 0;
    }
    header->ends[header->count++] = header->text.len;
    return !again || td_error_set(m->err, TD_FAILED_PRECONDITION,
                                  "the header has too many columns of the same name for format=json");
}

/* Reads the column names of a CSV file from its index: [{"name": ...}, ...]. */
static bool read_header(struct making *m, size_t number)
{
    const struct td_split_file *file = &m->view->split->files[number];
    const char *columns = file->rows->index.columns;
    struct header *header = &m->header;
    struct td_json json;
    if (header->file == number + 1)
        return true;
    header->file = number + 1;
    header->count = header->text.len = 0;
    header->delimiter = td_has_extension_any_case(file->entry->path, ".tsv") ? '\t' : ',';
    td_json_init(&json, td_text_of(columns == NULL ? "[]" : columns), 0, m->err);
    for (enum td_json_token token; (token = td_json_next(&json)) != TD_JSON_END;) {
        if (token == TD_JSON_ERROR)
            return false;
        if (token == TD_JSON_KEY && td_json_equals(&json, "name") &&
            (!td_json_expect(&json, TD_JSON_STRING, "a name") || !add_name(m, td_json_raw(&json))))
            return false;
    }
    return true;
}

static void write_member(struct making *m, size_t i, const struct td_text *field)
{
    struct td_text name = name_at(&m->header, i);
    td_buffer_puts(&m->rows, i > 0 ? ",\"" : "\"");
    td_buffer_append(&m->rows, name.p, name.len);
    td_buffer_puts(&m->rows, "\":");
    if (field == NULL)
        td_buffer_puts(&m->rows, "null");
    else
        td_json_write_string(&m->rows, *field);
}

static bool write_csv(struct making *m, uint64_t number)
{
    char *rest = m->scratch.data;
    const char *end = rest + m->scratch.len;
    if (!td_utf8_valid(m->scratch.data, m->scratch.len))
        return fail_row(m, number, "it is not UTF-8");
    td_buffer_putc(&m->rows, '{');
    for (size_t i = 0; i < m->header.count || rest != NULL; i++) {
        bool is_there = rest != NULL;
        struct td_text field = {0};
        if (is_there)
            field = td_csv_take_field(&rest, end, m->header.delimiter);
        if (i >= m->header.count)
            return fail_row(m, number, "it has more fields than the header");
        write_member(m, i, is_there ? &field : NULL);
    }
    td_buffer_putc(&m->rows, '}');
    return true;
}

/* ---- rows of JSON ---- */

static bool write_json(struct making *m, uint64_t number)
{
    struct td_error why = TD_ERROR_INIT;
    bool is_object;
    if (!td_row_features_read(&m->features, td_buffer_text(&m->scratch), &is_object, &why))
        return why.code == TD_INVALID_ARGUMENT ? fail_row(m, number, why.message) : td_error_copy(m->err, &why);
    td_buffer_puts(&m->rows, is_object ? "" : "{\"row\":");
    td_buffer_append(&m->rows, m->scratch.data, m->scratch.len);
    td_buffer_puts(&m->rows, is_object ? "" : "}");
    return true;
}

/* ---- the document ---- */

/* Reads a row into m->scratch. */
static bool load_row(struct making *m, uint64_t number)
{
    struct td_row_place place;
    if (td_split_files_find(&m->files, number, 1, &place, m->err) == 0)
        return false;
    if (place.row.bytes > TD_ROW_JSON_MOST_BYTES - m->rows.len)
        return fail_long(m);
    size_t bytes = (size_t)place.row.bytes;
    td_buffer_clear(&m->scratch);
    if (!td_buffer_reserve(&m->scratch, bytes + 1))
        return td_buffer_refuse(&m->scratch, m->err);
    m->scratch.len = bytes;
    return td_blob_read(m->files.slots[place.slot].data, place.row.offset, m->scratch.data, bytes, m->err);
}

static bool write_row(struct making *m, uint64_t number, bool is_first)
{
    uint64_t within;
    bool csv = is_csv(m->view->split->format);
    if (!load_row(m, number) ||
        (csv && !read_header(m, td_split_locate(m->view->split, m->view->rows, number, &within))))
        return false;
    td_buffer_printf(&m->rows, "%s{\"row_idx\":%" PRIu64 ",\"row\":", is_first ? "" : ",", number);
    if (!(csv ? write_csv(m, number) : write_json(m, number)))
        return false;
    td_buffer_puts(&m->rows, ",\"truncated_cells\":[]}");
    if (m->rows.len > TD_ROW_JSON_MOST_BYTES)
        return fail_long(m);
    return !m->rows.failed || td_buffer_refuse(&m->rows, m->err);
}

static bool write_document(struct making *m, const struct td_row_list *list, uint64_t total, struct td_body *body)
{
    struct td_buffer head;
    for (size_t i = 0; i < list->count; i++)
        if (!write_row(m, list->numbers == NULL ? list->first + i : list->numbers[i], i == 0))
            return false;
    if (!td_split_files_are_unchanged(&m->files, m->err))
        return false;
    if (m->features.names.failed)
        return td_buffer_refuse(&m->features.names, m->err);
    td_buffer_init_budget(&head, m->view->budget);
    td_buffer_puts(&head, "{\"features\":");
    td_row_features_write(&m->features, &head);
    td_buffer_puts(&head, ",\"rows\":[");
    td_buffer_printf(&m->rows, "],\"num_rows_total\":%" PRIu64 ",\"num_rows_per_page\":%d,\"partial\":false}", total,
                     TD_ROW_JSON_PER_PAGE);
    bool ok =
        td_split_append_text(m->view, &head, body, m->err) && td_split_append_text(m->view, &m->rows, body, m->err);
    td_buffer_fini(&head);
    return ok;
}

bool td_row_json_append(const struct td_split_view *view, const struct td_row_list *list, uint64_t total,
                        struct td_body *body, struct td_error *err)
{
    struct making m = {.view = view, .err = err};
    if (!td_may_wait(err)) /* rows are read one by one */
        return false;
    td_buffer_init_budget(&m.rows, view->budget);
    td_buffer_init_budget(&m.scratch, view->budget);
    td_buffer_init_budget(&m.header.text, view->budget);
    bool ok = td_split_files_init(&m.files, view, list->count > 0 ? list->count : 1, err) &&
              td_row_features_init(&m.features, view->budget, err);
    if (ok && list->count > 1)
        td_split_files_read_ahead(&m.files, list);
    ok = ok && write_document(&m, list, total, body);
    td_split_files_fini(&m.files);
    td_row_features_fini(&m.features);
    td_buffer_fini(&m.rows);
    td_buffer_fini(&m.scratch);
    td_buffer_fini(&m.header.text);
    free(m.header.ends);
    if (!ok)
        td_body_fini(body);
    return ok;
}
