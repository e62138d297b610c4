/* An intake: one model on its way from the upstream, from the first request for it until it is published. This module
 * has the state and its steps; the caller holds the upstream's lock. intake_queue.h has the table of all intakes, and
 * fetching.h runs them.
 *
 * The incoming model is a snapshot of its own: its files with their sizes and digests, whose bytes come from incoming
 * blobs (storage/incoming.h). So the code that lists and sends the files of any snapshot lists and sends these. Its
 * models are those that the published directory will have, as far as file names show: a .bin may turn out not to be a
 * checkpoint. The snapshot has no checkpoints, since tensors are known only when the files are complete. */
#ifndef TD_CATALOG_UPSTREAM_INTAKE_H
#define TD_CATALOG_UPSTREAM_INTAKE_H

#include "catalog/model/snapshot.h"
#include "catalog/upstream/upstream_source.h"
#include "catalog/upstream/upstream_store.h"
#include "core/digest.h"
#include "storage/blob.h"

enum td_intake_phase {
    TD_INTAKE_QUEUED,
    TD_INTAKE_LISTING,    /* the upstream is being asked for the list of files */
    TD_INTAKE_PREPARING,  /* files without a known SHA-256 come first, so that entity tags and commits do not change */
    TD_INTAKE_ARRIVING,   /* has a snapshot, whose files are being fetched */
    TD_INTAKE_PUBLISHING, /* all files are complete; the upstream may be asked once more for digests */
    TD_INTAKE_PUBLISHED,  /* in the served directory; the snapshot is used until a scan has found the model */
    TD_INTAKE_FAILED,     /* for the reason in `error`; remembered until until_ns */
    TD_INTAKE_ABSENT,     /* the upstream has no such model; asked again after until_ns */
};

enum td_intake_file_state { TD_INTAKE_FILE_WAITS, TD_INTAKE_FILE_RUNS, TD_INTAKE_FILE_IS_HERE };

struct td_intake_file {
    enum td_intake_file_state state;
    bool is_early;
    bool is_verified; /* the upstream's digest is known, and the content matches it */
    bool has_sha256;
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_fetch_sums sums; /* of a complete file */
    struct td_blob *blob;      /* one reference */
};

struct td_intake {
    char id[TD_UPSTREAM_ID_BYTES];
    char via[TD_UPSTREAM_VIA_BYTES];
    uint64_t client, order; /* the client whose turn it takes; the position in the queue, a growing number */
    uint64_t turn;          /* the latest turn that any client had taken when it was queued */
    size_t alone;           /* number of the upstream's server that is asked alone, from 1; 0: all are asked */
    size_t rounds;          /* times that it was queued again for another server */
    bool renews;            /* compares a kept model with the upstream, and fetches it only if it differs */
    bool is_again;          /* it has failed, and will be queued again for another server */
    enum td_intake_phase phase;
    size_t file_count;             /* files that may each have an open descriptor */
    struct td_remote_model model;  /* the listing */
    struct td_intake_file *files;  /* as in the listing */
    size_t here_count, early_left; /* complete files; early files that are not complete */
    size_t running;                /* threads that work for it */
    size_t next;                   /* no file before this index waits */
    struct td_root *folder;        /* for the files; one reference; NULL: none */
    int64_t began_s;
    uint64_t started_ns;          /* when this fetch began */
    uint64_t resumed_bytes;       /* that an earlier process fetched */
    struct td_snapshot *snapshot; /* one reference; NULL: none yet */
    _Atomic bool is_cancelled;
    _Atomic size_t wrong_file; /* index of the file with wrong bytes that made it fail; SIZE_MAX: no file */
    bool is_disk_full;         /* its partial files must be removed */
    struct td_error error;
    uint64_t until_ns;
    unsigned failures; /* in a row */
};

/* Returns a new intake that is queued, or NULL when memory is short. */
struct td_intake *td_intake_create(const char *id, const char *via);

/* Frees an intake. No thread may work for it. NULL is allowed. */
void td_intake_destroy(struct td_intake *intake);

/* Frees the listing, the files and the snapshot of an intake, and closes its directory. No thread may work for it. */
void td_intake_clear(struct td_intake *intake);

/* Resets an intake to QUEUED, for all of the upstream's servers, after a failure or when its remembered answer has
 * expired. */
void td_intake_restart(struct td_intake *intake, const char *via);

/* Creates the intake's files from the listing, at most TD_UPSTREAM_MODEL_FILES, and enters the phase PREPARING, or
 * ARRIVING if no file has to come early. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_intake_begin_files(struct td_intake *intake, struct td_error *err);

/* Creates the snapshot and enters the phase ARRIVING. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_intake_show(struct td_intake *intake, struct td_error *err);

/* Chooses the next file to fetch: an early one, else one that a reader waits for, else the first in order unless
 * only_wanted. Returns its index, or SIZE_MAX if no file is chosen. */
size_t td_intake_choose(struct td_intake *intake, bool only_wanted);

/* Returns whether files wait to be fetched. */
bool td_intake_has_waiting(const struct td_intake *intake);

/* Fails the intake. Its readers get an error without details, and its working threads are asked to stop. */
void td_intake_fail(struct td_intake *intake, const struct td_error *why, uint64_t until_ns);

/* Returns the cancellation that the intake's threads check. Borrows the intake. */
struct td_cancel td_intake_cancel(struct td_intake *intake);

/* Returns how many bytes have arrived. */
uint64_t td_intake_arrived(const struct td_intake *intake);

/* Returns whether the upstream had a digest of every file, and all match. */
bool td_intake_is_verified(const struct td_intake *intake);

#endif
