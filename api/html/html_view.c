#include "api/html/html_view.h"

#include "http/rendered.h"

#include <stdlib.h>

static void write_head(void *context, struct td_buffer *out)
{
    const struct td_html_page *page = context;
    td_buffer_append(out, page->head.data, page->head.len);
}

static size_t write_row(void *context, size_t row, size_t shown, struct td_buffer *out)
{
    const struct td_html_page *page = context;
    (void)shown;
    return page->write_row(page, row, out);
}

static void write_tail(void *context, const struct td_rendered_end *end, struct td_buffer *out)
{
    const struct td_html_page *page = context;
    (void)end;
    td_buffer_puts(out, page->tail);
}

static void destroy_page(void *context)
{
    struct td_html_page *page = context;
    td_buffer_fini(&page->head);
    td_buffer_fini(&page->base);
    td_snapshot_unref(page->snapshot);
    free(page);
}

static const struct td_rendered_class page_class = {write_head, write_row, write_tail, destroy_page};

bool td_html_view_create(const struct td_html_page *page, struct td_blob **out, char tag[TD_TAG_BYTES],
                         struct td_error *err)
{
    const struct td_rendered_rows rows = {
        .first = page->first_row, .end = page->end_row, .most_shown = SIZE_MAX, .most_marks = 256};
    struct td_html_page taken = *page;
    struct td_html_page *context = malloc(sizeof *context);
    if (context == NULL || page->head.failed || page->base.failed) {
        td_buffer_fini(&taken.head);
        td_buffer_fini(&taken.base);
        free(context);
        return td_error_no_memory(err);
    }
    *context = taken;
    context->snapshot = td_snapshot_ref(page->snapshot);
    return td_rendered_create(&page_class, context, &rows, NULL, NULL, out, tag, err);
}

void td_html_write_text(struct td_buffer *out, struct td_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        const char *entity = text.p[i] == '&'   ? "&amp;"
                             : text.p[i] == '<' ? "&lt;"
                             : text.p[i] == '>' ? "&gt;"
                             : text.p[i] == '"' ? "&quot;"
                                                : NULL;
        if (entity != NULL)
            td_buffer_puts(out, entity);
        else
            td_buffer_putc(out, text.p[i]);
    }
}

void td_html_begin(struct td_buffer *out, struct td_text title)
{
    td_buffer_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    td_html_write_text(out, title);
    td_buffer_puts(out, "</title>\n<style>body{font:16px/1.5 sans-serif;margin:2em}th{text-align:left}"
                        "td{padding:0 2em 0 0}td.n{text-align:right}"
                        "pre{white-space:pre-wrap;overflow-wrap:anywhere}</style>\n</head>\n<body>\n<h1>");
    td_html_write_text(out, title);
    td_buffer_puts(out, "</h1>\n");
}

void td_html_describe(struct td_response *response, const char *tag, const char *policy)
{
    td_response_describe(response, "text/html; charset=utf-8");
    td_response_set_etag(response, tag);
    td_response_add_header(response, "Content-Security-Policy", "%s", policy);
    td_response_add_header(response, "X-Content-Type-Options", "nosniff");
}
