/* Reports to the log what an operator should know of a snapshot that is published. */
#ifndef TD_CATALOG_SCAN_SCAN_REPORT_H
#define TD_CATALOG_SCAN_SCAN_REPORT_H

#include "catalog/model/snapshot.h"

/* Logs a warning for each refusal that the snapshot before did not have in the same words, a line for each refusal that
 * has ended, and one line with the number of all others. `before` is NULL for the first snapshot. */
void td_scan_report_refusals(const struct td_snapshot *before, const struct td_snapshot *now);

/* Checks at most 16 of the snapshot's checkpoint files. Logs a warning with the reason and the remedy when none of them
 * can be leased and none is immutable, so that the bytes of every answer are copied and checked. Opens the files, and
 * takes and releases a lease on each (docs/files.md, "Leases"). lease_signal as in td_mapping_cache_init; 0: leases are
 * off, which the operator chose, so that nothing is logged. Returns whether there was a file to check. */
bool td_scan_report_send_guard(const struct td_snapshot *snapshot, int lease_signal);

/* Logs each file that huggingface_hub will not download and that `before` (NULL: no snapshot) does not have. The client
 * fails without a request that would show why, and docs/hub.md promises the line. */
void td_scan_report_large_files(const struct td_snapshot *before, const struct td_snapshot *now);

#endif
