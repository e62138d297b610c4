/* The text is the head, the rows and the tail. Offsets of marks and pieces count from the first row. Reading finds the
 * last mark that is not after the wanted byte and renders pieces from there on; a reader that continues gets the next
 * piece without a search. Marks are at least mark_step bytes apart: when there are too many, every second one is
 * dropped and the step doubles. */
#include "http/rendered.h"

#include "core/array.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 32 * 1024 }; /* a piece ends with the row that crosses this */

/* A place between two rows. */
struct mark {
    uint64_t off;
    size_t row;
    size_t shown; /* rows with text before it */
};

struct index {
    _Atomic int refs;
    char *head, *tail;
    size_t head_len, tail_len;
    struct mark *marks; /* the first is the beginning of the rows */
    size_t mark_count, mark_capacity;
    uint64_t mark_step;
    uint64_t rows_bytes;
    size_t end_row, end_shown; /* no row from end_row on, and none after end_shown rows with text */
};

struct rendered {
    struct td_blob blob;
    const struct td_rendered_class *class;
    void *context;
    struct index *index;
    struct td_buffer kept;     /* the text of all rows, or nothing */
    struct td_buffer piece;    /* the text rendered last */
    struct mark begin, behind; /* where the piece begins, and where the next one does */
};

/* ---- the index ----------------------------------------------------------------------------------------- */

static void index_unref(void *value)
{
    struct index *index = value;
    if (index == NULL || atomic_fetch_sub(&index->refs, 1) != 1)
        return;
    free(index->head);
    free(index->tail);
    free(index->marks);
    free(index);
}

static void *index_ref(void *value)
{
    struct index *index = value;
    atomic_fetch_add(&index->refs, 1);
    return index;
}

const struct td_lru_class td_rendered_index_class = {.ref = index_ref, .unref = index_unref};

static bool add_mark(struct index *index, struct mark mark, size_t most_marks)
{
    if (index->mark_count > 0 && mark.off - index->marks[index->mark_count - 1].off < index->mark_step)
        return true;
    if (index->mark_count == most_marks) {
        for (size_t i = 0; 2 * i < index->mark_count; i++)
            index->marks[i] = index->marks[2 * i];
        index->mark_count = (index->mark_count + 1) / 2;
        index->mark_step *= 2;
    }
    if (!TD_ARRAY_GROW(index->marks, index->mark_count, index->mark_capacity, NULL))
        return false;
    index->marks[index->mark_count++] = mark;
    return true;
}

/* Returns the last mark that is not after the byte. */
static struct mark find_mark(const struct index *index, uint64_t off)
{
    size_t low = 0;
    size_t high = index->mark_count;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (index->marks[mid].off <= off)
            low = mid;
        else
            high = mid;
    }
    return index->marks[low];
}

/* ---- rendering ----------------------------------------------------------------------------------------- */

/* Renders the piece that begins at the mark. Returns false, with an empty piece, when memory is short. *last becomes
 * the last row with text, where there is one. */
static bool render_piece(struct rendered *text, struct mark at, size_t *last)
{
    struct td_buffer *piece = &text->piece;
    struct mark behind = at;
    td_buffer_clear(piece);
    while (behind.row < text->index->end_row && behind.shown < text->index->end_shown && piece->len < PIECE_BYTES &&
           !piece->failed) {
        size_t len = piece->len;
        size_t next = text->class->write_row(text->context, behind.row, behind.shown, piece);
        if (piece->len > len) {
            *last = behind.row;
            behind.shown++;
        }
        behind.row = next;
    }
    bool ok = !piece->failed;
    if (!ok)
        td_buffer_clear(piece);
    behind.off = at.off + piece->len;
    text->begin = at;
    text->behind = ok ? behind : at;
    return ok;
}

static bool keep_text(void (*write)(void *context, const struct td_rendered_end *end, struct td_buffer *out),
                      void *context, const struct td_rendered_end *end, char **out, size_t *len)
{
    struct td_buffer text;
    td_buffer_init(&text);
    write(context, end, &text);
    td_buffer_putc(&text, '\0'); /* an empty text is memory, too */
    *out = td_buffer_release(&text, len);
    *len -= *out != NULL ? 1 : 0;
    return *out != NULL;
}

static void write_head(void *context, const struct td_rendered_end *end, struct td_buffer *out)
{
    const struct rendered *text = context;
    (void)end;
    text->class->write_head(text->context, out);
}

/* Renders all rows, for the index and the digest (NULL: for the index alone). */
static bool measure_rows(struct rendered *text, const struct td_rendered_rows *rows, struct td_digest *digest,
                         struct td_rendered_end *end)
{
    struct index *index = text->index;
    text->behind = (struct mark){.row = rows->first};
    do {
        struct mark at = text->behind;
        if (!render_piece(text, at, &end->last_shown) || !add_mark(index, at, rows->most_marks))
            return false;
        td_digest_add_content(digest, text->piece.data, text->piece.len);
        if (text->behind.off <= rows->keep_bytes)
            td_buffer_append(&text->kept, text->piece.data, text->piece.len);
    } while (text->behind.row < index->end_row && text->behind.shown < index->end_shown &&
             (rows->most_bytes == 0 || index->head_len + text->behind.off < rows->most_bytes));
    index->rows_bytes = text->behind.off;
    index->end_row = text->behind.row;
    index->end_shown = text->behind.shown;
    end->next_row = text->behind.row;
    end->shown = text->behind.shown;
    if (text->kept.failed || text->kept.len < index->rows_bytes)
        td_buffer_fini(&text->kept);
    return true;
}

/* Makes the index. digest: NULL, or one to which the whole text is added. */
static bool measure_text(struct rendered *text, const struct td_rendered_rows *rows, struct td_digest *digest)
{
    struct td_rendered_end end = {0};
    struct index *index = calloc(1, sizeof *index);
    text->index = index;
    if (index == NULL)
        return false;
    atomic_init(&index->refs, 1);
    index->mark_step = PIECE_BYTES;
    index->end_row = rows->end;
    index->end_shown = rows->most_shown;
    if (!keep_text(write_head, text, NULL, &index->head, &index->head_len))
        return false;
    td_digest_add_content(digest, index->head, index->head_len);
    if (!measure_rows(text, rows, digest, &end) ||
        !keep_text(text->class->write_tail, text->context, &end, &index->tail, &index->tail_len))
        return false;
    td_digest_add_content(digest, index->tail, index->tail_len);
    return true;
}

/* ---- the blob ------------------------------------------------------------------------------------------ */

static void destroy(struct td_blob *blob)
{
    struct rendered *text = (struct rendered *)(void *)blob;
    index_unref(text->index);
    td_buffer_fini(&text->kept);
    td_buffer_fini(&text->piece);
    text->class->destroy(text->context);
    free(text);
}

/* Renders the piece that holds this byte of the rows. */
static bool load_piece(struct rendered *text, uint64_t off)
{
    size_t last;
    if (text->begin.off <= off && off < text->behind.off)
        return true;
    struct mark at = find_mark(text->index, off);
    if (text->behind.off <= off && text->behind.off > at.off)
        at = text->behind;
    while (render_piece(text, at, &last)) {
        if (off < text->behind.off)
            return true;
        if (text->behind.off == at.off)
            return false;
        at = text->behind;
    }
    return false;
}

/* Finds the text of the rows at byte `off` of them: where it is, and how much of it is there. */
static bool rows_at(struct rendered *text, uint64_t off, const char **from, uint64_t *left)
{
    const struct td_buffer *held = &text->kept;
    if (held->len == 0) {
        if (!load_piece(text, off))
            return false;
        off -= text->begin.off;
        held = &text->piece;
    }
    *from = held->data + off;
    *left = held->len - off;
    return true;
}

static bool read_text(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct rendered *text = (struct rendered *)(void *)blob;
    const struct index *index = text->index;
    char *to = out;
    while (len > 0) {
        const char *from;
        uint64_t left;
        if (off < index->head_len) {
            from = index->head + off;
            left = index->head_len - off;
        } else if (off - index->head_len < index->rows_bytes) {
            if (!rows_at(text, off - index->head_len, &from, &left))
                return td_error_no_memory(err);
        } else {
            uint64_t within = off - index->head_len - index->rows_bytes;
            from = index->tail + within;
            left = index->tail_len - within;
        }
        size_t n = left < len ? (size_t)left : len;
        memcpy(to, from, n);
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

static const struct td_blob_class rendered_class = {.destroy = destroy, .read = read_text};

/* Takes the index from the cache, or makes it. */
static bool find_index(struct rendered *text, const struct td_rendered_rows *rows, struct td_lru *cache,
                       const char *key, char *tag)
{
    text->index = cache == NULL ? NULL : td_lru_get(cache, key);
    if (text->index != NULL)
        return true;
    struct td_digest *digest = tag == NULL ? NULL : td_digest_create();
    bool ok = measure_text(text, rows, digest);
    if (tag != NULL)
        ok = td_digest_finish(digest, tag) && ok;
    if (ok && cache != NULL)
        (void)td_lru_put(cache, key, text->index,
                         sizeof *text->index + text->index->head_len + text->index->tail_len +
                             text->index->mark_capacity * sizeof *text->index->marks);
    return ok;
}

bool td_rendered_create(const struct td_rendered_class *class, void *context, const struct td_rendered_rows *rows,
                        struct td_lru *cache, const char *key, struct td_blob **out, char *tag, struct td_error *err)
{
    struct rendered *text = calloc(1, sizeof *text);
    if (text == NULL) {
        class->destroy(context);
        return td_error_no_memory(err);
    }
    td_blob_init(&text->blob, &rendered_class, 0); /* the length is known below */
    text->class = class;
    text->context = context;
    td_buffer_init(&text->kept);
    td_buffer_init(&text->piece);
    if (!find_index(text, rows, cache, key, tag)) {
        destroy(&text->blob);
        return td_error_no_memory(err);
    }
    text->blob.len_bytes = text->index->head_len + text->index->rows_bytes + text->index->tail_len;
    *out = &text->blob;
    return true;
}
