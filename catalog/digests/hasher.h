/* The hasher: computes the SHA-256 of every file of the current snapshot in the background, small files first. Its
 * background threads read only when nothing else wants the processor or the disk. Files that callers wait for have
 * threads of ordinary priority. Thread-safe. */
#ifndef TD_CATALOG_DIGESTS_HASHER_H
#define TD_CATALOG_DIGESTS_HASHER_H

#include "catalog/model/snapshot.h"
#include "core/cancel.h"

enum { TD_HASHER_MAX_THREADS = 64 };

struct td_hasher_config {
    const char *state_dir; /* directory for the log of digests; NULL: none */
    const char *root;      /* the served directory, which must not contain state_dir */
    size_t threads; /* in the background, at most TD_HASHER_MAX_THREADS; 0: nothing is hashed, not even for callers
                       that wait */
    /* Called when every digest that can be known is known and some are new. Runs on a background thread, without a
     * lock. May be NULL. */
    void (*on_known)(void *context);
    void *context;
};

/* The state that /readyz and /metrics report, for the current snapshot. */
struct td_hasher_status {
    bool enabled, stored; /* threads run; digests reach --state-dir */
    size_t file_count, known_count;
    uint64_t file_bytes, known_bytes;
    uint64_t hashed_bytes;   /* since the start of the process */
    uint64_t failed_count;   /* files that could not be read, or changed while they were read, since the start */
    uint64_t mismatch_count; /* blobs of a cache whose content does not have the hash in their name, since the start */
};

/* How long a caller waits for a digest. */
struct td_digest_wait {
    uint64_t until_ns;              /* monotonic */
    const struct td_cancel *cancel; /* ends the wait within 0.2 s; NULL: nothing does */
    bool takes_any;                 /* also hash a file that cannot be hashed in time; the caller asks for it again */
};

struct td_hasher;

/* Opens the log of digests and starts the threads. Errors as td_digest_log_open; TD_RESOURCE_EXHAUSTED. */
bool td_hasher_create(const struct td_hasher_config *config, struct td_hasher **out, struct td_error *err);

/* Stops the threads, waits for their end and frees the hasher. A running hash stops at once, except while the disk does
 * not answer. NULL: does nothing. */
void td_hasher_destroy(struct td_hasher *hasher);

/* Sets the file's SHA-256 when the log of digests knows it. hasher NULL: does nothing. */
void td_hasher_recall(struct td_hasher *hasher, struct td_file *file);

/* Records the SHA-256 of a file. It was computed while the file was written, so the file is not read again. May wait
 * for the disk. hasher NULL: does nothing. */
void td_hasher_note(struct td_hasher *hasher, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES]);

/* Begins to hash the files of a new snapshot. Holds a reference on it until the next one is set. hasher NULL: does
 * nothing. */
void td_hasher_set_snapshot(struct td_hasher *hasher, struct td_snapshot *snapshot);

/* Has a file of this root hashed before all files that nobody waits for, and waits for the digest. Returns whether the
 * SHA-256 is known. When hashing cannot end in time, returns false at once, unless how->takes_any is set: hashing then
 * continues after the wait has ended. Returns false at once when too many files wait, memory is short, hasher is NULL
 * or has no threads, and when this thread must not wait. */
bool td_hasher_wait(struct td_hasher *hasher, struct td_root *root, struct td_file *file,
                    const struct td_digest_wait *how);

/* Copies the current state to *status; all zero when hasher is NULL. */
void td_hasher_get_status(struct td_hasher *hasher, struct td_hasher_status *status);

#endif
