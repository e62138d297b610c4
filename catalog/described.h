/* Folders that are models because of their config.json: their weights may be in a format that nobody here reads. */
#ifndef TD_CATALOG_DESCRIBED_H
#define TD_CATALOG_DESCRIBED_H

#include "catalog/snapshot.h"

/* Calls `found` with the config.json of each such folder, in the order of the entries, until it returns false. Such a
 * folder is a repository for the Hub's clients (of one segment when it holds files, else of two), holds a second file,
 * and holds no files that datasets are made of. Returns false when `found` did. The snapshot's entries are there. */
bool td_described_each(const struct td_snapshot *snapshot, bool (*found)(void *context, const struct td_entry *config),
                       void *context);

/* Returns the config.json of the root, if the same holds of the root; else NULL. */
const struct td_entry *td_described_root(const struct td_snapshot *snapshot);

#endif
