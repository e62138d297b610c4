/* What the log says of refused files and sets when a snapshot is published. */
#ifndef TD_CATALOG_REFUSALS_H
#define TD_CATALOG_REFUSALS_H

#include "catalog/snapshot.h"

/* Warns of each refusal that the snapshot before did not have in the same words, says of each that is over, and counts
 * the others in one line. `before` is NULL for the first snapshot. */
void td_refusals_log(const struct td_snapshot *before, const struct td_snapshot *now);

#endif
