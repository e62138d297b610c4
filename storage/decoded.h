/* Tensors that are not stored as they are answered: a generated blob of the bytes that a coding (core/coding.h) stands
 * for. A deflated stream (decoded_stream.c) has no index, so it is read through once, at the first read; that checks
 * all of it and notes where to begin again, at up to 256 places. Chunks of an array (decoded_chunks.c) are unpacked one
 * by one. What is unpacked is kept in a cache that all share (decode_cache.h): a range costs about the parts that it
 * lies in. */
#ifndef TD_STORAGE_DECODED_H
#define TD_STORAGE_DECODED_H

#include "core/coding.h"
#include "storage/blob.h"
#include "storage/decode_cache.h"

/* What keeps the coding and the names alive, and for whom it is read; `release` is called once, when the blob goes. */
struct td_decoded_owner {
    void *context;
    void (*release)(void *context);
    const char *tensor, *file;      /* named in errors about the stored bytes; NULL: unknown */
    const struct td_cancel *cancel; /* of the request that reads the blob, which outlives it; NULL: none */
};

/* A blob of coding->size_bytes bytes. source is the whole file; `file` is the number of the parsed file
 * that the coding belongs to (struct td_decode_key). One reference for the caller; holds one on source, changes when
 * source does. Takes the owner over, also on failure. Nothing is decoded yet. Reading is thread-safe. Errors:
 * TD_INTERNAL when the coding cannot be, TD_RESOURCE_EXHAUSTED. Reading fails with TD_FAILED_PRECONDITION when the
 * stored bytes are damaged, which names tensor and file, with TD_UNAVAILABLE when the file changed meanwhile, with
 * TD_RESOURCE_EXHAUSTED when no memory comes free or the request is cancelled, and as source does; it never gives bytes
 * that are not right by all checksums that the file has for them. */
bool td_blob_decoded(struct td_blob *source, const struct td_coding *coding, uint64_t file,
                     struct td_decode_cache *cache, const struct td_decoded_owner *owner, struct td_blob **out,
                     struct td_error *err);

/* ---- within storage/decoded*.c only ---- */

struct td_decoded {
    struct td_blob blob;
    struct td_blob *source;
    const struct td_coding *coding;
    struct td_decode_cache *cache;
    struct td_decoded_owner owner;
    struct td_decode_key key; /* without its part */
};

/* Reads len bytes at off, to which the coding's base is added, of the stored file. Errors as td_blob_read,
 * TD_FAILED_PRECONDITION when they are not in it. */
bool td_decoded_stored(const struct td_decoded *d, uint64_t off, void *out, size_t len, struct td_error *err);

/* Gets a part of d from the cache: td_decode_cache_get by a job without its key and cancel. */
bool td_decoded_get(const struct td_decoded *d, uint64_t part, const struct td_decode_job *job,
                    struct td_decoded_part **out, struct td_error *err);

/* Ranges of the decoded bytes, of one kind. */
bool td_decoded_stream_read(const struct td_decoded *d, uint64_t off, void *out, size_t len, struct td_error *err);
bool td_decoded_chunks_read(const struct td_decoded *d, uint64_t off, void *out, size_t len, struct td_error *err);

#endif
