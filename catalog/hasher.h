/* The hasher: computes the SHA-256 of every file of the current snapshot in the background, small files first, reading
 * by threads that run only when nothing else wants the processor or the disk; and of a file that somebody waits for by
 * one that runs like any other. Thread-safe. */
#ifndef TD_CATALOG_HASHER_H
#define TD_CATALOG_HASHER_H

#include "catalog/digest_log.h"
#include "catalog/snapshot.h"

struct td_hasher_config {
    const char *state_dir; /* for the log of digests; NULL: none */
    const char *root;      /* the served directory, in which state_dir must not lie */
    size_t threads;        /* in the background; 0: nothing is hashed, not even what is waited for */
    /* Everything that can be known is, and something is new: called by a thread of ours, without a lock. */
    void (*on_known)(void *context);
    void *context;
};

/* What /readyz and /metrics tell; of the current snapshot. */
struct td_hasher_status {
    bool enabled, stored; /* threads run; digests reach --state-dir */
    size_t file_count, known_count;
    uint64_t file_bytes, known_bytes;
    uint64_t hashed_bytes;   /* since the start */
    uint64_t failed_count;   /* could not be read, or changed meanwhile */
    uint64_t mismatch_count; /* blobs of a cache whose name is not what they hash to */
};

struct td_hasher;

/* Errors as td_digest_log_open. */
bool td_hasher_create(const struct td_hasher_config *config, struct td_hasher **out, struct td_error *err);

/* Stops at once, however large the file that is read; only a disk that does not answer is waited for. NULL is fine. */
void td_hasher_destroy(struct td_hasher *hasher);

/* Says what is known of the file from before, if anything is. Any thread. */
void td_hasher_recall(struct td_hasher *hasher, struct td_file *file);

/* A new snapshot; a reference is taken until the next one. */
void td_hasher_set_snapshot(struct td_hasher *hasher, struct td_snapshot *snapshot);

/* Has the file, of this root, hashed first and waits for that until until_ns (monotonic); at once false for one that
 * cannot be done by then. */
bool td_hasher_wait(struct td_hasher *hasher, struct td_root *root, struct td_file *file, uint64_t until_ns);

void td_hasher_get_status(struct td_hasher *hasher, struct td_hasher_status *status);

#endif
