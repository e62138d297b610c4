/* The catalog: keeps the current snapshot of the served root, and runs the thread that scans. The first scan starts at
 * once; further scans start after every interval, on request, when a young file has settled, and soon after a change
 * that the tree watch reports. Thread-safe. */
#ifndef TD_CATALOG_CATALOG_H
#define TD_CATALOG_CATALOG_H

#include "catalog/dataset/row_indexer.h"
#include "catalog/digests/hasher.h"
#include "catalog/events/event_ring.h"
#include "catalog/removed/removed.h"
#include "catalog/scan/scan.h"
#include "catalog/scan/scan_report.h"
#include "storage/decode_cache.h"
#include "storage/tree_watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_catalog_config {
    const char *root;          /* directory to serve; borrowed until create returns */
    uint64_t interval_ns;      /* time between scans; 0: scans only on request */
    size_t max_maps;           /* most files mapped at once */
    uint64_t max_memory_bytes; /* for the parsed content of all files together; 0: no limit */
    size_t decode_bytes;       /* for decoded tensors; 0: TD_DECODE_MEMORY_BYTES */
    bool watches;              /* scans when something changes, see storage/tree_watch.h */
    uint64_t burst_ns;         /* scans for changes may take so long in all before they pause for longer; 0: 2 s */
    bool files_are_immutable;  /* see td_mapping_cache_init */
    int lease_signal;          /* signal for file leases, see td_mapping_cache_init; 0: takes no leases */
    struct td_scan_config scan;
    const char *state_dir;      /* directory that keeps digests; borrowed until create returns; NULL: none */
    size_t hash_threads;        /* background threads that hash; 0: nothing is hashed */
    size_t index_threads;       /* background threads that index datasets; 0: two */
    uint64_t keep_removed_ns;   /* as td_removed_config.keep_ns; 0: models end with their folders */
    size_t keep_removed_files;  /* as its max_files */
    size_t keep_removed_models; /* as its max_models */
    size_t require_models;      /* not ready while fewer models than this are usable */
    const char *own_folder; /* of this server in the root, static; it fills the root with models that are asked for, and
                               removes them: that none is there is no reason for a warning, and a root without files
                               that has this folder is not one that was unmounted; NULL: none */
};

/* The settings that may change while the catalog runs, as in td_catalog_config and td_scan_config. */
struct td_catalog_tuning {
    uint64_t interval_ns, settle_ns;
    size_t max_files, require_models;
};

/* The state that /readyz and /metrics report; a copy. */
struct td_catalog_status {
    bool ready;          /* a first complete snapshot is published, the root is there, and enough models are usable */
    bool too_few_models; /* too few models are usable (require_models); all else is ready */
    bool root_missing;   /* the root vanished or is suddenly empty; the last good snapshot stays */
    bool first_scan_failed; /* nothing was ever published, because all scans so far failed */
    bool scan_failed;       /* the last scan failed, for the reason in the message; what was published before stays */
    bool scanning;
    uint64_t scan_count, failed_scan_count;
    uint64_t last_scan_ns;                           /* duration of the last scan */
    uint64_t last_scan_age_ns;                       /* time since the end of the last scan; 0: none has ended */
    uint64_t files_found, files_to_read, files_read; /* of the running or last scan */
    struct td_snapshot_counts counts;                /* of the published snapshot */
    uint64_t generation;                             /* number of the published snapshot */
    struct td_mapping_counts maps;
    struct td_tree_watch_counts watch;
    struct td_decode_counts decoding;
    struct td_hasher_status hasher;
    struct td_row_indexer_status indexer;
    struct td_parse_pool_status parsing;
    char message[256]; /* why the server is not ready, or why the last scan failed; else empty */
};

/* How far the catalog has come since its creation. The stage never goes back. */
enum td_catalog_stage {
    TD_CATALOG_STARTING, /* files that were there at the start may not be published yet */
    TD_CATALOG_LACKING,  /* they are published, but the catalog never had require_models usable models */
    TD_CATALOG_COMPLETE, /* they are published, and the catalog once had require_models usable models */
};

struct td_catalog;

/* Opens the root, which must exist and be readable, and starts scanning. Errors as td_root_create and
 * td_digest_log_open; TD_RESOURCE_EXHAUSTED. */
bool td_catalog_create(const struct td_catalog_config *config, struct td_catalog **out, struct td_error *err);
/* Stops the scanning thread, waits for its end, and frees the catalog. All snapshot references must have been dropped
 * before. NULL: does nothing. */
void td_catalog_destroy(struct td_catalog *catalog);

/* Returns the current snapshot with a reference for the caller, or NULL before the first scan has succeeded. */
struct td_snapshot *td_catalog_acquire(struct td_catalog *catalog);

/* Has on_publish(context) called whenever another snapshot has become the current one, by the scanning thread. The
 * function must be quick and must not call the catalog. NULL: calls no function from now on; a running call has ended
 * when this returns. */
void td_catalog_on_publish(struct td_catalog *catalog, void (*on_publish)(void *context), void *context);

/* Calls the function of td_catalog_on_publish, since something else has changed that requests wait for. Any thread. */
void td_catalog_announce(struct td_catalog *catalog);

/* Returns the events of all changes from one snapshot to the next; they live as long as the catalog. The ring has the
 * events of a snapshot before on_publish is called for it, and after td_catalog_acquire has begun to return it. */
struct td_event_ring *td_catalog_events(struct td_catalog *catalog);

/* Changes these settings, and requests a scan with them. A running scan continues with the old settings. Any thread. */
void td_catalog_tune(struct td_catalog *catalog, const struct td_catalog_tuning *tuning);

/* Asks for a scan soon and returns at once; many requests become one scan. Not for signal handlers. */
void td_catalog_request_scan(struct td_catalog *catalog);

/* Does the same, and makes that scan publish every finished file, however young the file is. The server calls this
 * after SIGHUP. */
void td_catalog_request_publish(struct td_catalog *catalog);

/* Most callers that may wait in td_catalog_rescan at once. */
enum { TD_RESCAN_WAITERS = 64 };

/* The result of a scan that a caller waited for. */
struct td_rescan {
    bool done;    /* a scan that began after the call has ended; if false, `failed` and `settled` are false too */
    bool failed;  /* that scan failed, for the reason in the message: what was published before stays */
    bool settled; /* time alone will publish nothing more; there may be files that are being written to */
    char message[256];
};

/* Asks for a scan as td_catalog_request_publish does, and waits until every file that no process is writing to is
 * published. As a rule this takes some 0.1 s, and without leases the settling time. Waits at most for the settling time
 * plus 3 s, and never for more than 20 s; ends within 0.2 s after *stop has become true. *out then says how far the
 * scan came. Callers share scans. Returns false, TD_RESOURCE_EXHAUSTED, when TD_RESCAN_WAITERS callers wait already. */
bool td_catalog_rescan(struct td_catalog *catalog, const _Atomic bool *stop, struct td_rescan *out,
                       struct td_error *err);

/* Notes a commit that this program is about to publish: its snapshot is whole, and nobody changes it, so scans of the
 * next minute need not let it settle. folder: the path of the cache's main commit ("org/name"). Any thread. */
void td_catalog_note_commit(struct td_catalog *catalog, const char *folder, const char *commit);

/* Returns the most files that scans list (td_scan_config.max_files), and sets *others to how many there are now outside
 * of the repository of a Hugging Face cache at this path ("org/name"), kept commits aside. */
size_t td_catalog_max_files(struct td_catalog *catalog, const char *folder, size_t *others);

/* Scans at once, and waits for the end of a scan that began after the call: it shows what this program has changed in
 * the root before. Errors: TD_UNAVAILABLE when the scan failed or has not ended within a minute, and soon after *stop
 * has become true. */
bool td_catalog_show(struct td_catalog *catalog, const _Atomic bool *stop, struct td_error *err);

/* Returns how far the catalog has come. A snapshot that is acquired afterwards has this stage or a later one. Takes no
 * lock. Any thread may call it. */
enum td_catalog_stage td_catalog_get_stage(const struct td_catalog *catalog);

/* Copies the current state to *status. */
void td_catalog_get_status(struct td_catalog *catalog, struct td_catalog_status *status);

/* Has a file of the snapshot hashed and waits for the digest. Returns whether the SHA-256 is known; returns false at
 * once when hashing cannot end in time. */
bool td_catalog_wait_digest(struct td_catalog *catalog, const struct td_snapshot *snapshot, struct td_file *file,
                            const struct td_digest_wait *how);

/* Notes the SHA-256 of a file that is about to appear in the served directory with this identity. May wait for the
 * disk.
 */
void td_catalog_note_digest(struct td_catalog *catalog, const struct td_file_id *id,
                            const uint8_t sum[TD_SHA256_BYTES]);

/* Returns the models that outlive their folders, which live as long as the catalog; NULL: models end with their
 * folders. */
struct td_removed *td_catalog_removed(struct td_catalog *catalog);

/* Returns the processes that parse files (td_scan_config.parsers), or NULL. */
struct td_parse_pool *td_catalog_parsers(struct td_catalog *catalog);

/* Return the caches of mapped files and of decoded tensors, which live as long as the catalog. */
struct td_mapping_cache *td_catalog_maps(struct td_catalog *catalog);
struct td_decode_cache *td_catalog_decode_cache(struct td_catalog *catalog);

#endif
