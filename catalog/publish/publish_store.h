/* The store of publishing: repositories on disk, and the bound on the bytes of all blobs. Uploads and streams
 * (publish_upload.h, publish_stream.h) take their bytes from it and report complete blobs to it. Thread-safe, except
 * open and close. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_STORE_H
#define TD_CATALOG_PUBLISH_PUBLISH_STORE_H

#include "catalog/publish/publish_disk.h"
#include "core/budget.h"
#include "core/digest.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_publish_config {
    const char *root;          /* the served directory; borrowed until td_publish_open returns */
    uint64_t max_bytes;        /* of all published blobs and open uploads together; 0: no bound */
    uint64_t upload_expires_s; /* a blob that no commit names is removed after so long */
    uint64_t keep_commits_s;   /* a commit that no revision names is removed after so long */

    /* Called when a blob has got its place, with the identity that it keeps. On the thread that ends an upload, without
     * a lock; may wait for the disk. NULL: nothing is called. */
    void (*on_blob)(void *context, const struct td_file_id *id, const uint8_t sha256[TD_SHA256_BYTES]);
    void *context;
};

/* Why a request that publishes failed, by the server's fault or for lack of room. */
enum td_publish_failure {
    TD_PUBLISH_FAILED_ROOM,  /* the disk or --publish-max-bytes has no room */
    TD_PUBLISH_FAILED_LATE,  /* a change was made, and no scan showed it in time */
    TD_PUBLISH_FAILED_OTHER, /* the disk, its permissions, a folder that was replaced */
    TD_PUBLISH_FAILURES
};

/* The state that /metrics reports; a copy. */
struct td_publish_status {
    uint64_t used_bytes, max_bytes; /* max_bytes 0: no bound */
    size_t upload_count;            /* blobs that are open: a part of them is arriving, or arrived in the last minute */
    uint64_t blob_count;            /* blobs that were completed since the start */
    uint64_t received_bytes;        /* written to blobs since the start */
    uint64_t commit_count;          /* that moved a revision since the start */
    uint64_t refused_digest_count, refused_quota_count;
    uint64_t failures[TD_PUBLISH_FAILURES]; /* requests since the start */

    /* measured by td_publish_report alone */
    uint64_t oldest_upload_ns;       /* how long the oldest open upload has been open; 0: none is open */
    uint64_t free_bytes, disk_bytes; /* of the disk; 0: unknown */
};

enum { TD_PUBLISH_OWNER_BYTES = 65 /* of the name of the token that began an upload, with a NUL */ };

struct td_parts_row;
struct td_publish_upload;
struct td_publish_session;
struct td_publish_xorb;

enum { TD_PUBLISH_XORB_BUCKETS = 1024, TD_PUBLISH_XORBS = 65536 /* most at a time */ };

struct td_publish {
    struct td_publish_disk disk;
    struct td_publish_config config;
    _Atomic uint64_t stream_number; /* for the names of streams */
    pthread_mutex_t parts_lock;     /* of names of parts (publish_parts.h), and of the two below */
    struct td_parts_row *rows;      /* of uploads in parts, the newest first; of parts_row.c alone */
    size_t row_count;
    pthread_mutex_t lock;                /* of all below */
    struct td_publish_upload *uploads;   /* that are open, a list; of publish_upload.c alone */
    struct td_publish_session *sessions; /* that are open, a list; of publish_session.c alone */
    size_t session_count;
    struct td_publish_xorb *xorbs[TD_PUBLISH_XORB_BUCKETS]; /* of publish_xorbs.c alone */
    struct td_shared_budget xorb_counts;                    /* of objects, with those that are being written */
    struct td_publish_status status;
};

/* Opens the store, without counting what is there. Errors as td_publish_disk_open; TD_RESOURCE_EXHAUSTED. */
bool td_publish_store_open(const struct td_publish_config *config, struct td_publish **out, struct td_error *err);
void td_publish_store_close(struct td_publish *publish);

/* Copies the current state to *status, without what td_publish_report measures. */
void td_publish_get_status(struct td_publish *publish, struct td_publish_status *status);

/* Takes so many bytes from the bound. Errors: TD_RESOURCE_EXHAUSTED with sys EDQUOT. */
bool td_publish_take(struct td_publish *publish, uint64_t bytes, struct td_error *err);

/* Takes bytes that are on the disk already, whatever the bound is. */
void td_publish_take_anyway(struct td_publish *publish, uint64_t bytes);

/* Returns bytes to the bound. */
void td_publish_give_back(struct td_publish *publish, uint64_t bytes);

/* Opens the directory of a repository, which is open, as a root. *out has a reference for the caller. Errors: those of
 * td_root_create; TD_FAILED_PRECONDITION when its path leads elsewhere. */
bool td_publish_repo_root(const struct td_publish_repo *repo, struct td_root **out, struct td_error *err);

/* Returns whether the repository, which is open or looked at, has the complete blob. Then sets *size_bytes, and the
 * blob stays for a commit that names it as if it had arrived now. Every answer that says to a client that a blob is
 * here asks this. */
bool td_publish_keep_blob(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                          uint64_t *size_bytes);

/* Counts bytes that were written to an unfinished blob. */
void td_publish_note_bytes(struct td_publish *publish, uint64_t bytes);

/* Counts a commit that moved a revision. */
void td_publish_note_commit(struct td_publish *publish);

/* Counts a request that failed. */
void td_publish_note_failure(struct td_publish *publish, enum td_publish_failure failure);

/* Counts bytes that were refused because they have another digest. */
void td_publish_note_refused(struct td_publish *publish);

/* Counts a blob that has got its place, and reports its identity. `dir_fd` is that of blobs/. */
void td_publish_note_blob(struct td_publish *publish, int dir_fd, const char *hex,
                          const uint8_t sha256[TD_SHA256_BYTES]);

#endif
