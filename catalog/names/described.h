/* Folders that are models because they hold a config.json. Their weights may be in a format that tensord does not read.
 */
#ifndef TD_CATALOG_NAMES_DESCRIBED_H
#define TD_CATALOG_NAMES_DESCRIBED_H

#include "catalog/model/snapshot.h"

/* Calls `found` with the config.json of each such folder, in the order of the entries, until `found` returns false.
 * Such a folder is a repository for clients of the Hub (at the first level when it holds files, else at the second),
 * holds a second file, holds no files that datasets are made of, and is not below datasets/. The snapshot must have its
 * entries. Returns false when `found` did. */
bool td_described_each(const struct td_snapshot *snapshot, bool (*found)(void *context, const struct td_entry *config),
                       void *context);

/* Returns the config.json of the root when the root holds a second file directly and no files that datasets are made
 * of; else NULL. */
const struct td_entry *td_described_root(const struct td_snapshot *snapshot);

#endif
