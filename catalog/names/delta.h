/* Deltas: versions whose files hold the changes to another version. Their base is named by its number alone, and here
 * it is found among the folders beside them. */
#ifndef TD_CATALOG_NAMES_DELTA_H
#define TD_CATALOG_NAMES_DELTA_H

#include "catalog/model/snapshot.h"
#include "catalog/model/version_name.h"
#include "core/error.h"

#include <stdbool.h>

/* Sets the base of each model that is a delta: the name of the version beside it that has the number of the index's
 * base_version, else that text. Of several such versions, one whose name differs from the delta's in its digits alone
 * comes first, then the first one by name. Counts folders only, and only models of this snapshot: a view never names a
 * hidden one. `more` may be NULL. Errors: TD_RESOURCE_EXHAUSTED. For the thread that builds the snapshot or view, whose
 * models are complete. */
bool td_deltas_find_bases(struct td_snapshot *snapshot, const struct td_version_prefixes *more, struct td_error *err);

#endif
