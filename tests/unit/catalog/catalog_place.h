/* A catalog over a directory of its own, whose scans tests ask for and wait for. */
#ifndef TD_TESTS_UNIT_CATALOG_CATALOG_PLACE_H
#define TD_TESTS_UNIT_CATALOG_CATALOG_PLACE_H

#include "catalog/catalog.h"
#include "core/clock.h"
#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

enum { SECOND = 1000000000 };

struct place {
    struct tree tree;
    struct td_catalog_config config;
    char root[TREE_PATH_BYTES];
    struct td_catalog *catalog;
};

/* Prepares a place without settling, whose scans run on request alone. */
static inline void prepare(struct place *place)
{
    tree_open(&place->tree);
    tree_directory(&place->tree, "root");
    tree_at(&place->tree, "root", place->root);
    place->config = (struct td_catalog_config){.root = place->root, .max_maps = 16, .scan = td_scan_config_default()};
    place->config.scan.settle_ns = 0;
}

static inline void start(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_catalog_create(&place->config, &place->catalog, &err), "%s", err.message);
}

static inline void finish(struct place *place)
{
    td_catalog_destroy(place->catalog);
    tree_close(&place->tree);
}

FIXTURE(catalog, struct place, prepare, finish)

static inline struct td_catalog_status status_of(const struct place *place)
{
    struct td_catalog_status status;
    td_catalog_get_status(place->catalog, &status);
    return status;
}

/* Waits until the condition holds; fails after 60 s, which are never needed. */
#define WAIT_FOR(place, condition)                                                              \
    do {                                                                                        \
        uint64_t give_up_ns = td_clock_ns() + UINT64_C(60) * SECOND;                            \
        struct td_catalog_status status = status_of(place);                                     \
        while (!(condition)) {                                                                  \
            CHECK(td_clock_ns() < give_up_ns, "%s never came: %s", #condition, status.message); \
            nap_ms(2);                                                                          \
            status = status_of(place);                                                          \
        }                                                                                       \
    } while (0)

static inline void scan_and_wait(const struct place *place)
{
    struct td_catalog_status before = status_of(place);
    td_catalog_request_scan(place->catalog);
    loopback_wait_scans(place->catalog, before.scan_count + (before.scanning ? 2 : 1));
}

static inline bool has_model(const struct place *place, const char *id)
{
    struct td_snapshot *snapshot = td_catalog_acquire(place->catalog);
    bool found = snapshot != NULL && td_snapshot_find_model(snapshot, td_text_of(id)) != NULL;
    td_snapshot_unref(snapshot);
    return found;
}

#endif
