/* Bodies: the bytes of an answer, as a list of extents over blobs. An extent names its bytes by blob and offset, so the
 * sender chooses how to send them. Any number of runs at equal distances is one extent. Threads: one at a time changes
 * a body; any number may read one that does not change. */
#ifndef TD_STORAGE_BODY_H
#define TD_STORAGE_BODY_H

#include "storage/blob.h"

/* `count` runs of `len` bytes of the blob; run i begins at off + i * stride. off, len and stride are in bytes. */
struct td_extent {
    struct td_blob *blob; /* one reference per extent */
    uint64_t off, len, count, stride;
};

struct td_body {
    struct td_extent *extents; /* owned */
    size_t extent_count, capacity;
    uint64_t total_bytes;
};

/* Initialises an empty body. */
void td_body_init(struct td_body *body);

/* Drops the references and frees the list. The body is then empty. */
void td_body_fini(struct td_body *body);

/* Appends `count` runs of `len` bytes and takes a reference on the blob. Appends nothing when len or count is 0. Errors
 * (the body is then as it was): TD_INTERNAL when a run would leave the blob, TD_RESOURCE_EXHAUSTED. */
bool td_body_append_runs(struct td_body *body, struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count,
                         uint64_t stride, struct td_error *err);

/* Appends one run. Errors as td_body_append_runs. */
bool td_body_append(struct td_body *body, struct td_blob *blob, uint64_t off, uint64_t len, struct td_error *err);

/* Appends len bytes of memory as a new heap blob. Takes ownership of data (from malloc), also on failure. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_body_append_heap(struct td_body *body, char *data, size_t len, struct td_error *err);

/* Appends the part [off, off+len) of `body`, which is within total_bytes, to `out`. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_body_cut(const struct td_body *body, uint64_t off, uint64_t len, struct td_body *out, struct td_error *err);

/* A position in a body. All zeros is the first byte. */
struct td_body_cursor {
    size_t extent;
    uint64_t run;    /* within the extent */
    uint64_t within; /* within the run */
};

/* Moves the cursor past the next len bytes, or to the end when there are fewer. Takes a time that grows with the number
 * of extents that it passes. */
void td_body_skip(const struct td_body *body, struct td_body_cursor *cursor, uint64_t len);

/* Appends the next len bytes, which must be there, to `out`, and moves the cursor past them. Errors:
 * TD_RESOURCE_EXHAUSTED; the cursor may have moved then. */
bool td_body_take(const struct td_body *body, struct td_body_cursor *cursor, uint64_t len, struct td_body *out,
                  struct td_error *err);

/* Sets *blob (borrowed from the body), *off and *len to the next contiguous piece, of at most max_len bytes and within
 * one run, and moves the cursor past it. At the end sets only *len, to 0. */
void td_body_next(const struct td_body *body, struct td_body_cursor *cursor, uint64_t max_len, struct td_blob **blob,
                  uint64_t *off, uint64_t *len);

/* Copies the next len bytes to out and moves the cursor past them. Errors as td_blob_read; TD_INTERNAL when the body
 * has fewer. The cursor may have moved on failure. */
bool td_body_read(const struct td_body *body, struct td_body_cursor *cursor, void *out, size_t len,
                  struct td_error *err);

/* Returns true when the bytes of no blob can have changed since the blob was made. When it returns false, the answer
 * must not be completed. */
bool td_body_unchanged(const struct td_body *body);

/* Returns whether every byte can be sent straight from memory: all blobs have `bytes` and are pinned
 * (td_blob_pinned). */
bool td_body_is_pinned(const struct td_body *body);

/* Returns whether all bytes can be sent without waiting for a disk or for a computation. */
bool td_body_is_resident(const struct td_body *body);

/* Returns whether a sample of the body's bytes is in memory; false when the disk has to be read first. Cheap, and
 * sometimes wrong. */
bool td_body_is_cached(const struct td_body *body);

/* Brings the first len bytes (or all, when there are fewer) into memory and waits for the disk. Gaps of at most 64 KiB
 * between runs are read too and count towards len. */
void td_body_prefetch(const struct td_body *body, uint64_t len);

/* Brings all bytes of heap memory and of mappings into physical memory, and waits for the disk, so that a system call
 * that sends them does not wait (td_fault_guard_touch). Reports no errors: the system call does. */
void td_body_touch(const struct td_body *body);

/* How many extents of a body, or blocks of a composed blob, are looked at to find the first that can be damaged: a
 * header comes before the first tensor. */
enum { TD_PREPARE_LOOKAHEAD = 4 };

/* Finds damage at the beginning of the body before the answer is sent: of the first TD_PREPARE_LOOKAHEAD
 * extents, prepares (td_blob_prepare) the first extent whose blob can be damaged. for_head: the answer has no body, so
 * no deflated stream is unpacked, and only a stream that is known to be damaged fails. Errors as td_blob_read. */
bool td_body_prepare(const struct td_body *body, bool for_head, struct td_error *err);

/* Returns the number of runs of all extents, at most UINT64_MAX. */
uint64_t td_body_run_count(const struct td_body *body);

#endif
