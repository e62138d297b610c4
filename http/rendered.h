/* Text of many rows as a blob that is rendered while it is sent. The rows are rendered once, to learn the length and
 * the tag of the text, and again, piece by piece, when the blob is read: the text is never held whole. An index of
 * marks remembers where pieces begin. It is immutable, so that blobs over the same text share it by way of a cache.
 *
 * What a blob takes in memory does not grow with its rows: a piece of 32 KiB and a row, up to keep_bytes of text, and
 * its index: the head, the tail and up to most_marks marks of 24 bytes. */
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
    size_t last_shown; /* the last row that has text; of no meaning when `shown` is 0 */
    size_t shown;      /* how many rows have text */
};

/* The text's writers. Each appends to `out` and appends the same each time. */
struct td_rendered_class {
    void (*write_head)(void *context, struct td_buffer *out);
    /* Appends the row, or nothing for a row that is left out. `shown` rows with text come before it. Returns the number
     * of the row that follows, which is larger than `row`. */
    size_t (*write_row)(void *context, size_t row, size_t shown, struct td_buffer *out);
    void (*write_tail)(void *context, const struct td_rendered_end *end, struct td_buffer *out);
    void (*destroy)(void *context);
};

/* Which rows are rendered, and the memory for it. */
struct td_rendered_rows {
    size_t first, end; /* the rows from first to end - 1 */
    size_t most_shown; /* rows with text end the text at this number; SIZE_MAX: all rows are shown */
    size_t keep_bytes; /* a text of at most this length is kept from measuring to sending; 0: none is */
    size_t most_marks; /* more marks are thinned out, so that reading from a place renders more; at least 2 */
};

/* How a td_lru keeps indexes, by a key of the caller's. A key must name the class, the rows and the snapshot's state.
 */
extern const struct td_lru_class td_rendered_index_class;

/* Makes the blob, one reference for the caller. Takes `context` over, also on failure: class->destroy frees it with the
 * blob. cache: where the index is looked up and kept under `key`; NULL: nowhere. tag: NULL, or receives the tag of the
 * whole text, and then cache must be NULL. One thread at a time may read the blob. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rendered_create(const struct td_rendered_class *class, void *context, const struct td_rendered_rows *rows,
                        struct td_lru *cache, const char *key, struct td_blob **out, char *tag, struct td_error *err);

#endif
