/* Uploads: blobs of published repositories while they arrive, whose digest and size are known before.
 *
 * A blob arrives in pieces of TD_FETCH_PIECE_BYTES, in any order, from any number of requests at once. Each request has
 * a part, a range of whole pieces. A piece is written when it is whole, by the request that has it first; the same
 * bytes from others are dropped. So a slow client holds up nobody, and no byte is written twice. The pieces that are on
 * disk are in a journal (storage/fetch/fetch_journal.h) beside the unfinished file, blobs/.HEX.tensord-part: after the
 * end of the client, of the connection or of the server, only the missing ones are sent. A blob of one piece has no
 * journal, since it is here whole or not at all. The blob is hashed while it arrives, on a thread of its own
 * (storage/fetch/fetch_hasher.h). When the digest is right, its content is made durable, and a rename gives it its
 * place, blobs/HEX. The name becomes durable with the commit or manifest that needs the blob
 * (td_publish_blobs_sync): a complete blob survives the end of the process, but not always a power cut before that.
 *
 * A blob is known per repository: nobody learns that another repository has it. Thread-safe; a part belongs to one
 * thread at a time. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_UPLOAD_H
#define TD_CATALOG_PUBLISH_PUBLISH_UPLOAD_H

#include "catalog/publish/publish_store.h"

enum { TD_PUBLISH_RANGES = 1000 /* most missing ranges that a state lists */ };

struct td_publish_range {
    uint64_t first, last; /* bytes; both are in the range */
};

/* The state of a blob. */
struct td_publish_blob {
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes;
    bool is_complete;
    struct td_publish_range *missing; /* owned; NULL: the blob is complete */
    size_t missing_count;             /* at most TD_PUBLISH_RANGES */
};

/* Frees the ranges. */
void td_publish_blob_fini(struct td_publish_blob *blob);

/* Sets *blob to what is here of the repository's blob with this digest, and keeps that as if it had arrived now. Does
 * not wait for a commit to the repository, unless the blob is unfinished and not open. Call td_publish_blob_fini if it
 * succeeds. Errors: TD_NOT_FOUND when nothing is here; those of td_publish_repo_open. */
bool td_publish_find_blob(struct td_publish *publish, const struct td_publish_name *name,
                          const uint8_t sha256[TD_SHA256_BYTES], struct td_publish_blob *blob, struct td_error *err);

/* Returns whether the repository has all bytes of this blob, and keeps what is here of it as td_publish_find_blob. */
bool td_publish_has_blob(struct td_publish *publish, const struct td_publish_name *name,
                         const uint8_t sha256[TD_SHA256_BYTES]);

/* ---- blobs whose digest and size are known -------------------------------------------------------------- */

/* The bytes of a blob that one request sends: [first, end). Both are multiples of TD_FETCH_PIECE_BYTES, but for the end
 * of the blob. */
struct td_publish_span {
    uint64_t size_bytes; /* of the whole blob */
    uint64_t first, end;
};

struct td_publish_part;

/* Begins a part. Sets *out, or sets it to NULL when the blob is here already. Reserves room on the disk and in the
 * bound for the whole blob when it is new. Errors: TD_INVALID_ARGUMENT for a span that is not as above; TD_CONFLICT
 * when an upload of the blob with another size is under way; TD_RESOURCE_EXHAUSTED when the bound, the disk or memory
 * has no room (sys is ENOSPC, EDQUOT or EFBIG for the former two); those of td_publish_repo_open. */
bool td_publish_part_begin(struct td_publish *publish, const struct td_publish_name *name,
                           const uint8_t sha256[TD_SHA256_BYTES], const struct td_publish_span *span,
                           struct td_publish_part **out, struct td_error *err);

/* Takes the next bytes of the part. Errors: TD_INVALID_ARGUMENT for more bytes than the span has; TD_RESOURCE_EXHAUSTED
 * or TD_IO from the disk; TD_FAILED_PRECONDITION when the blob was dropped since its beginning, because its bytes were
 * wrong. */
bool td_publish_part_write(struct td_publish_part *part, const void *bytes, size_t len, struct td_error *err);

/* How a part ended. */
enum td_publish_end {
    TD_PUBLISH_COMPLETE,   /* the blob is complete and in its place, by this part or another one */
    TD_PUBLISH_INCOMPLETE, /* more is missing */
    TD_PUBLISH_WRONG       /* the bytes have another digest: all of them were dropped */
};

/* Ends a part whose body has ended, and frees it. Waits for the digest when the blob is complete. Sets *end, and *blob
 * to what is here; call td_publish_blob_fini if it succeeds. Errors: TD_INVALID_ARGUMENT for a body that was shorter
 * than the span; TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_publish_part_end(struct td_publish_part *part, enum td_publish_end *end, struct td_publish_blob *blob,
                         struct td_error *err);

/* Ends a part whose body was cut, and frees it: whole pieces stay. */
void td_publish_part_abandon(struct td_publish_part *part);

/* ---- open uploads ------------------------------------------------------------------------------------------ */

/* Closes open uploads that nobody uses: those of this repository's folder (NULL: of any) whose last part ended before
 * this time (td_clock_ns). Their pieces stay. */
void td_publish_close_idle(struct td_publish *publish, const char *folder, uint64_t before_ns);

/* Returns whether an upload of any blob of this repository's folder is open. */
bool td_publish_has_uploads(struct td_publish *publish, const char *folder);

/* Returns when the oldest open upload was opened (td_clock_ns); 0: none is open. */
uint64_t td_publish_oldest_upload_ns(struct td_publish *publish);

/* Ends the open uploads of this repository's folder, which is open and will be removed: their parts fail with
 * TD_NOT_FOUND, and their unfinished files stay. */
void td_publish_drop_uploads(struct td_publish *publish, const char *folder);

/* Returns whether an upload of the repository's blob is open. */
bool td_publish_is_open(struct td_publish *publish, const char *folder, const char *hex);

#endif
