/* Blobs: reference-counted, immutable strings of bytes that extents refer to. Three kinds:
 *   heap       bytes in our memory
 *   mapped     a read-only mapping of a file (file_source.h); may fault when the file shrinks
 *   generated  rendered on demand, window by window: a manifest of 100,000 tensors, never held whole
 *              (manifest_view.h), a transposed tensor in its logical order (strided.h), one in pieces (tiled.h), a
 *              big-endian one (swapped.h), one that is stored compressed or in chunks (decoded.h)
 * References may be taken and dropped from any thread. */
#ifndef TD_STORAGE_BLOB_H
#define TD_STORAGE_BLOB_H

#include "core/budget.h"
#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_blob;

struct td_blob_class {
    void (*destroy)(struct td_blob *blob);
    /* Copies [off, off+len), which lies within len_bytes, to out. */
    bool (*read)(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err);
    /* Packs count runs of len bytes into out, stride bytes from one's beginning to the next's; all lie within
     * len_bytes. NULL: each is read by itself. */
    bool (*gather)(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                   struct td_error *err);
    /* False when the bytes may have changed since the blob was made; NULL: they cannot change. */
    bool (*unchanged)(struct td_blob *blob);
    /* True while nobody can change the bytes without our leave; NULL: always true. */
    bool (*pinned)(struct td_blob *blob);
    /* Whether a sample of the range is in memory; NULL: it is. Cheap, and wrong now and then. */
    bool (*cached)(struct td_blob *blob, uint64_t off, uint64_t len);
    /* Brings the range into memory, waiting for the disk; NULL: nothing to do. */
    void (*prefetch)(struct td_blob *blob, uint64_t off, uint64_t len);
    /* Does what of reading the range may fail by the file's contents, as far as that can be known at its beginning, so
     * that it fails before anything was sent; NULL: reading fails for passing reasons only. for_head: nothing will be
     * sent, so work that takes long is not begun; what is known already still fails. */
    bool (*prepare)(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err);
};

struct td_blob {
    const struct td_blob_class *class;
    _Atomic int refs;
    const uint8_t *bytes; /* NULL for generated blobs. Of a mapped blob: only to be read by the kernel (send),
                             which answers EFAULT where a load would raise SIGBUS; else use td_blob_read */
    uint64_t len_bytes;
};

struct td_blob *td_blob_ref(struct td_blob *blob);
void td_blob_unref(struct td_blob *blob); /* NULL is fine */

/* Whether anybody beside the caller has a reference. */
bool td_blob_is_shared(const struct td_blob *blob);

/* Copies [off, off+len) to out; off + len <= len_bytes is the caller's duty. A mapped file that shrank gives
 * TD_UNAVAILABLE, never a signal. */
bool td_blob_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err);

/* Packs count runs of len bytes into out, run i from off + i * stride; that they lie within len_bytes is the caller's
 * duty. Errors as td_blob_read. */
bool td_blob_gather(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                    struct td_error *err);

/* Errors as td_blob_read. */
bool td_blob_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err);

bool td_blob_unchanged(struct td_blob *blob);

/* True when the bytes may be sent without a last look at the file: heap memory, or a mapping under a lease. */
bool td_blob_pinned(struct td_blob *blob);

/* Takes ownership of data (malloc'd, may be NULL when len is 0), also on failure. */
bool td_blob_from_heap(char *data, size_t len, struct td_blob **out, struct td_error *err);

/* The same for bytes that were taken from a budget: they are given back with the blob, also on failure. NULL: none. */
bool td_blob_from_budget(char *data, size_t len, struct td_budget *budget, struct td_blob **out, struct td_error *err);

#endif
