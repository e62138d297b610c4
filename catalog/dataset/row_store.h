/* The store of indexes: keeps the indexer's results in --state-dir, so that a restart does not read every dataset
 * again. It is a cache: one file for each index, named by the identities of its source files; an index that does not
 * fit exactly is built again. The directory belongs to this process's user alone (state_dir.h), because its files
 * decide where rows are read. Any thread. */
#ifndef TD_CATALOG_DATASET_ROW_STORE_H
#define TD_CATALOG_DATASET_ROW_STORE_H

#include "core/digest.h"
#include "core/error.h"
#include "parser/rows/index/row_index.h"

#include <stdbool.h>

struct td_row_store;

/* Opens the folder "rows" in state_dir, which is not in `root`, and creates what is missing. Removes indexes that no
 * process has used for 90 days. Errors as td_state_dir_open. */
bool td_row_store_open(const char *state_dir, const char *root, struct td_row_store **out, struct td_error *err);

/* Frees the store. NULL: does nothing. */
void td_row_store_close(struct td_row_store *store);

/* Reads the index that was saved under this key, a file name, and its sample. Returns false, with nothing in *out, when
 * the file is missing or damaged. store NULL: returns false. */
bool td_row_store_load(struct td_row_store *store, const char *key, struct td_row_index *out,
                       char sample[TD_TAG_BYTES]);

/* Saves an index. When that fails, logs why and keeps an index that was saved before. store NULL: does nothing. */
void td_row_store_save(struct td_row_store *store, const char *key, const struct td_row_index *index,
                       const char *sample);

#endif
