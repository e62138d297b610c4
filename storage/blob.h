/* Blobs: reference-counted, immutable byte strings. Extents (body.h) refer to them. Three kinds:
 *   heap       bytes in allocated memory
 *   mapped     a read-only mapping of a file (file_source.h); a load may fault when the file shrinks
 *   generated  bytes that are made when they are read, such as a long manifest (never whole in memory), a transposed
 *              or big-endian tensor (array_blob.h), a tensor in pieces (tiled.h), a compressed or chunked tensor
 *              (decoded.h), a virtual file (composed.h)
 * Any thread may take and drop references. Any number of threads may read a heap or a mapped blob at once; the header
 * of a generated blob says whether they may read that. */
#ifndef TD_STORAGE_BLOB_H
#define TD_STORAGE_BLOB_H

#include "core/budget.h"
#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_blob;

/* The operations of a kind of blob. The caller has a reference. */
struct td_blob_class {
    /* Frees the blob, when the last reference is dropped. */
    void (*destroy)(struct td_blob *blob);
    /* Copies [off, off+len), which is within len_bytes, to out. */
    bool (*read)(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err);
    /* Copies `count` runs of `len` bytes to out, one after the other; run i begins at off + i * stride. All runs are
     * within len_bytes. NULL: td_blob_gather calls `read` for each run. */
    bool (*gather)(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                   struct td_error *err);
    /* Returns false when the bytes may have changed since the blob was made. NULL: they cannot change. */
    bool (*unchanged)(struct td_blob *blob);
    /* Returns true while nobody can change the bytes without waiting for this program. NULL: always. */
    bool (*pinned)(struct td_blob *blob);
    /* Returns true when nobody can ever change the bytes of the blob's file. NULL: false. */
    bool (*fixed)(const struct td_blob *blob);
    /* Returns whether all of the range, which is not empty, is in memory; of a generated blob, whether the bytes are
     * that it is made of. NULL: they always are. */
    bool (*resident)(struct td_blob *blob, uint64_t off, uint64_t len);
    /* Brings the range into memory and waits for the disk. Reports no errors: the read that follows does. NULL: nothing
     * to do. */
    void (*prefetch)(struct td_blob *blob, uint64_t off, uint64_t len);
    /* Returns the descriptor of a file that has the blob's bytes from offset 0 on, for sendfile; it belongs to the
     * blob. NULL: no such file. */
    int (*descriptor)(const struct td_blob *blob);
    /* Decodes the beginning of the range, so that damage in the file is found before the answer's first byte is sent;
     * fails as reading would. for_head: the answer has no body, so the blob begins no long work and fails only for
     * damage that is known already. NULL: the file's contents cannot make reading fail. */
    bool (*prepare)(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err);
};

struct td_blob {
    const struct td_blob_class *class;
    _Atomic int refs;
    const uint8_t *bytes; /* NULL for generated blobs. For a mapped blob, pass them only to system calls (send), which
                             fail with EFAULT where a load would raise SIGBUS; else use td_blob_read */
    uint64_t len_bytes;
};

/* Sets the members of a blob that makes its bytes when they are read, with one reference for the caller. */
void td_blob_init(struct td_blob *blob, const struct td_blob_class *class, uint64_t len_bytes);

/* The base of a generated blob over the bytes of another blob, from a place in it on. It is the first member of the
 * kind's struct, which is one allocation and owns nothing else, unless the kind has a `destroy` of its own that ends
 * with td_blob_over_destroy. */
struct td_blob_over {
    struct td_blob blob;
    struct td_blob *source; /* one reference */
    uint64_t off;           /* of the first byte in source */
};

/* As td_blob_init. Takes a reference on the source. */
void td_blob_over_init(struct td_blob_over *over, const struct td_blob_class *class, uint64_t len_bytes,
                       struct td_blob *source, uint64_t off);

/* Operations that all kinds of such blobs share. `destroy` drops the source and frees the blob; a blob is `unchanged`
 * as its source is. */
void td_blob_over_destroy(struct td_blob *blob);
bool td_blob_over_unchanged(struct td_blob *blob);

/* Operations of kinds whose byte i is made of the source's bytes around off + i. */
bool td_blob_over_resident(struct td_blob *blob, uint64_t off, uint64_t len);
void td_blob_over_prefetch(struct td_blob *blob, uint64_t off, uint64_t len);
bool td_blob_over_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err);

/* Takes a reference for the caller. Returns `blob`. */
struct td_blob *td_blob_ref(struct td_blob *blob);

/* Drops a reference; the last one frees the blob. NULL: does nothing. */
void td_blob_unref(struct td_blob *blob);

/* Returns whether there are references besides the caller's. */
bool td_blob_is_shared(const struct td_blob *blob);

/* Copies [off, off+len), which the caller has checked against len_bytes, to out. Errors: those of the blob's kind; a
 * mapped file that shrank gives TD_UNAVAILABLE, never a signal; td_may_wait, for bytes that are not in memory or have
 * to be generated, as for td_blob_gather and td_blob_prepare. */
bool td_blob_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err);

/* Copies `count` runs of `len` bytes to out, one after the other; run i begins at off + i * stride. The caller has
 * checked them against len_bytes. Errors as td_blob_read. */
bool td_blob_gather(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                    struct td_error *err);

/* Reads [off, off+len), which the caller has checked against len_bytes, and gives it to `take` in consecutive chunks of
 * at most 1 MiB. Errors: those of td_blob_read, and those of `take`, after which it stops; TD_UNAVAILABLE when the blob
 * was not unchanged at the end. */
bool td_blob_copy_to(struct td_blob *blob, uint64_t off, uint64_t len,
                     bool (*take)(void *context, const void *bytes, size_t len, struct td_error *err), void *context,
                     struct td_error *err);

/* Finds damage at the beginning of the range before an answer is sent: see `prepare` of td_blob_class. Errors as
 * td_blob_read. */
bool td_blob_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err);

/* Returns whether all of the range, which is not empty, is in memory (see `resident` of td_blob_class). */
bool td_blob_is_resident(struct td_blob *blob, uint64_t off, uint64_t len);

/* Brings the range into memory and waits for the disk (see `prefetch` of td_blob_class). */
void td_blob_prefetch(struct td_blob *blob, uint64_t off, uint64_t len);

/* Has the kernel begin to read the range of a mapped blob into memory. Does not wait, and does nothing for other blobs.
 */
void td_blob_will_need(const struct td_blob *blob, uint64_t off, uint64_t len);

/* Returns true when the bytes cannot have changed since the blob was made; false when they may have. */
bool td_blob_unchanged(struct td_blob *blob);

/* Returns true while the bytes can be sent without another check of the file: heap memory, or a mapping under a
 * lease. */
bool td_blob_pinned(struct td_blob *blob);

/* Returns true for a mapped blob when nobody can ever change the bytes of its file; false for other blobs. */
bool td_blob_is_fixed(const struct td_blob *blob);

/* Makes a heap blob with one reference for the caller. Takes ownership of data (from malloc; may be NULL when len is
 * 0), also on failure. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_blob_from_heap(char *data, size_t len, struct td_blob **out, struct td_error *err);

/* Does the same for len bytes that the caller has taken from a budget (borrowed; NULL: none): they are returned when
 * the blob is freed, or on failure. */
bool td_blob_from_budget(char *data, size_t len, struct td_budget *budget, struct td_blob **out, struct td_error *err);

#endif
