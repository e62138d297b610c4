/* An HTML page as a blob whose rows are rendered while it is sent (http/rendered.h). */
#ifndef TD_API_HTML_HTML_VIEW_H
#define TD_API_HTML_HTML_VIEW_H

#include "catalog/model/snapshot.h"
#include "core/buffer.h"
#include "http/response.h"
#include "storage/blob.h"

/* The parts of a page. */
struct td_html_page {
    struct td_snapshot *snapshot;
    const struct td_model *model; /* for write_row; may be NULL */
    struct td_buffer head;        /* the text before the rows; not empty */
    struct td_buffer base;        /* the beginning of the links of the rows, for write_row */
    size_t name_at;               /* where names begin in the paths of the rows, for write_row */
    const char *tail;             /* the text after the rows; static, not empty */
    size_t first_row, end_row;
    /* Appends the row, or nothing for a row that is left out. Returns the number of the next row. Appends the same each
     * time. */
    size_t (*write_row)(const struct td_html_page *page, size_t row, struct td_buffer *out);
};

/* Appends text, with HTML's special characters as entities. */
void td_html_write_text(struct td_buffer *out, struct td_text text);

/* Appends the beginning of every page, up to its heading. */
void td_html_begin(struct td_buffer *out, struct td_text title);

/* Marks the body as a whole page with this tag. policy: the Content-Security-Policy, which must allow no scripts, since
 * names and rows come from strangers. */
void td_html_describe(struct td_response *response, const char *tag, const char *policy);

/* Creates a blob of the page, with one reference for the caller, and writes the tag of its bytes. Takes over the page's
 * buffers, also on failure, and a reference on the snapshot. One thread at a time may read the blob. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_html_view_create(const struct td_html_page *page, struct td_blob **out, char tag[TD_TAG_BYTES],
                         struct td_error *err);

#endif
