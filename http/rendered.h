/* Text of many rows as a blob that is rendered while it is sent. The rows are rendered once, to learn the length and
 * the tag of the text, and again, piece by piece, when the blob is read: a text of more than keep_bytes is never held
 * whole. An index of marks records where pieces begin. The index is immutable, so that blobs over the same text share
 * one by way of a cache.
 *
 * The memory of a blob does not grow with its rows: a piece of 32 KiB and a row, up to keep_bytes of text, and the
 * index: the head, the tail and up to most_marks marks of 24 bytes. */
#ifndef TD_HTTP_RENDERED_H
#define TD_HTTP_RENDERED_H

#include "core/buffer.h"
#include "core/digest.h"
#include "core/error.h"
#include "http/lru.h"
#include "storage/blob.h"

#include <stddef.h>

/* Where the rows of a text end. */
struct td_rendered_end {
    size_t next_row;   /* the first row that was not looked at */
    size_t last_shown; /* the last row that has text; meaningless when `shown` is 0 */
    size_t shown;      /* number of rows that have text */
};

/* The text's writers. Each appends to `out`, and appends the same bytes whenever it is called with the same arguments.
 * td_rendered_create and the blob's reader call them. */
struct td_rendered_class {
    void (*write_head)(void *context, struct td_buffer *out);
    /* Appends the row, or nothing for a row that is left out. `shown` rows with text come before it. Returns the number
     * of the row that follows, which is larger than `row`. */
    size_t (*write_row)(void *context, size_t row, size_t shown, struct td_buffer *out);
    void (*write_tail)(void *context, const struct td_rendered_end *end, struct td_buffer *out);
    void (*destroy)(void *context); /* frees the context */
};

/* The rows to render, and the limits of memory. */
struct td_rendered_rows {
    size_t first, end; /* the rows from first to end - 1 */
    size_t most_shown; /* the rows end after this many rows with text; SIZE_MAX: no limit */
    size_t most_bytes; /* the rows end when they have about this many bytes, with the head; 0: no limit */
    size_t keep_bytes; /* rows of at most this length are kept from measuring to sending; 0: none are */
    size_t most_marks; /* at least 2; beyond this number every second mark is dropped, and a read renders more */
};

/* The class of a td_lru that keeps indexes. The caller chooses their keys: equal keys must mean equal texts, so a key
 * names the kind of text, the rows and the state of the snapshot. */
extern const struct td_lru_class td_rendered_index_class;

/* Makes the blob, one reference for the caller. Takes `context` over, also on failure: class->destroy frees the context
 * with the blob. cache: the store in which the index is looked up and kept under `key`; NULL: none. tag: NULL, or
 * TD_TAG_BYTES that receive the tag of the whole text; then cache must be NULL. One thread at a time may read the blob.
 * Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rendered_create(const struct td_rendered_class *class, void *context, const struct td_rendered_rows *rows,
                        struct td_lru *cache, const char *key, struct td_blob **out, char *tag, struct td_error *err);

#endif
