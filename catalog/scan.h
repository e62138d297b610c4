/* One scan of the served root: walk, open what is new, parse, group into models. */
#ifndef TD_CATALOG_SCAN_H
#define TD_CATALOG_SCAN_H

#include "catalog/hasher.h"
#include "catalog/hub_cache.h"
#include "catalog/snapshot.h"
#include "catalog/unsettled.h"

struct td_scan_config {
    uint64_t settle_ns; /* a file whose mtime is younger is not trusted yet: it may still be written to */
    size_t max_files;
    size_t max_directories;
    bool publish_complete; /* a young file is published at once when it is known to be finished */
    int lease_signal;      /* for that, see storage/at_rest.h; 0: nothing young is known to be finished */
    bool all_revisions;    /* of a Hugging Face cache: the others than main's as models that are not listed */
    struct td_limits limits;
    struct td_memory *memory;         /* for all files together; borrowed, outlives them. NULL: as much as there is */
    struct td_hasher *hasher;         /* knows what files hash to; borrowed, may be NULL */
    const struct td_hub_place *place; /* borrowed; the root is its folder and it alone is scanned. NULL: all */
};

struct td_scan_config td_scan_config_default(void);

/* Read by other threads while a scan runs. */
struct td_scan_progress {
    _Atomic uint64_t files_found;
    _Atomic uint64_t files_to_read; /* new or changed checkpoint files */
    _Atomic uint64_t files_read;
};

/* Scans `root` and builds a snapshot with one reference. `previous` (may be NULL) lends its unchanged files; it is
 * itself the result, with a further reference, when nothing is to be seen that is not in it and no file is too young.
 * `stop` ends the scan early with an error when it becomes true. A broken file never fails a scan; only
 * TD_RESOURCE_EXHAUSTED, TD_IO on the root itself, and `stop` do. */
bool td_scan(struct td_root *root, struct td_mapping_cache *maps, struct td_snapshot *previous,
             const struct td_scan_config *config, struct td_unsettled_list *unsettled,
             struct td_scan_progress *progress, const _Atomic bool *stop, struct td_snapshot **out,
             struct td_error *err);

/* A snapshot of one checkpoint file, wherever it lies, without a root: for looking at it, not for serving. Its one
 * model is named after the file. The errors are those of the file. */
bool td_scan_file(const char *path, const struct td_limits *limits, struct td_snapshot **out, struct td_error *err);

#endif
