/* Reports to the log what an operator should know of a snapshot that is published. */
#ifndef TD_CATALOG_SCAN_SCAN_REPORT_H
#define TD_CATALOG_SCAN_SCAN_REPORT_H

#include "catalog/model/snapshot.h"

/* Numbers of what a snapshot holds. Models that are other revisions of a model (is_other_revision) do not count. */
struct td_snapshot_counts {
    size_t files, models, datasets;
    size_t usable;    /* models that have a checkpoint or a rank's part, or no refused file */
    size_t refused;   /* problems of models */
    size_t problems;  /* problems of paths that belong to no model */
    size_t unsettled; /* files and directories that changed less than --settle ago */
    size_t hashed;    /* files whose digests the tags of models and revisions use */
    uint64_t tensors; /* of all checkpoints */
};

/* Counts what the snapshot holds. */
void td_scan_report_count(const struct td_snapshot *snapshot, struct td_snapshot_counts *out);

/* Logs what a scan that took took_ns published: a line with the counts of `now`; a warning for each refusal that
 * `before` (NULL: no snapshot) did not have in the same words, a line for each refusal that has ended, and one line
 * with the number of all others; a line with the number of files that will be published later. */
void td_scan_report_published(const struct td_snapshot *before, const struct td_snapshot *now,
                              const struct td_snapshot_counts *counts, uint64_t took_ns);

/* Checks at most 16 of the snapshot's checkpoint files. Logs a warning with the reason and the remedy when none of them
 * can be leased and none is immutable, so that the bytes of every answer are copied and checked. Opens the files, and
 * takes and releases a lease on each (docs/files.md, "Leases"). lease_signal as in td_mapping_cache_init; 0: leases are
 * off, which the operator chose, so that nothing is logged. Returns whether there was a file to check. */
bool td_scan_report_send_guard(const struct td_snapshot *snapshot, int lease_signal);

/* Logs each file that huggingface_hub will not download and that `before` (NULL: no snapshot) does not have. The client
 * fails without a request that would show why, and docs/hub.md promises the line. */
void td_scan_report_large_files(const struct td_snapshot *before, const struct td_snapshot *now);

#endif
