/* Warns the operator once when no answer can be sent the fast way (docs/files.md, "Leases"). */
#ifndef TD_CATALOG_SCAN_SEND_GUARD_H
#define TD_CATALOG_SCAN_SEND_GUARD_H

#include "catalog/model/snapshot.h"

/* Checks at most 16 of the snapshot's checkpoint files. Logs a warning with the reason and the remedy when none of them
 * can be leased and none is immutable, so that the bytes of every answer are copied and checked. Opens the files, and
 * takes and releases a lease on each. lease_signal as in td_mapping_cache_init; 0: leases are off, which the operator
 * chose, so that nothing is logged. Returns whether there was a file to check. */
bool td_send_guard_report(const struct td_snapshot *snapshot, int lease_signal);

#endif
