/* The page is one text in memory: a few rows, cut to a fixed length, of a bounded number of splits.
 *
 * What is hard: rows come from strangers. Text is escaped, bytes that are not UTF-8 are replaced, and the
 * Content-Security-Policy allows no scripts and images of this server alone. */
#include "api/html/html_dataset.h"

#include "api/html/html_view.h"
#include "catalog/dataset/data_file.h"
#include "catalog/dataset/dataset.h"
#include "core/utf8.h"
#include "parser/rows/arrow/arrow.h"
#include "rank/row_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_SPLITS = 5, SHOWN_ROWS = 10, SHOWN_BYTES = 1000 };

static void write_split_link(struct td_buffer *out, const struct td_call *call, const struct td_split *split,
                             const char *before)
{
    td_buffer_puts(out, "/datasets/");
    td_uri_encode(out, td_text_of(call->dataset->id), true);
    td_buffer_puts(out, before);
    td_buffer_puts(out, "split=");
    td_uri_encode(out, td_text_of(split->name), false);
}

/* Writes the beginning of a row that is a text. Replaces bytes that are not UTF-8 by "?". */
static void write_shown(struct td_buffer *out, const char *text, size_t len, bool is_cut)
{
    td_buffer_puts(out, "<pre>");
    for (size_t at = 0; at < len;) {
        size_t n = td_utf8_sequence((const uint8_t *)text + at, len - at);
        if (n == 0 && is_cut && len - at < 4)
            break; /* the text may be cut inside a character */
        td_html_write_text(out, n == 0 ? TD_TEXT("?") : td_text_n(text + at, n));
        at += n == 0 ? 1 : n;
    }
    td_buffer_puts(out, is_cut ? " ...</pre>\n" : "</pre>\n");
}

/* Writes one row. Returns false with the reason when it cannot be read. */
static bool write_row(struct td_buffer *out, const struct td_split_view *view, const struct td_call *call, uint64_t row,
                      struct td_error *err)
{
    const struct td_split *split = view->split;
    char text[SHOWN_BYTES];
    struct td_body body;
    struct td_body_cursor cursor = {0};
    const struct td_row_list list = {.first = row, .count = 1};
    td_body_init(&body);
    if (!td_row_answer_append(view, &list, TD_ROWS_BARE, &body, err))
        return false;
    bool is_cut = body.total_bytes > sizeof text, ok = true;
    size_t len = is_cut ? sizeof text : (size_t)body.total_bytes;
    if (split->format == &td_row_format_images) {
        td_buffer_printf(out, "<img loading=\"lazy\" height=\"160\" alt=\"row %" PRIu64 "\" src=\"", row);
        char number[32];
        (void)snprintf(number, sizeof number, "/rows/%" PRIu64 "?", row);
        write_split_link(out, call, split, number);
        td_buffer_puts(out, "\">\n");
    } else if (split->format->is_text) {
        ok = td_body_read(&body, &cursor, text, len, err);
        if (ok)
            write_shown(out, text, len, is_cut);
    } else {
        td_buffer_printf(out, "<pre>row %" PRIu64 ": %" PRIu64 " bytes</pre>\n", row, body.total_bytes);
    }
    td_body_fini(&body);
    return ok;
}

static void write_reason(struct td_buffer *out, const char *reason)
{
    td_buffer_puts(out, "<p>");
    td_html_write_text(out, td_text_of(reason));
    td_buffer_puts(out, "</p>\n");
}

/* Writes why rows are not shown. Returns false with the error when memory is short, which says nothing of the rows. */
static bool write_failure(struct td_buffer *out, const struct td_split *split, const struct td_error *why,
                          struct td_error *err)
{
    bool is_indexed = td_split_progress(split).ready_count == split->file_count;
    if (why->code == TD_RESOURCE_EXHAUSTED && is_indexed)
        return td_error_copy(err, why);
    write_reason(out, why->message);
    return true;
}

/* Writes the first rows of a split, or why none can be shown. Returns false when memory is short. */
static bool write_rows(struct td_buffer *out, const struct td_call *call, const struct td_split *split,
                       struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    const struct td_split_rows *rows = td_split_rows_get(split, &why);
    bool is_arrow = split->format == &td_row_format_arrow; /* its rows are no text, and are answered as one stream */
    if (rows == NULL)
        return write_failure(out, split, &why, err);
    if (rows->reason != NULL) {
        write_reason(out, rows->reason);
        return true;
    }
    const struct td_split_view view = {.catalog = call->api->catalog,
                                       .snapshot = call->snapshot,
                                       .split = split,
                                       .rows = rows,
                                       .budget = td_shared_budget_of(&call->api->rows, call->request->client),
                                       .cancel = call->request->cancel};
    td_buffer_printf(out, "<p>%" PRIu64 " rows, fingerprint %s; <a href=\"", rows->row_count, rows->fingerprint);
    write_split_link(out, call, split, is_arrow ? "/rows?" : "/rows?format=raw&amp;");
    td_buffer_puts(out, "\">the first 100</a></p>\n");
    for (uint64_t row = 0; row < rows->row_count && row < SHOWN_ROWS && !is_arrow; row++)
        if (!write_row(out, &view, call, row, &why))
            return write_failure(out, split, &why, err);
    return true;
}

/* Writes the page. Returns false when memory is short. */
static bool write_page(struct td_buffer *out, const struct td_call *call, struct td_error *err)
{
    const struct td_dataset *dataset = call->dataset;
    td_html_begin(out, td_text_of(dataset->id));
    td_buffer_puts(out, "<p><a href=\"/#\">all models and datasets</a> &middot; <a href=\"/datasets/");
    td_uri_encode(out, td_text_of(dataset->id), true);
    td_buffer_puts(out, "/resolve/main/\">files</a></p>\n");
    for (size_t i = 0; i < dataset->split_count && i < SHOWN_SPLITS; i++) {
        const struct td_split *split = &dataset->splits[i];
        td_buffer_puts(out, "<h2>");
        td_html_write_text(out, td_text_of(split->name));
        td_buffer_printf(out, "</h2>\n<p>%zu files of format %s, %" PRIu64 " bytes</p>\n", split->file_count,
                         split->format->name, split->file_bytes);
        if (!write_rows(out, call, split, err))
            return false;
    }
    if (dataset->split_count > SHOWN_SPLITS)
        td_buffer_printf(out, "<p>and %zu more splits</p>\n", dataset->split_count - SHOWN_SPLITS);
    td_buffer_puts(out, "</body>\n</html>\n");
    return true;
}

void td_html_dataset(const struct td_call *call)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    char tag[TD_TAG_BYTES];
    size_t len;
    td_buffer_init(&out);
    bool ok = write_page(&out, call, &err);
    struct td_text text = td_buffer_text(&out);
    ok = ok && ((!out.failed && td_digest_tag(text.p, text.len, tag)) || td_error_no_memory(&err));
    char *data = ok ? td_buffer_release(&out, &len) : NULL;
    ok = ok && (data != NULL || td_error_no_memory(&err)) && td_body_append_heap(&response->body, data, len, &err);
    td_buffer_fini(&out);
    if (!ok) {
        td_response_fail_error(response, &err);
        return;
    }
    td_html_describe(response, tag, "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'");
    td_response_add_header(response, "Vary", "Accept");
}
