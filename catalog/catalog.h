/* The catalog: keeps the current snapshot of the served root, and the thread that scans.
 * A scan starts at once, then every interval, when asked for, and when a young file has settled. */
#ifndef TD_CATALOG_CATALOG_H
#define TD_CATALOG_CATALOG_H

#include "catalog/hasher.h"
#include "catalog/scan.h"
#include "storage/decode_cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_catalog_config {
    const char *root;          /* directory to serve; borrowed until create returns */
    uint64_t interval_ns;      /* between scans; 0 = only when asked for */
    size_t max_maps;           /* files mapped at once */
    uint64_t max_memory_bytes; /* for what is known of all files together; 0 = no bound */
    size_t decode_bytes;       /* for tensors that are decoded; 0 = TD_DECODE_MEMORY_BYTES */
    int lease_signal;          /* see td_mapping_cache_init; 0 = no leases */
    struct td_scan_config scan;
    const char *state_dir; /* where digests are kept; borrowed until create returns; NULL: nowhere */
    size_t hash_threads;   /* 0: nothing is hashed */
    size_t require_models; /* not ready while fewer than this are usable */
};

/* What /readyz and /metrics tell; a copy. */
struct td_catalog_status {
    bool ready;          /* a first complete snapshot is published, the root is there, and enough models are usable */
    bool too_few_models; /* too few models are usable (require_models); all else is ready */
    bool root_missing;   /* the root vanished or is suddenly empty; the last good snapshot is kept */
    bool first_scan_failed; /* nothing was ever published, since all scans so far failed */
    bool scan_failed;       /* the last scan failed, for the reason in the message; what was published before stays */
    bool scanning;
    uint64_t scan_count, failed_scan_count;
    uint64_t last_scan_ns; /* how long the last one took */
    uint64_t last_scan_age_ns;
    uint64_t files_found, files_to_read, files_read; /* of the running or last scan */
    size_t file_count, model_count, refused_count, problem_count, unsettled_count;
    size_t usable_count; /* models that have a checkpoint, or no refused file */
    uint64_t tensor_count, generation;
    struct td_mapping_counts maps;
    struct td_decode_counts decoding;
    struct td_hasher_status hasher;
    size_t hashed_count; /* files whose digests entity tags of models and revisions are made of */
    char message[256];   /* why it is not ready, or why the last scan failed; empty otherwise */
};

struct td_catalog;

/* Opens the root, which must be there and readable, and starts scanning. Destroy stops the thread and waits for it;
 * every snapshot reference must have been dropped before. */
bool td_catalog_create(const struct td_catalog_config *config, struct td_catalog **out, struct td_error *err);
void td_catalog_destroy(struct td_catalog *catalog);

/* Returns the current snapshot with a reference for the caller, or NULL before a first scan has succeeded. Any thread.
 */
struct td_snapshot *td_catalog_acquire(struct td_catalog *catalog);

/* Asks for a scan soon; many requests become one scan. Any thread, not a signal handler. */
void td_catalog_request_scan(struct td_catalog *catalog);

/* The same, and what is finished is published at once, however young it is; SIGHUP means this. */
void td_catalog_request_publish(struct td_catalog *catalog);

enum { TD_RESCAN_WAITERS = 64 };

/* What came of a scan that was waited for. */
struct td_rescan {
    bool done;    /* a scan that began after the call has ended */
    bool failed;  /* it failed, for the reason in the message: what was published before stays */
    bool settled; /* nothing is left that time alone will publish; there may be files that are being written to */
    char message[256];
};

/* Asks for such a scan and waits until it has published everything that is not being written to: as a rule some 0.1 s,
 * without leases until it has settled; at most for the settling time and 3 s, 20 s in all, or until *stop. Callers
 * share scans; at most TD_RESCAN_WAITERS wait at once, TD_RESOURCE_EXHAUSTED beyond. Any thread. */
bool td_catalog_rescan(struct td_catalog *catalog, const _Atomic bool *stop, struct td_rescan *out,
                       struct td_error *err);

void td_catalog_get_status(struct td_catalog *catalog, struct td_catalog_status *status);

/* Has a file of the snapshot hashed and waits for that until until_ns (monotonic); whether its SHA-256 is known. */
bool td_catalog_wait_digest(struct td_catalog *catalog, const struct td_snapshot *snapshot, struct td_file *file,
                            uint64_t until_ns);

struct td_mapping_cache *td_catalog_maps(struct td_catalog *catalog);
struct td_decode_cache *td_catalog_decode_cache(struct td_catalog *catalog);

#endif
