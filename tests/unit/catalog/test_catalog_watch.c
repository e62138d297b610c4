/* A catalog that watches: changes start scans, bounded in number, and where nothing is watched, scans come by time. */
#include "catalog/catalog.h"

#include "catalog/scan/walk.h"
#include "core/log.h"
#include "tests/unit/catalog/catalog_place.h"
#include "tests/unit/storage/watch_hooks.h"

#include <errno.h>

static _Atomic long walk_takes_ms; /* besides the walk itself */

__typeof__(td_walk_run) __wrap_td_walk_run;
__typeof__(td_walk_run) __real_td_walk_run;

bool __wrap_td_walk_run(struct td_walk *walk, const struct td_root *root, const struct td_hub_place *place,
                        struct td_arena *names, struct td_problems *problems, const struct td_walk_limits *limits,
                        _Atomic uint64_t *files_found, const _Atomic bool *stop, struct td_error *err)
{
    nap_ms(walk_takes_ms);
    return __real_td_walk_run(walk, root, place, names, problems, limits, files_found, stop, err);
}

/* Prepares a place in which files settle for an hour and no scan comes by time. */
static void prepare_watched(struct place *place)
{
    prepare(place);
    place->config.watches = true;
    place->config.scan.settle_ns = UINT64_C(3600) * SECOND;
}

FIXTURE(watched, struct place, prepare_watched, finish)

static void start_and_wait(struct place *place)
{
    start(place);
    loopback_wait_scans(place->catalog, 1);
}

/* Waits until the model is there, or is gone; fails after 60 s, which are never needed. */
static void wait_model(const struct place *place, const char *id, bool is_there)
{
    uint64_t give_up_ns = td_clock_ns() + UINT64_C(60) * SECOND;
    while (has_model(place, id) != is_there) {
        CHECK(td_clock_ns() < give_up_ns, "%s", id);
        nap_ms(2);
    }
}

static void publish(const struct place *place, const char *name)
{
    tree_simple(&place->tree, "out/file", "a");
    tree_rename(&place->tree, "out/file", name);
}

static void changes_start_scans(void **state)
{
    struct place *place = *state;
    tree_directory(&place->tree, "root/m");
    start_and_wait(place);
    publish(place, "root/m/a.safetensors");
    wait_model(place, "m", true);
    tree_simple(&place->tree, "root/n/a.safetensors", "a"); /* in place */
    tree_remove(&place->tree, "root/m");
    wait_model(place, "m", false);
    assert_false(has_model(place, "n"));
}

/* 3,000 models come one by one: the last one is seen, and scans follow one another at least 50 ms apart. */
/* shows: security.md host-many-changes */
static void a_burst_is_few_scans(void **state)
{
    enum { MODELS = SANITIZED ? 600 : 3000 };
    struct place *place = *state;
    char name[64] = "";
    start_and_wait(place);
    uint64_t scans = status_of(place).scan_count;
    uint64_t began_ns = td_clock_ns();
    for (int i = 0; i < MODELS; i++) {
        (void)snprintf(name, sizeof name, "root/m%04d.safetensors", i);
        publish(place, name);
    }
    wait_model(place, name + 5, true);
    struct td_catalog_status status = status_of(place);
    uint64_t most = 2 + (td_clock_ns() - began_ns) / 50000000;
    CHECK(status.scan_count - scans <= most, "%d scans, at most %d", (int)(status.scan_count - scans), (int)most);
    assert_true(status.watch.events >= MODELS);
    uint64_t give_up_ns = td_clock_ns() + UINT64_C(60) * SECOND;
    while (status.counts.models < MODELS && td_clock_ns() < give_up_ns) {
        nap_ms(10);
        status = status_of(place);
    }
    assert_true(status.counts.models == MODELS);
}

/* Scans that take 50 ms each, of a tree that always changes: they may take 0.1 s at once, then a quarter of the time.
 */
/* shows: security.md host-many-changes */
static void endless_changes_are_scanned_a_quarter_of_the_time(void **state)
{
    struct place *place = *state;
    place->config.burst_ns = 100000000;
    walk_takes_ms = 50;
    start_and_wait(place);
    uint64_t scans = status_of(place).scan_count;
    uint64_t began_ns = td_clock_ns();
    while (td_clock_ns() - began_ns < UINT64_C(2000000000)) {
        tree_directory(&place->tree, "root/d");
        tree_remove(&place->tree, "root/d");
        nap_ms(2);
    }
    uint64_t count = status_of(place).scan_count - scans;
    uint64_t most = 2 + (100000000 + (td_clock_ns() - began_ns) / 4) / 50000000;
    CHECK(count >= 2 && count <= most, "%d scans, at most %d", (int)count, (int)most);
    walk_takes_ms = 0;
}

/* A file that grows all the time is looked at once in a second, and not once for every write. */
/* shows: security.md host-many-changes */
static void a_trickle_of_writes_is_few_scans(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "root/m/log.txt", "x");
    start_and_wait(place);
    uint64_t scans = status_of(place).scan_count;
    uint64_t began_ns = td_clock_ns();
    while (td_clock_ns() - began_ns < UINT64_C(1500000000)) {
        tree_poke(&place->tree, "root/m/log.txt", 0, "y", 1);
        nap_ms(5);
    }
    uint64_t count = status_of(place).scan_count - scans;
    uint64_t most = 2 + (td_clock_ns() - began_ns) / SECOND;
    CHECK(count >= 1 && count <= most, "%d scans, at most %d", (int)count, (int)most);
}

/* Where no directory can be watched, scans by time find the changes, and files settle. */
/* shows: security.md file-no-watches */
static void without_watches_scans_come_by_time(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct place place;
        prepare_watched(&place);
        place.config.interval_ns = 100000000;
        init_fails = i == 0 ? EMFILE : 0;
        add_fails = i == 1 ? ENOSPC : 0;
        tree_simple(&place.tree, "root/m/a.safetensors", "a");
        tree_set_age(&place.tree, "root/m/a.safetensors", INT64_C(4000) * SECOND);
        start_and_wait(&place);
        publish(&place, "root/young.safetensors");
        tree_rename(&place.tree, "root/m", "root/n");
        wait_model(&place, "n", true);
        struct td_catalog_status status = status_of(&place);
        assert_true(status.watch.watched == 0 && status.watch.unwatched == 2);
        assert_true(!has_model(&place, "m") && !has_model(&place, "young.safetensors"));
        finish(&place);
        init_fails = add_fails = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(watched, changes_start_scans),
        TEST_IN(watched, a_burst_is_few_scans),
        TEST_IN(watched, endless_changes_are_scanned_a_quarter_of_the_time),
        TEST_IN(watched, a_trickle_of_writes_is_few_scans),
        cmocka_unit_test(without_watches_scans_come_by_time),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
