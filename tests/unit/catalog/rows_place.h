/* Shared by the tests of datasets: an indexer over the snapshots of a scanner. */
#ifndef TD_TESTS_UNIT_CATALOG_ROWS_PLACE_H
#define TD_TESTS_UNIT_CATALOG_ROWS_PLACE_H

#include "catalog/dataset/dataset.h"
#include "catalog/dataset/row_indexer.h"
#include "core/clock.h"
#include "tests/unit/catalog/scan_place.h"

static inline struct td_row_indexer_status status_of(struct td_row_indexer *indexer)
{
    struct td_row_indexer_status status;
    td_row_indexer_get_status(indexer, &status);
    return status;
}

/* Waits until every file of the indexer's snapshot has an index or an error; fails after 60 s. */
static inline void wait_indexed(struct td_row_indexer *indexer)
{
    uint64_t until_ns = td_clock_ns() + UINT64_C(60000000000);
    struct td_row_indexer_status status;
    do {
        nap_ms(1);
        status = status_of(indexer);
        CHECK(td_clock_ns() < until_ns, "%zu of %zu files are ready, %zu failed", status.ready_count, status.file_count,
              status.failed_count);
    } while (status.ready_count + status.failed_count < status.file_count);
}

static inline struct td_row_indexer *open_indexer(const struct td_row_indexer_config *config)
{
    struct td_row_indexer *indexer = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_row_indexer_create(config, &indexer, &err), "%s", err.message);
    return indexer;
}

static inline void give(struct td_row_indexer *indexer, const struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_row_indexer_set_snapshot(indexer, place->scanner.snapshot, &err), "%s", err.message);
}

/* Makes the indexes of the last snapshot, and waits for them. */
static inline void index_all(const struct place *place)
{
    const struct td_row_indexer_config config = {.root = place->tree.path, .threads = 1};
    struct td_row_indexer *indexer = open_indexer(&config);
    give(indexer, place);
    wait_indexed(indexer);
    td_row_indexer_destroy(indexer);
}

static inline const struct td_dataset *dataset_at(const struct place *place, const char *id)
{
    return td_dataset_find(place->scanner.snapshot, td_text_of(id));
}

static inline const struct td_split *split_at(const struct place *place, const char *id, const char *name)
{
    const struct td_dataset *dataset = dataset_at(place, id);
    CHECK(dataset != NULL, "no dataset %s", id);
    const struct td_split *split = td_dataset_find_split(dataset, td_text_of(name));
    CHECK(split != NULL, "no split %s of %s", name, id);
    return split;
}

/* Returns the rows of a split, which must be known. */
static inline const struct td_split_rows *rows_of(const struct place *place, const char *id, const char *name)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_split_rows *rows = td_split_rows_get(split_at(place, id, name), &err);
    CHECK(rows != NULL, "%s %s: %s", id, name, err.message);
    return rows;
}

#endif
