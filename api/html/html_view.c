#include "api/html/html_view.h"

#include <stdlib.h>
#include <string.h>

/* Text rendered at a time; a piece ends with the row that crosses this. */
enum { PIECE_BYTES = 32 * 1024, MARKS = 256 };

/* A place between two rows: how much text is before it, and the row behind it. */
struct mark {
    uint64_t off;
    size_t row;
};

struct view {
    struct td_blob blob;
    struct td_html_page page;
    struct mark marks[MARKS]; /* where some pieces begin, in order; the first is the page's beginning */
    size_t mark_count;
    uint64_t mark_step;        /* bytes that two of them are apart, at least */
    struct td_buffer piece;    /* the text rendered last: */
    struct mark begin, behind; /* where it begins, and where the next one does */
};

static struct view *view_of(struct td_blob *blob)
{
    return (struct view *)blob;
}

static void view_destroy(struct td_blob *blob)
{
    struct view *view = view_of(blob);
    td_buffer_fini(&view->page.head);
    td_buffer_fini(&view->page.base);
    td_buffer_fini(&view->piece);
    td_snapshot_unref(view->page.snapshot);
    free(view);
}

/* Renders the piece at this place. False: out of memory, and there is no piece then. */
static bool render(struct view *view, struct mark at)
{
    const struct td_html_page *page = &view->page;
    struct td_buffer *piece = &view->piece;
    size_t row = at.row;
    td_buffer_clear(piece);
    if (at.off == 0)
        td_buffer_append(piece, page->head.data, page->head.len);
    while (row < page->end_row && piece->len < PIECE_BYTES && !piece->failed)
        row = page->write_row(page, row, piece);
    if (row >= page->end_row)
        td_buffer_puts(piece, page->tail);
    bool ok = !piece->failed;
    if (!ok)
        td_buffer_clear(piece);
    view->begin = at;
    view->behind = ok ? (struct mark){.off = at.off + piece->len, .row = row} : at;
    return ok;
}

/* Remembers where a piece begins. When the room is full every second mark goes, so they are as far apart as it takes.
 */
static void add_mark(struct view *view, struct mark mark)
{
    if (view->mark_count > 0 && mark.off - view->marks[view->mark_count - 1].off < view->mark_step)
        return;
    if (view->mark_count == MARKS) {
        for (size_t i = 0; i < MARKS / 2; i++)
            view->marks[i] = view->marks[2 * i];
        view->mark_count = MARKS / 2;
        view->mark_step *= 2;
    }
    view->marks[view->mark_count++] = mark;
}

/* Renders all of it, for the length and the tag. What fits into one piece is at hand afterwards. */
static bool measure(struct view *view, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    bool ok = true;
    view->behind = (struct mark){.off = 0, .row = view->page.first_row};
    do {
        add_mark(view, view->behind);
        ok = render(view, view->behind);
        td_digest_add_content(digest, view->piece.data, view->piece.len);
    } while (ok && view->behind.row < view->page.end_row);
    view->blob.len_bytes = view->behind.off;
    return td_digest_finish(digest, tag) && ok;
}

/* The last mark that is not behind this byte. */
static struct mark find_mark(const struct view *view, uint64_t off)
{
    size_t low = 0;
    size_t high = view->mark_count;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (view->marks[mid].off <= off)
            low = mid;
        else
            high = mid;
    }
    return view->marks[low];
}

/* Renders the piece that holds this byte, which lies within the blob. Who reads on gets the next piece without a
 * search. */
static bool load(struct view *view, uint64_t off)
{
    if (view->begin.off <= off && off < view->behind.off)
        return true;
    struct mark at = find_mark(view, off);
    if (view->behind.off <= off && view->behind.off > at.off)
        at = view->behind;
    while (render(view, at)) {
        if (off < view->behind.off)
            return true;
        at = view->behind;
    }
    return false;
}

static bool view_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct view *view = view_of(blob);
    char *to = out;
    while (len > 0) {
        if (!load(view, off))
            return td_error_no_memory(err);
        uint64_t left = view->behind.off - off;
        size_t n = left < len ? (size_t)left : len;
        memcpy(to, view->piece.data + (off - view->begin.off), n);
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

static const struct td_blob_class view_class = {.destroy = view_destroy, .read = view_read};

bool td_html_view_create(const struct td_html_page *page, struct td_blob **out, char tag[TD_TAG_BYTES],
                         struct td_error *err)
{
    struct view *view = calloc(1, sizeof *view);
    struct td_html_page taken = *page;
    if (view == NULL || page->head.failed || page->base.failed) {
        td_buffer_fini(&taken.head);
        td_buffer_fini(&taken.base);
        free(view);
        return td_error_no_memory(err);
    }
    view->blob.class = &view_class;
    atomic_init(&view->blob.refs, 1);
    view->page = taken;
    view->page.snapshot = td_snapshot_ref(page->snapshot);
    view->mark_step = PIECE_BYTES;
    td_buffer_init(&view->piece);
    if (!measure(view, tag)) {
        view_destroy(&view->blob);
        return td_error_no_memory(err);
    }
    *out = &view->blob;
    return true;
}
