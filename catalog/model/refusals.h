/* Logs which files and sets are refused when a snapshot is published. */
#ifndef TD_CATALOG_MODEL_REFUSALS_H
#define TD_CATALOG_MODEL_REFUSALS_H

#include "catalog/model/snapshot.h"

/* Logs a warning for each refusal that the snapshot before did not have in the same words, a line for each refusal that
 * has ended, and one line with the number of all others. `before` is NULL for the first snapshot. */
void td_refusals_log(const struct td_snapshot *before, const struct td_snapshot *now);

#endif
