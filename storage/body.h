/* Bodies: what an answer sends, as a list of extents over blobs. Runs refer to bytes by blob and offset, so the
 * sender chooses how to send them; strided runs are one extent however many they are. */
#ifndef TD_STORAGE_BODY_H
#define TD_STORAGE_BODY_H

#include "storage/blob.h"

/* `count` runs of `len` bytes; run i begins at off + i * stride. All units are bytes. */
struct td_extent {
    struct td_blob *blob; /* one reference per extent */
    uint64_t off, len, count, stride;
};

struct td_body {
    struct td_extent *extents; /* owned */
    size_t extent_count, capacity;
    uint64_t total_bytes;
};

void td_body_init(struct td_body *body);
void td_body_fini(struct td_body *body); /* drops the references */

/* Appends runs; takes a reference of its own on blob. len or count 0 appends nothing. Errors: TD_INTERNAL when a
 * run would leave the blob, TD_RESOURCE_EXHAUSTED. */
bool td_body_append_runs(struct td_body *body, struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count,
                         uint64_t stride, struct td_error *err);

/* One run. */
bool td_body_append(struct td_body *body, struct td_blob *blob, uint64_t off, uint64_t len, struct td_error *err);

/* One extent over a new heap blob; takes ownership of data (malloc'd), also on failure. */
bool td_body_append_heap(struct td_body *body, char *data, size_t len, struct td_error *err);

/* Appends to `out` the part [off, off+len) of `body`, which lies within total_bytes. */
bool td_body_cut(const struct td_body *body, uint64_t off, uint64_t len, struct td_body *out, struct td_error *err);

/* Where a sequential reader stands. Zero-initialise to start at the first byte. */
struct td_body_cursor {
    size_t extent;
    uint64_t run;    /* within the extent */
    uint64_t within; /* within the run */
};

/* The next contiguous piece, at most max_len bytes; advances the cursor. *len is 0 at the end. Adjacent runs are
 * not joined. The blob is borrowed from the body. */
void td_body_next(const struct td_body *body, struct td_body_cursor *cursor, uint64_t max_len, struct td_blob **blob,
                  uint64_t *off, uint64_t *len);

/* Copies the next len bytes (all there) to out. */
bool td_body_read(const struct td_body *body, struct td_body_cursor *cursor, void *out, size_t len,
                  struct td_error *err);

/* False when a blob's bytes may have changed since it was made: a complete answer must not be sent then. */
bool td_body_unchanged(const struct td_body *body);

/* True when every byte can be sent straight from memory: all blobs have bytes and are pinned. */
bool td_body_is_pinned(const struct td_body *body);

/* False when a sample of the body's bytes has to come from the disk first. */
bool td_body_is_cached(const struct td_body *body);

/* Brings the first len bytes (or all) into memory, waiting for the disk. Short gaps between runs are read as well, and
 * count. */
void td_body_prefetch(const struct td_body *body, uint64_t len);

/* Decodes what the body begins with, where that may fail by the file's contents: then it fails before anything was
 * sent. for_head: nothing will be sent, so no deflated stream is unpacked; one that is known to be damaged still fails.
 * Errors as reading. */
bool td_body_prepare(const struct td_body *body, bool for_head, struct td_error *err);

/* How many contiguous runs the body has; saturates. */
uint64_t td_body_run_count(const struct td_body *body);

#endif
