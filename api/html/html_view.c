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

static void destroy(void *context)
{
    struct td_html_page *page = context;
    td_buffer_fini(&page->head);
    td_buffer_fini(&page->base);
    td_snapshot_unref(page->snapshot);
    free(page);
}

static const struct td_rendered_class page_class = {write_head, write_row, write_tail, destroy};

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
