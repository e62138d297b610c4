/* Deltas: versions whose files hold the changes to another version. Their indexes name it by its number alone, and here
 * it is found among the versions of the family. */
#ifndef TD_CATALOG_NAMES_DELTA_H
#define TD_CATALOG_NAMES_DELTA_H

#include "catalog/model/snapshot.h"

/* Sets the base of each model that is a delta: the name of the version of its family (catalog/names/family.h) that has
 * the number of the index's base_version, else that text. Of several such versions, one whose name differs from the
 * delta's in its digits alone comes first, then the first one by name. A view never names a hidden version. Call it for
 * a snapshot or view whose families are made. For the thread that builds it. */
void td_deltas_find_bases(struct td_snapshot *snapshot);

#endif
