/* A page as a generated blob: rows between a head and a tail, rendered when they are sent. The whole is rendered once
 * to learn its length and its tag, and never held: one piece is, and a fixed number of marks where others begin. What a
 * page takes in memory does not grow with its rows. */
#ifndef TD_API_HTML_HTML_VIEW_H
#define TD_API_HTML_HTML_VIEW_H

#include "catalog/snapshot.h"
#include "core/buffer.h"
#include "storage/blob.h"

/* What a page shows. */
struct td_html_page {
    struct td_snapshot *snapshot;
    const struct td_model *model; /* for write_row; may be NULL */
    struct td_buffer head;        /* all before the rows; not empty */
    struct td_buffer base;        /* what the links of its rows begin with; for write_row */
    size_t name_at;               /* where names begin in the paths of its rows; for write_row */
    const char *tail;             /* static */
    size_t first_row, end_row;
    /* Renders the row of this number, or nothing; returns the number of the next one. The same each time. */
    size_t (*write_row)(const struct td_html_page *page, size_t row, struct td_buffer *out);
};

/* A blob over the page (one reference for the caller) and the tag of its bytes. Takes over the page's buffers, also on
 * failure, and a reference on the snapshot. To be read by one thread at a time. */
bool td_html_view_create(const struct td_html_page *page, struct td_blob **out, char tag[TD_TAG_BYTES],
                         struct td_error *err);

#endif
