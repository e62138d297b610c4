/* Decoded blobs: generated blobs over compressed or chunked tensors, whose bytes are those that a coding
 * (core/coding.h) describes. A deflate stream (decoded_stream.h) has no index; so the first read inflates all of it,
 * which checks the whole stream and records up to 255 places at which later reads can begin. Chunks of an array
 * (decoded_chunks.h) are unpacked one by one. The decode cache (decode_cache.h), which all tensors share, keeps the
 * unpacked parts, so a range costs about the parts that it touches. */
#ifndef TD_STORAGE_DECODED_H
#define TD_STORAGE_DECODED_H

#include "core/coding.h"
#include "storage/blob.h"
#include "storage/decode_cache.h"

/* Keeps the coding and the names alive until the blob is freed, which calls `release` once. */
struct td_decoded_owner {
    void *context;
    void (*release)(void *context);
    const char *tensor, *file;      /* names for errors about damage; NULL: unknown */
    const struct td_cancel *cancel; /* of the request that reads the blob; outlives the blob; NULL: none */
};

/* Makes a blob of the coding->size_bytes decoded bytes, with one reference for the caller; decodes nothing yet.
 * `source` is the whole file; the blob takes a reference on it and counts as changed when it does. `file` is the number
 * of the parsed file that the coding belongs to (struct td_decode_key). Takes the owner over: on failure, calls its
 * `release`. Any thread may read the blob. Errors: TD_INTERNAL when the coding is not valid, TD_RESOURCE_EXHAUSTED.
 * Reading fails with TD_FAILED_PRECONDITION when the stored bytes are damaged (the message names tensor and file),
 * TD_UNAVAILABLE when the file has changed, TD_RESOURCE_EXHAUSTED when no memory comes free in time or the request is
 * cancelled, and as `source` does. Bytes that fail a checksum of the file are never returned. */
bool td_blob_decoded(struct td_blob *source, const struct td_coding *coding, uint64_t file,
                     struct td_decode_cache *cache, const struct td_decoded_owner *owner, struct td_blob **out,
                     struct td_error *err);

#endif
