/* Streams: blobs of published repositories whose digest or size the client does not say before. A stream arrives in one
 * request, whole or not at all, or in several (publish_session.h). It is hashed while it arrives, and gets its place,
 * blobs/HEX, by a rename. One thread at a time for each stream. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_STREAM_H
#define TD_CATALOG_PUBLISH_PUBLISH_STREAM_H

#include "catalog/publish/publish_store.h"
#include "storage/blob.h"
#include "storage/fetch/fetch_hasher.h" /* TD_FETCH_SIZE_UNKNOWN */

/* The blob that a stream became. */
struct td_publish_sum {
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes;
};

struct td_publish_stream;

/* Begins a stream. size_bytes: of the whole, for which room is reserved; TD_FETCH_SIZE_UNKNOWN: not known. Errors as
 * td_publish_part_begin. */
bool td_publish_stream_begin(struct td_publish *publish, const struct td_publish_name *name, uint64_t size_bytes,
                             struct td_publish_stream **out, struct td_error *err);

/* Begins a stream of unknown size in a new file at `path` of the own folder, where td_publish_stream_resume finds it in
 * a later process. Errors as above. */
bool td_publish_stream_begin_at(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                                struct td_publish_stream **out, struct td_error *err);

/* Continues such a stream after its first `bytes`; drops what is behind them. What is there is counted, and hashed
 * again when the stream continues. Errors: TD_NOT_FOUND when so many bytes are not there; TD_RESOURCE_EXHAUSTED, TD_IO.
 */
bool td_publish_stream_resume(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                              uint64_t bytes, struct td_publish_stream **out, struct td_error *err);

/* Writes to the file what has arrived and is still in memory. Errors: TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_stream_save(struct td_publish_stream *stream, struct td_error *err);

/* Frees a stream and leaves its file for td_publish_stream_resume. NULL is allowed. */
void td_publish_stream_leave(struct td_publish_stream *stream);

/* Takes the next bytes. Errors: TD_INVALID_ARGUMENT for more than size_bytes; TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_stream_write(struct td_publish_stream *stream, const void *bytes, size_t len, struct td_error *err);

/* Returns how many bytes have arrived. */
uint64_t td_publish_stream_bytes(const struct td_publish_stream *stream);

/* Drops the bytes that arrived after the first `bytes`; the stream continues from there. What stays is hashed again
 * when bytes that were dropped had been hashed. Errors: TD_IO; then the stream can only be abandoned. */
bool td_publish_stream_rewind(struct td_publish_stream *stream, uint64_t bytes, struct td_error *err);

/* Releases the thread and the memory with which the stream is hashed. When it continues, what has arrived is hashed
 * again. */
void td_publish_stream_rest(struct td_publish_stream *stream);

/* Ends a stream whose body has ended, and frees it. Sets *out to the blob that it became. expected: the digest that it
 * must have, or NULL. Errors: TD_FAILED_PRECONDITION for another digest; TD_INVALID_ARGUMENT for fewer bytes than
 * size_bytes; TD_RESOURCE_EXHAUSTED, TD_IO. After an error nothing of it stays. */
bool td_publish_stream_end(struct td_publish_stream *stream, const uint8_t *expected, struct td_publish_sum *out,
                           struct td_error *err);

/* Makes a blob of the repository of all bytes of `source`, which it reads, writes and hashes. expected and *out as in
 * td_publish_stream_end. Errors: as td_publish_stream_begin, td_blob_copy_to and td_publish_stream_end. */
bool td_publish_stream_copy(struct td_publish *publish, const struct td_publish_name *name, struct td_blob *source,
                            const uint8_t *expected, struct td_publish_sum *out, struct td_error *err);

/* Gives a durable file, at `path` below the own folder, its place as the blob with this digest, which it has. Sets
 * *was_here to whether the repository had the blob before; then the file stays where it is. Counts no bytes. Errors:
 * TD_RESOURCE_EXHAUSTED, TD_IO; those of td_publish_repo_open. */
bool td_publish_place_blob(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                           const uint8_t sha256[TD_SHA256_BYTES], bool *was_here, struct td_error *err);

/* Drops a stream, whose body was cut, with all its bytes. NULL is allowed. */
void td_publish_stream_abandon(struct td_publish_stream *stream);

#endif
