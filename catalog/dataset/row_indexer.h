/* The indexer: makes the indexes of all files of all datasets of the current snapshot in the background, small files
 * first, each once for each identity of the file. Thread-safe. */
#ifndef TD_CATALOG_DATASET_ROW_INDEXER_H
#define TD_CATALOG_DATASET_ROW_INDEXER_H

#include "catalog/model/snapshot.h"
#include "catalog/sandbox/parse_pool.h"

struct td_row_indexer_config {
    const char *state_dir; /* directory that keeps indexes; NULL: none */
    const char *root;      /* the served directory, which must not contain state_dir */
    size_t threads;        /* at least 1, at most TD_ROW_INDEXER_MAX_THREADS */
    struct td_limits limits;
    struct td_budget *memory;      /* memory of all files together; borrowed. NULL: no limit */
    struct td_parse_pool *parsers; /* makes the indexes; borrowed. NULL: the threads do */
};

enum { TD_ROW_INDEXER_MAX_THREADS = 16 };

/* The state that metrics report, for the current snapshot. */
struct td_row_indexer_status {
    size_t file_count, ready_count, failed_count; /* files of datasets that have an index or will get one */
    uint64_t row_count;                           /* of the files that are ready */
    uint64_t memory_bytes;                        /* of their indexes */
    uint64_t read_bytes;                          /* of files that were read for indexes since the start */
};

struct td_row_indexer;

/* Starts the threads. A state_dir that cannot be used is logged, and the indexes are then kept in memory alone. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_row_indexer_create(const struct td_row_indexer_config *config, struct td_row_indexer **out,
                           struct td_error *err);

/* Stops the threads, waits for their end and frees the indexer. Gives up an index in progress at once, except while the
 * disk does not answer. NULL: does nothing. */
void td_row_indexer_destroy(struct td_row_indexer *indexer);

/* Begins to make the indexes of a new snapshot. Holds a reference on it until the next one is set. Errors:
 * TD_RESOURCE_EXHAUSTED; the indexer then continues with the snapshot before. */
bool td_row_indexer_set_snapshot(struct td_row_indexer *indexer, struct td_snapshot *snapshot, struct td_error *err);

/* Copies the current state to *status; all zero when indexer is NULL. */
void td_row_indexer_get_status(struct td_row_indexer *indexer, struct td_row_indexer_status *status);

#endif
