/* One scan of the served root: walks the tree, opens and parses new files, and groups them into models. */
#ifndef TD_CATALOG_SCAN_SCAN_H
#define TD_CATALOG_SCAN_SCAN_H

#include "catalog/digests/hasher.h"
#include "catalog/model/hub_cache.h"
#include "catalog/model/snapshot.h"
#include "catalog/model/unsettled.h"
#include "catalog/model/version_name.h"
#include "catalog/sandbox/parse_pool.h"
#include "catalog/scan/settling.h"
#include "storage/tree_watch.h"

struct td_scan_config {
    uint64_t settle_ns; /* a file with a younger mtime is not trusted yet, because it may still be written to */
    size_t max_files;
    size_t max_directories;
    bool publish_complete; /* publishes a young file at once when it is known to be finished */
    int lease_signal;      /* signal for that, see storage/file_system.h; 0: no young file is known to be finished */
    bool all_revisions;    /* also scans other revisions of a Hugging Face cache than main; they are not listed */
    struct td_limits limits;
    struct td_budget *memory;             /* memory of all files together; borrowed, outlives them. NULL: no limit */
    struct td_tree_watch *watch;          /* watches the directories, and knows of renames; borrowed, may be NULL */
    struct td_parse_pool *parsers;        /* parses the files; borrowed; NULL: they are parsed by the calling thread */
    struct td_hasher *hasher;             /* knows the digests of files; borrowed, may be NULL */
    const struct td_published *published; /* borrowed; commits that need no time to settle, sorted by commit */
    size_t published_count;
    bool keeps_published; /* commits that were published by this program, and are in `previous`, are not walked */
    bool keeps_versions;  /* as in td_walk_limits */
    /* Prefixes of names of versions beside the known ones; borrowed, outlives all snapshots; may be NULL. */
    const struct td_version_prefixes *version_prefixes;
    const struct td_hub_place *place; /* borrowed; scans it alone, in the cache that the root is; NULL: all */
};

/* Returns the default settings: 2 s to settle, 1,000,000 files, 1,000,000 directories, default limits; all else 0 or
 * NULL. */
struct td_scan_config td_scan_config_default(void);

/* Counters that other threads may read while a scan runs. */
struct td_scan_progress {
    _Atomic uint64_t files_found;
    _Atomic uint64_t files_to_read; /* new or changed checkpoint files */
    _Atomic uint64_t files_read;
};

/* Scans `root` and sets *out to a snapshot with one reference for the caller. `previous` (may be NULL) lends its
 * unchanged files. *out is `previous` itself, with a further reference, when the scan finds exactly what it holds and
 * no file is too young. `unsettled` holds the young files of the scan before and gets those of this one. The scan ends
 * early with an error when *stop becomes true. A broken file never fails a scan. Errors: TD_RESOURCE_EXHAUSTED; TD_IO
 * and those of td_root_open_directory for the root itself; TD_UNAVAILABLE for *stop. */
bool td_scan(struct td_root *root, struct td_mapping_cache *maps, struct td_snapshot *previous,
             const struct td_scan_config *config, struct td_unsettled_list *unsettled,
             struct td_scan_progress *progress, const _Atomic bool *stop, struct td_snapshot **out,
             struct td_error *err);

/* Makes a snapshot of the one checkpoint file at `path`, inside or outside a served directory, for inspection and not
 * for serving: the snapshot has no root, so the bytes of tensors cannot be read. Its one model is named after the file.
 * `parsers` parses the file; NULL: the calling thread does. *out has one reference for the caller. Errors: those of the
 * file; TD_RESOURCE_EXHAUSTED. */
bool td_scan_file(const char *path, const struct td_limits *limits, struct td_parse_pool *parsers,
                  struct td_snapshot **out, struct td_error *err);

/* Does the same, with a root: the directory of the file that `path` leads to, so that the bytes of tensors can be read.
 * Errors: as td_root_create, too. */
bool td_scan_file_to_read(const char *path, const struct td_limits *limits, struct td_parse_pool *parsers,
                          struct td_snapshot **out, struct td_error *err);

#endif
