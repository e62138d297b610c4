/* Settling: whether the state of a file or folder that a scan found can be trusted, or may still be changing. */
#ifndef TD_CATALOG_SCAN_SETTLING_H
#define TD_CATALOG_SCAN_SETTLING_H

#include "catalog/model/snapshot.h"
#include "catalog/model/unsettled.h"
#include "catalog/scan/walk.h"

/* A commit of a cache that this program has published: it is whole, and nobody changes it. */
struct td_published {
    const char *folder; /* as in struct td_cache_folder */
    const char *commit;
};

/* The settings and clocks of one scan, for all its files. All pointers are borrowed. */
struct td_settling {
    uint64_t settle_ns; /* as in td_scan_config; so are the next two */
    bool publish_complete;
    int lease_signal;
    const struct td_root *root;
    const struct td_published *published; /* commits that have settled, whatever their times are; sorted by commit */
    size_t published_count;
    const struct td_unsettled_list *before; /* the unsettled files of the scan before */
    uint64_t now_ns;                        /* monotonic */
    int64_t wall_now_ns;                    /* ns since 1970 */
};

/* Something that may be changing. */
struct td_young {
    bool is_file;                      /* a regular file; else a directory, a link ... */
    const char *physical;              /* path on disk, below the root */
    struct td_file_id id;              /* as the walk found it */
    bool has_arrived;                  /* as in td_found */
    const struct td_unsettled *before; /* of the same path in the scan before, or NULL */
    const struct td_file_id *shown;    /* the identity that is shown now, or NULL */
    uint64_t settle_ns;                /* time for which it must not change */
    bool must_be_seen; /* the times on disk do not show when it changed: scans must see it unchanged for that long */
};

/* The observations of a young file, besides its identity. */
struct td_seen {
    uint64_t first_ns; /* since when its identity is the same, monotonic */
    uint64_t due_ns;   /* when it will have settled, monotonic */
    bool half_changed, has_arrived;
    bool is_pending, is_racy; /* see td_snapshot.unsettled.pending_count, racy_count */
};

/* Returns whether it is settled: it came by a rename, and every later change will give it another identity; or its
 * mtime is at least settle_ns old. With an mtime in the future (a skewed clock), or after a change that was seen
 * half-way, it is settled when scans have seen it unchanged for that long; the latter not while it is written, since a
 * truncation can take longer. Only then can a later write not leave the same mtime ("racily clean"). Fills in *seen;
 * seen->due_ns is 0 if it has settled by time. */
bool td_settling_is_settled(const struct td_settling *settling, const struct td_young *young, struct td_seen *seen);

/* Returns whether a young file may be published at once: it was written from its beginning to its end, as cp does, and
 * no writer has it open. A checkpoint file must also parse. Only a scan that was requested publishes such files. *seen
 * is of td_settling_is_settled, and is brought up to date. */
bool td_settling_is_finished(const struct td_settling *settling, const struct td_young *young, struct td_seen *seen);

/* Returns what td_settling_is_settled needs of a found file. `shown` is the entry of this file in the snapshot before,
 * or NULL. */
struct td_young td_settling_file(const struct td_settling *settling, const struct td_found *found,
                                 const struct td_entry *shown);

/* Returns whether the entry is of the found file, perhaps with other content. `shown` may be NULL. */
bool td_settling_is_same_place(const struct td_entry *shown, const struct td_found *found);

/* Returns whether the entry is this file with unchanged content, so that reading it again would give the same result.
 * `shown` may be NULL. */
bool td_settling_is_same_file(const struct td_entry *shown, const struct td_found *found);

#endif
