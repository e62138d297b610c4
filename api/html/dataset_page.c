/* Plan: the rows are read before the page is made, cut to a fixed length, so that the page shows the same rows each
 * time it is rendered. JSON and CSV come from the document that clients get for format=json (rank/row_json.h).
 *
 * What is hard: rows come from strangers. They may be long, so a document is read only up to MOST_BYTES, and a table
 * has at most MOST_COLUMNS columns. */
#include "api/html/dataset_page.h"

#include "api/html/card_view.h"
#include "api/html/command_words.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "catalog/dataset/data_file.h"
#include "catalog/dataset/dataset.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "core/waiting.h"
#include "parser/rows/arrow/arrow.h"
#include "rank/row_answer.h"
#include "rank/row_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_ROWS = 10, CELL_BYTES = 1000, MOST_COLUMNS = 64, MOST_BYTES = 1 << 20, MOST_PROBLEMS = 100 };

#define ROWS_UNKNOWN UINT64_MAX

/* A part of the page's texts. */
struct piece {
    size_t at, len;
    bool is_cut;
};

struct page {
    struct td_snapshot *snapshot;
    const struct td_dataset *dataset;
    const struct td_split *split; /* that is shown; NULL: the dataset has none */
    uint64_t *split_rows;         /* of each split; ROWS_UNKNOWN while its files are indexed */
    char *origin;
    struct td_card_view card;
    struct td_buffer texts; /* the names and types of columns, and the cells */
    struct piece names[MOST_COLUMNS], types[MOST_COLUMNS], cells[SHOWN_ROWS * MOST_COLUMNS];
    size_t column_count, row_count;
    uint64_t first, total; /* the number of the row that was asked for; the rows of the split */
    bool is_readable;      /* rows of the split can be cut out */
    bool has_images, has_more_columns;
    char reason[512]; /* why rows are not shown; empty: they are */
};

static void destroy(void *context)
{
    struct page *page = context;
    td_snapshot_unref(page->snapshot);
    td_buffer_fini(&page->texts);
    td_card_view_fini(&page->card);
    free(page->split_rows);
    free(page->origin);
    free(page);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Copies at most CELL_BYTES of the text to the page's texts. */
static struct piece keep(struct page *page, struct td_text text)
{
    struct piece piece = {.at = page->texts.len, .is_cut = text.len > CELL_BYTES};
    piece.len = td_utf8_cut(text, CELL_BYTES);
    td_buffer_append(&page->texts, text.p, piece.len);
    return piece;
}

/* Copies a JSON value as people read it: a string without its quotes and escapes, null as nothing. */
static struct piece keep_value(struct page *page, struct td_text value, struct td_buffer *scratch)
{
    struct td_json json;
    size_t len;
    if (td_text_equals(value, "null"))
        return keep(page, TD_TEXT(""));
    td_buffer_clear(scratch);
    td_json_init(&json, value, 0, NULL);
    if (td_json_next(&json) == TD_JSON_STRING && td_buffer_reserve(scratch, json.value_len + 1) &&
        td_json_string(&json, scratch->data, json.value_len + 1, &len))
        return keep(page, td_text_n(scratch->data, len));
    page->texts.failed = page->texts.failed || scratch->failed;
    return keep(page, value);
}

/* Returns a column's type in one word, from its feature's type (rank/row_features.h). */
static struct td_text type_of(struct td_text feature)
{
    const struct td_text of_value = TD_TEXT("{\"dtype\":\"");
    if (td_text_begins(feature, of_value)) {
        struct td_text rest = td_text_skip(feature, of_value.len);
        return td_text_take_until(&rest, '"');
    }
    if (td_text_begins(feature, TD_TEXT("{\"feature\":")))
        return TD_TEXT("list");
    return td_text_begins(feature, TD_TEXT("{\"_type\":\"Json\"")) ? TD_TEXT("json") : TD_TEXT("object");
}

/* Skips a value of the document, and returns its text. */
static struct td_text take_value(struct td_json *json)
{
    size_t at = json->pos;
    if (!td_json_skip(json))
        return TD_TEXT("");
    while (at < json->pos && strchr(" \t\r\n:", json->text.p[at]) != NULL)
        at++;
    return td_text_n(json->text.p + at, json->pos - at);
}

/* Skips the rest of the object that has begun. */
static bool leave_object(struct td_json *json)
{
    enum td_json_token token;
    while ((token = td_json_next(json)) == TD_JSON_KEY)
        if (!td_json_skip(json))
            return false;
    return token == TD_JSON_OBJECT_END;
}

static bool read_columns(struct page *page, struct td_json *json, struct td_text spellings[MOST_COLUMNS],
                         struct td_buffer *scratch)
{
    enum td_json_token token;
    if (!td_json_seek(json, "features") || td_json_next(json) != TD_JSON_ARRAY_BEGIN)
        return false;
    while ((token = td_json_next(json)) == TD_JSON_OBJECT_BEGIN) {
        if (!td_json_seek(json, "name"))
            return false;
        struct td_text name = take_value(json);
        if (!td_json_seek(json, "type"))
            return false;
        struct td_text type = type_of(take_value(json));
        page->has_more_columns = page->has_more_columns || page->column_count == MOST_COLUMNS;
        if (page->column_count < MOST_COLUMNS && name.len >= 2) {
            spellings[page->column_count] = td_text_n(name.p + 1, name.len - 2);
            page->names[page->column_count] = keep_value(page, name, scratch);
            page->types[page->column_count++] = keep(page, type);
        }
        if (!leave_object(json))
            return false;
    }
    return token == TD_JSON_ARRAY_END;
}

/* Reads the members of the row that has begun. */
static bool read_cells(struct page *page, struct td_json *json, const struct td_text spellings[MOST_COLUMNS],
                       struct td_buffer *scratch)
{
    enum td_json_token token;
    struct piece *cells = page->cells + page->row_count * MOST_COLUMNS;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        struct td_text name = td_json_raw(json);
        struct td_text value = take_value(json);
        for (size_t i = 0; i < page->column_count; i++)
            if (td_text_compare(spellings[i], name) == 0)
                cells[i] = keep_value(page, value, scratch);
    }
    page->row_count++;
    return token == TD_JSON_OBJECT_END;
}

/* Reads the document of rows. Returns false if it is not as row_json.h says. */
static bool read_document(struct page *page, struct td_text text)
{
    struct td_text spellings[MOST_COLUMNS] = {{0}};
    struct td_buffer scratch;
    struct td_json json;
    td_buffer_init(&scratch);
    td_json_init(&json, text, 0, NULL);
    bool ok = td_json_next(&json) == TD_JSON_OBJECT_BEGIN && read_columns(page, &json, spellings, &scratch) &&
              td_json_seek(&json, "rows") && td_json_next(&json) == TD_JSON_ARRAY_BEGIN;
    while (ok && page->row_count < SHOWN_ROWS && td_json_next(&json) == TD_JSON_OBJECT_BEGIN)
        ok = td_json_seek(&json, "row") && td_json_next(&json) == TD_JSON_OBJECT_BEGIN &&
             read_cells(page, &json, spellings, &scratch) && leave_object(&json);
    td_buffer_fini(&scratch);
    return ok;
}

/* Reads rows of JSON or CSV. Sets *is_long, and reads nothing, if their document is too long for a page. */
static bool read_json(struct page *page, const struct td_split_view *view, const struct td_row_list *list,
                      bool *is_long, struct td_error *err)
{
    struct td_body body;
    struct td_body_cursor cursor = {0};
    td_body_init(&body);
    if (!td_row_json_append(view, list, page->total, &body, err))
        return false;
    *is_long = body.total_bytes > MOST_BYTES;
    const size_t len = *is_long ? 0 : (size_t)body.total_bytes;
    char *text = malloc(len + 1);
    bool ok = (text != NULL || td_error_no_memory(err)) && (*is_long || td_body_read(&body, &cursor, text, len, err));
    if (ok && !*is_long && !read_document(page, td_text_n(text, len)))
        ok = td_error_set(err, TD_INTERNAL, "the rows' document cannot be read");
    free(text);
    td_body_fini(&body);
    return ok;
}

/* Reads one row as a text, or says how long it is. */
static bool read_bare(struct page *page, const struct td_split_view *view, uint64_t row, struct td_error *err)
{
    char text[CELL_BYTES + 1];
    struct td_body body;
    struct td_body_cursor cursor = {0};
    const struct td_row_list list = {.first = row, .count = 1};
    bool ok = true;
    td_body_init(&body);
    if (!td_row_answer_append(view, &list, TD_ROWS_BARE, &body, err))
        return false;
    struct piece *cell = &page->cells[page->row_count * MOST_COLUMNS];
    size_t len = body.total_bytes < sizeof text ? (size_t)body.total_bytes : sizeof text;
    if (view->split->format->is_text) {
        ok = td_body_read(&body, &cursor, text, len, err);
        *cell = ok ? keep(page, td_text_n(text, len)) : (struct piece){0};
    } else {
        int n = snprintf(text, sizeof text, "%" PRIu64 " bytes", body.total_bytes);
        *cell = keep(page, td_text_n(text, (size_t)n));
    }
    page->row_count += ok ? 1 : 0;
    td_body_fini(&body);
    return ok;
}

static bool read_rows(struct page *page, const struct td_split_view *view, struct td_error *err)
{
    const uint64_t left = page->total - page->first;
    const struct td_row_list list = {.first = page->first, .count = left < SHOWN_ROWS ? (size_t)left : SHOWN_ROWS};
    const struct td_row_format *format = view->split->format;
    bool is_long = false;
    if (list.count > 0 && td_row_json_has(format)) {
        struct td_error why = TD_ERROR_INIT;
        if (read_json(page, view, &list, &is_long, &why) && !is_long)
            return true;
        if (why.code == TD_RESOURCE_EXHAUSTED)
            return td_error_copy(err, &why);
        page->row_count = page->column_count = 0; /* rows that are no JSON are shown as texts */
    }
    page->has_images = format == &td_row_format_images;
    page->names[0] = keep(page, page->has_images ? TD_TEXT("image") : TD_TEXT("row"));
    page->types[0] = keep(page, td_text_of(format->is_text ? "text" : format->row_type));
    page->column_count = 1;
    for (size_t i = 0; i < list.count; i++)
        if (!read_bare(page, view, page->first + i, err))
            return false;
    return true;
}

/* Reads the rows that the page shows, or the reason why it shows none. Returns false with an error when memory is
 * short, which says nothing of the rows. */
static bool read_split(struct page *page, const struct td_call *call, uint64_t row, struct td_error *err)
{
    const struct td_split *split = page->split;
    struct td_error why = TD_ERROR_INIT;
    const struct td_split_rows *rows = td_split_rows_get(split, &why);
    bool is_indexed = td_split_progress(split).ready_count == split->file_count;
    bool ok = rows != NULL;
    page->first = row;
    page->is_readable = ok && rows->reason == NULL;
    if (ok && rows->reason != NULL)
        ok = td_error_set(&why, TD_FAILED_PRECONDITION, "%s", rows->reason);
    if (ok) {
        const struct td_split_view view = {.catalog = call->api->catalog,
                                           .snapshot = call->snapshot,
                                           .split = split,
                                           .rows = rows,
                                           .budget = td_shared_budget_of(&call->api->rows, call->request->client),
                                           .cancel = call->request->cancel};
        page->total = rows->row_count;
        if (row >= rows->row_count && row > 0) {
            if (rows->row_count == 0)
                ok = td_error_set(&why, TD_NOT_FOUND, "split \"%.*s\" has no rows",
                                  TD_SHOW(td_text_of(split->name), 100));
            else
                ok = td_error_set(&why, TD_NOT_FOUND, "there is no row %" PRIu64 "; rows are 0 to %" PRIu64, row,
                                  rows->row_count - 1);
        } else if (split->format == &td_row_format_arrow) /* its rows are no text, and are answered as one stream */
            ok = td_error_set(&why, TD_FAILED_PRECONDITION,
                              "rows of this format are answered as an Arrow stream; the Python client reads them");
        else
            ok = read_rows(page, &view, &why);
    }
    if (!ok && why.code == TD_RESOURCE_EXHAUSTED && is_indexed)
        return td_error_copy(err, &why);
    if (!ok)
        (void)snprintf(page->reason, sizeof page->reason, "%s", why.message);
    return true;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static void write_piece(const struct page *page, const struct piece *piece, struct td_buffer *out)
{
    td_buffer_append(out, page->texts.data + piece->at, piece->len);
    if (piece->is_cut)
        td_buffer_puts(out, " ...");
}

static void write_split(const struct td_split *split, uint64_t rows, enum td_dataset_slot slot, struct td_buffer *out)
{
    switch (slot) {
    case TD_SLOT_DATASET_SPLIT:
        td_buffer_puts(out, split->name);
        break;
    case TD_SLOT_DATASET_SPLIT_ROWS:
        if (rows != ROWS_UNKNOWN)
            td_buffer_u64(out, rows);
        break;
    case TD_SLOT_DATASET_SPLIT_ROWS_SHOWN:
        if (rows != ROWS_UNKNOWN)
            td_shown_number(out, rows);
        else
            td_buffer_puts(out, "not counted yet");
        break;
    case TD_SLOT_DATASET_SPLIT_BYTES:
        td_buffer_u64(out, split->file_bytes);
        break;
    case TD_SLOT_DATASET_SPLIT_SIZE:
        td_shown_bytes(out, split->file_bytes);
        break;
    case TD_SLOT_DATASET_SPLIT_FILES:
        td_shown_number(out, split->file_count);
        break;
    case TD_SLOT_DATASET_SPLIT_FORMAT:
        td_buffer_puts(out, split->format->name);
        break;
    default:
        break;
    }
}

static void write_caption(const struct page *page, struct td_buffer *out)
{
    if (page->row_count == 0) {
        td_buffer_puts(out, "No rows");
        return;
    }
    td_buffer_puts(out, "Rows ");
    td_shown_number(out, page->first);
    td_buffer_puts(out, " to ");
    td_shown_number(out, page->first + page->row_count - 1);
    td_buffer_puts(out, " of ");
    td_shown_number(out, page->total);
    if (page->has_more_columns)
        td_buffer_printf(out, "; the first %d columns", MOST_COLUMNS);
}

static void write_image_link(const struct page *page, uint64_t row, struct td_buffer *out)
{
    td_buffer_puts(out, "/datasets/");
    td_uri_encode(out, td_text_of(page->dataset->id), true);
    td_buffer_printf(out, "/rows/%" PRIu64 "?split=", row);
    td_uri_encode(out, td_text_of(page->split->name), false);
}

/* Writes the link to the first rows, as they are stored. */
static void write_rows_link(const struct page *page, struct td_buffer *out)
{
    td_buffer_puts(out, "/datasets/");
    td_uri_encode(out, td_text_of(page->dataset->id), true);
    td_buffer_puts(out, page->split->format == &td_row_format_arrow ? "/rows?split=" : "/rows?format=raw&split=");
    td_uri_encode(out, td_text_of(page->split->name), false);
}

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_dataset *dataset = page->dataset;
    const struct td_repo *repo = dataset->repo;
    const enum td_dataset_slot slot = (enum td_dataset_slot)number;
    const size_t row = place->row[0];
    switch (slot) {
    case TD_SLOT_DATASET_TITLE:
        td_buffer_puts(out, dataset->id);
        break;
    case TD_SLOT_DATASET_BYTES:
        td_buffer_u64(out, repo->file_bytes);
        break;
    case TD_SLOT_DATASET_BYTES_SHOWN:
        td_shown_bytes(out, repo->file_bytes);
        break;
    case TD_SLOT_DATASET_FILES:
        td_buffer_u64(out, repo->entry_count);
        break;
    case TD_SLOT_DATASET_FILES_SHOWN:
        td_shown_number(out, repo->entry_count);
        break;
    case TD_SLOT_DATASET_SPLIT_COUNT:
        td_buffer_u64(out, dataset->split_count);
        break;
    case TD_SLOT_DATASET_UPDATED:
        td_buffer_printf(out, "%" PRId64, repo->updated_ns);
        break;
    case TD_SLOT_DATASET_UPDATED_SHOWN:
        td_shown_time(out, repo->updated_ns);
        break;
    case TD_SLOT_DATASET_PROBLEM_FILE:
        td_buffer_puts(out, dataset->problems.items[row].path);
        break;
    case TD_SLOT_DATASET_PROBLEM_TEXT:
        td_buffer_puts(out, dataset->problems.items[row].message);
        break;
    case TD_SLOT_DATASET_SPLIT:
    case TD_SLOT_DATASET_SPLIT_ROWS:
    case TD_SLOT_DATASET_SPLIT_ROWS_SHOWN:
    case TD_SLOT_DATASET_SPLIT_BYTES:
    case TD_SLOT_DATASET_SPLIT_SIZE:
    case TD_SLOT_DATASET_SPLIT_FILES:
    case TD_SLOT_DATASET_SPLIT_FORMAT:
        write_split(&dataset->splits[row], page->split_rows[row], slot, out);
        break;
    case TD_SLOT_DATASET_SHOWN_SPLIT:
        td_buffer_puts(out, page->split->name);
        break;
    case TD_SLOT_DATASET_FIRST_ROW:
        td_buffer_u64(out, page->first);
        break;
    case TD_SLOT_DATASET_REASON_TEXT:
        td_buffer_puts(out, page->reason);
        break;
    case TD_SLOT_DATASET_TOTAL:
        td_buffer_u64(out, page->total);
        break;
    case TD_SLOT_DATASET_ROWS_LINK:
        write_rows_link(page, out);
        break;
    case TD_SLOT_DATASET_ROWS_CAPTION:
        write_caption(page, out);
        break;
    case TD_SLOT_DATASET_COLUMN_TYPE:
        write_piece(page, &page->types[row], out);
        break;
    case TD_SLOT_DATASET_COLUMN:
        write_piece(page, &page->names[row], out);
        break;
    case TD_SLOT_DATASET_NUMBER:
        td_buffer_u64(out, page->first + row);
        break;
    case TD_SLOT_DATASET_CELL:
        write_piece(page, &page->cells[row * MOST_COLUMNS + place->row[1]], out);
        break;
    case TD_SLOT_DATASET_IMAGE_LINK:
        write_image_link(page, page->first + row, out);
        break;
    case TD_SLOT_DATASET_BEFORE_ROW:
        td_buffer_u64(out, page->first < SHOWN_ROWS ? 0 : page->first - SHOWN_ROWS);
        break;
    case TD_SLOT_DATASET_AFTER_ROW:
        td_buffer_u64(out, page->first + page->row_count);
        break;
    case TD_SLOT_DATASET_CARD_REASON:
        td_buffer_puts(out, td_card_view_reason(&page->card));
        break;
    case TD_SLOT_DATASET_CARD:
        td_buffer_append(out, page->card.card->html, page->card.card->html_len);
        break;
    case TD_SLOT_DATASET_ORIGIN:
        td_buffer_puts(out, page->origin);
        break;
    case TD_SLOT_DATASET_LINE_ID:
        td_uri_encode(out, td_text_of(dataset->id), true);
        break;
    case TD_SLOT_DATASET_LINE_SPLIT:
        td_uri_encode(out, td_text_of(page->split->name), false);
        break;
    case TD_SLOT_DATASET_LINE_REPO:
        td_command_word(out, td_text_of(repo->hub_id));
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    const struct td_problems *problems = &page->dataset->problems;
    switch ((enum td_dataset_section)section) {
    case TD_SECTION_DATASET_PROBLEMS_SOME:
    case TD_SECTION_DATASET_PROBLEMS_END:
        return problems->count > 0;
    case TD_SECTION_DATASET_PROBLEMS:
        return problems->count < MOST_PROBLEMS ? problems->count : MOST_PROBLEMS;
    case TD_SECTION_DATASET_SPLITS_SOME:
    case TD_SECTION_DATASET_SPLITS_END:
    case TD_SECTION_DATASET_SHOWN:
    case TD_SECTION_DATASET_LINES:
        return page->split != NULL;
    case TD_SECTION_DATASET_SPLITS:
        return page->dataset->split_count;
    case TD_SECTION_DATASET_READABLE:
        return page->is_readable;
    case TD_SECTION_DATASET_REASON:
        return page->reason[0] != '\0';
    case TD_SECTION_DATASET_TABLE_SOME:
    case TD_SECTION_DATASET_TABLE_ROWS:
    case TD_SECTION_DATASET_TABLE_END:
        return page->column_count > 0;
    case TD_SECTION_DATASET_COLUMNS:
    case TD_SECTION_DATASET_CELLS:
        return page->column_count;
    case TD_SECTION_DATASET_ROWS:
        return page->row_count;
    case TD_SECTION_DATASET_TEXT:
        return !page->has_images;
    case TD_SECTION_DATASET_IMAGE:
        return page->has_images;
    case TD_SECTION_DATASET_BEFORE:
        return page->first > 0;
    case TD_SECTION_DATASET_CARD_FAULT:
        return td_card_view_reason(&page->card) != NULL;
    case TD_SECTION_DATASET_CARD_LINK:
    case TD_SECTION_DATASET_CARD_SHOWN:
        return td_card_view_has_html(&page->card);
    case TD_SECTION_DATASET_AFTER:
        return page->first + page->row_count < page->total;
    }
    return 0;
}

/* ---- the call ------------------------------------------------------------------------------------------ */

/* Chooses the split: that of ?split=, else the first. Returns false after it answered 404. */
static bool choose_split(const struct td_call *call, struct page *page)
{
    const struct td_text *name = td_uri_parameter(call->uri, "split");
    const struct td_dataset *dataset = call->dataset;
    page->split = dataset->split_count > 0 ? &dataset->splits[0] : NULL;
    if (name != NULL)
        page->split = td_dataset_find_split(dataset, *name);
    if (name == NULL || page->split != NULL)
        return true;
    td_response_fail(call->response, 404, NULL, "dataset \"%.*s\" has no split \"%.*s\"",
                     TD_SHOW(td_text_of(dataset->id), 200), TD_SHOW(*name, 200));
    return false;
}

/* Notes the numbers of rows, since indexes may become ready between two renderings of the page. Returns false when
 * memory is short. */
static bool note_rows(struct page *page)
{
    const struct td_dataset *dataset = page->dataset;
    page->split_rows = calloc(dataset->split_count + 1, sizeof *page->split_rows);
    for (size_t i = 0; page->split_rows != NULL && i < dataset->split_count; i++) {
        const struct td_split_rows *rows = td_split_rows_get(&dataset->splits[i], NULL);
        page->split_rows[i] = rows == NULL ? ROWS_UNKNOWN : rows->row_count;
    }
    return page->split_rows != NULL;
}

/* Reads the dataset's card. Its links lead to the files as the page's link does. */
static void read_card(const struct td_call *call, struct page *page)
{
    const struct td_repo *repo = page->dataset->repo;
    struct td_buffer base;
    td_buffer_init(&base);
    td_buffer_puts(&base, "/datasets/");
    td_uri_encode(&base, td_text_of(page->dataset->id), true);
    td_buffer_puts(&base, "/resolve/main/");
    td_card_view_read(call,
                      td_snapshot_find_in_run(page->snapshot, repo->first_entry, repo->entry_count, repo->prefix_len,
                                              TD_TEXT("README.md")),
                      &base, &page->card);
    td_buffer_fini(&base);
}

/* Fills in the page. Returns false with an error when memory is short, and the reason is not of the rows alone. */
static bool fill(const struct td_call *call, struct page *page, uint64_t row, struct td_error *err)
{
    struct td_buffer origin;
    td_buffer_init(&origin);
    if (!td_command_origin(&origin, call))
        td_buffer_puts(&origin, "http://HOST");
    page->origin = td_buffer_release_string(&origin);
    if (page->origin == NULL || !note_rows(page))
        return td_error_no_memory(err);
    if (!td_may_wait(err) || (page->split != NULL && !read_split(page, call, row, err)))
        return false;
    read_card(call, page);
    return !page->texts.failed || td_error_no_memory(err);
}

void td_html_dataset(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_dataset, .write = write_slot, .rows = count_rows, .destroy = destroy};
    static const char *const known[] = {"split", "row", "file_start", "timeout", NULL}; /* two are of the JSON alone */
    struct td_error err = TD_ERROR_INIT;
    uint64_t row = 0;
    if (!td_call_check_parameters(call, known) || !td_call_read_number(call, "row", UINT64_MAX, &row))
        return;
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        td_call_no_memory(call);
        return;
    }
    page->snapshot = td_snapshot_ref(call->snapshot);
    page->dataset = call->dataset;
    td_buffer_init(&page->texts);
    if (!choose_split(call, page)) {
        destroy(page);
    } else if (!fill(call, page, row, &err)) {
        td_response_fail_error(call->response, &err);
        destroy(page);
    } else {
        td_page_answer(call->response, &class, page);
        td_command_vary(call->response);
    }
}
