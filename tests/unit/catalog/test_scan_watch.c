/* Scans with a tree watch: what was renamed into place need not settle. */
#include "catalog/scan/scan.h"

#include "catalog/scan/walk.h"
#include "core/clock.h"
#include "tests/unit/catalog/scan_place.h"

#include <stdatomic.h>

struct watched_place {
    struct place place; /* files settle for an hour; files in ".out" are not listed */
    _Atomic unsigned notified;
};

static void on_change(void *context, enum td_tree_change change)
{
    struct watched_place *watched = context;
    (void)change;
    watched->notified++;
}

static void open_watched(struct watched_place *watched)
{
    const struct td_tree_watch_config config = {.ignores = td_walk_ignores, .on_change = on_change, .context = watched};
    watched->notified = 0;
    open_place_of_revisions(&watched->place);
    struct td_scan_config *scan = &watched->place.scanner.config;
    scan->settle_ns = (uint64_t)3600 * SECOND;
    CHECK(td_tree_watch_create(&config, &scan->watch, &watched->place.err), "%s", watched->place.err.message);
}

static void close_watched(struct watched_place *watched)
{
    struct td_tree_watch *watch = watched->place.scanner.config.watch;
    close_place(&watched->place);
    td_tree_watch_destroy(watch);
}

FIXTURE(watched, struct watched_place, open_watched, close_watched)

/* Waits until the watch has heard of something; fails after 60 s, which are never needed. */
static void wait_notified(struct watched_place *watched)
{
    uint64_t give_up_ns = td_clock_ns() + UINT64_C(60) * SECOND;
    while (watched->notified == 0 && td_clock_ns() < give_up_ns)
        nap_ms(1);
    assert_true(watched->notified > 0);
    watched->notified = 0;
}

/* Waits until the watch has reported all that was done so far. */
static void await_quiet(struct watched_place *watched)
{
    wait_notified(watched);
    do {
        watched->notified = 0;
        nap_ms(200);
    } while (watched->notified > 0);
}

/* Makes a file outside and renames it into place. */
static void publish(struct watched_place *watched, const char *name, const char *tensors)
{
    tree_simple(&watched->place.tree, ".out/file", tensors);
    tree_rename(&watched->place.tree, ".out/file", name);
    wait_notified(watched);
}

/* Scans until the file is due that is due first. */
static const struct td_snapshot *scan_when_due(struct watched_place *watched)
{
    struct scanner *scanner = &watched->place.scanner;
    const struct td_snapshot *snapshot = scanner_scan(scanner);
    if (snapshot->unsettled.count == 0)
        return snapshot; /* this machine is slow: the change time is old already */
    assert_true(snapshot->unsettled.next_due_ns < td_clock_ns() + SECOND / 10);
    while (td_clock_ns() < snapshot->unsettled.next_due_ns)
        nap_ms(2);
    return scanner_scan(scanner);
}

/* Whatever the mtime: of a minute ago, which is young here, of now, and in the future. */
static void renamed_files_do_not_wait(void **state)
{
    static const int64_t ages_s[] = {60, 0, -1000};
    struct watched_place *watched = *state;
    struct place *place = &watched->place;
    tree_directory(&place->tree, "m");
    assert_int_equal(scanner_scan(&place->scanner)->entry_count, 0);
    for (size_t i = 0; i < COUNT_OF(ages_s); i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "m/%zu.safetensors", i);
        tree_simple(&place->tree, ".out/file", "a");
        tree_set_age(&place->tree, ".out/file", ages_s[i] * SECOND);
        tree_rename(&place->tree, ".out/file", name);
        wait_notified(watched);
        const struct td_snapshot *snapshot = scan_when_due(watched);
        assert_true(snapshot->entry_count == i + 1 && snapshot->unsettled.count == 0);
    }
    tree_simple(&place->tree, "m/in-place.safetensors", "a");
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 3 && snapshot->unsettled.count == 1);
    assert_true(snapshot->unsettled.next_due_ns > td_clock_ns() + UINT64_C(3000) * SECOND);
}

/* A published file that is renamed over, and then written to in place. */
/* shows: security.md file-written-after-rename */
static void later_writes_settle(void **state)
{
    struct watched_place *watched = *state;
    struct place *place = &watched->place;
    tree_directory(&place->tree, "m");
    (void)scanner_scan(&place->scanner);
    publish(watched, "m/a.safetensors", "a");
    (void)scan_when_due(watched);
    publish(watched, "m/a.safetensors", "b");
    assert_int_equal(scan_when_due(watched)->unsettled.count, 0);
    const struct td_file *before = file_at(place, "m/a.safetensors");
    assert_string_equal(td_checkpoint_tensor(&scanner_model(&place->scanner, "m")->checkpoints[0], 0).tensor->name,
                        "b");
    nap_ms(30); /* longer than a tick of the file system's clock */
    tree_simple(&place->tree, "m/a.safetensors", "c");
    assert_int_equal(scanner_scan(&place->scanner)->unsettled.count, 1);
    nap_ms(60);
    assert_int_equal(scanner_scan(&place->scanner)->unsettled.count, 1);
    assert_ptr_equal(file_at(place, "m/a.safetensors"), before);
}

/* A scan has seen the file as it was renamed, and waits for the tick. The next one finds it written to. */
/* shows: security.md file-written-after-rename */
static void writes_between_two_scans_settle(void **state)
{
    struct watched_place *watched = *state;
    struct place *place = &watched->place;
    tree_directory(&place->tree, "m");
    for (int tries = 0;; tries++) {
        assert_true(tries < 50);
        (void)scanner_scan(&place->scanner);
        publish(watched, "m/a.safetensors", "a");
        if (scanner_scan(&place->scanner)->unsettled.count == 1)
            break; /* else this machine is slow: try again */
        tree_remove(&place->tree, "m/a.safetensors");
        wait_notified(watched);
    }
    assert_true(place->scanner.unsettled.items[0].has_arrived);
    nap_ms(30);
    tree_poke(&place->tree, "m/a.safetensors", 8, " ", 1);
    nap_ms(60);
    assert_int_equal(scanner_scan(&place->scanner)->entry_count, 0);
    assert_false(place->scanner.unsettled.items[0].has_arrived);
}

static void directories_are_renamed_with_their_files(void **state)
{
    struct watched_place *watched = *state;
    struct place *place = &watched->place;
    tree_simple(&place->tree, ".out/m/deep/a.safetensors", "a");
    tree_text(&place->tree, ".out/m/config.json", "{}");
    tree_text(&place->tree, ".out/m/deep/later.txt", "x");
    (void)scanner_scan(&place->scanner);
    tree_rename(&place->tree, ".out/m", "m");
    wait_notified(watched);
    nap_ms(30);
    tree_text(&place->tree, "m/deep/later.txt", "y");
    nap_ms(60);
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 2 && snapshot->unsettled.count == 1);
    assert_true(file_at(place, "m/deep/a.safetensors") != NULL && file_at(place, "m/config.json") != NULL);
}

/* Downloads rename a blob into place and link to it (huggingface_hub, file_download.py). Names in a folder settle in at
 * most 2 s where the watch reports each change of them. A commit is shown whole. */
static void blobs_of_a_cache(void **state)
{
    struct watched_place *watched = *state;
    struct place *place = &watched->place;
    tree_text(&place->tree, "models--o--n/refs/main", C0);
    tree_directory(&place->tree, "models--o--n/snapshots/" C0);
    tree_directory(&place->tree, "models--o--n/blobs");
    (void)scanner_scan(&place->scanner);
    assert_true(td_tree_watch_get_counts(place->scanner.config.watch).watched == 6);
    tree_simple(&place->tree, "models--o--n/blobs/x.incomplete", "a");
    tree_rename(&place->tree, "models--o--n/blobs/x.incomplete", "models--o--n/blobs/x");
    tree_symlink(&place->tree, "models--o--n/snapshots/" C0 "/a.safetensors", "../../blobs/x");
    tree_simple(&place->tree, "models--o--n/blobs/y", "b"); /* written in place */
    tree_symlink(&place->tree, "models--o--n/snapshots/" C0 "/b.safetensors", "../../blobs/y");
    wait_notified(watched);
    nap_ms(100);
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 0 && snapshot->unsettled.count == 3); /* the folder too */
    assert_int_equal(snapshot->unsettled.pending_count, 2);                    /* a is complete */
    assert_true(snapshot->unsettled.next_due_ns < td_clock_ns() + UINT64_C(2) * SECOND);
    watched->notified = 0;
    tree_rename(&place->tree, "models--o--n/blobs/y", "models--o--n/blobs/y.incomplete");
    tree_rename(&place->tree, "models--o--n/blobs/y.incomplete", "models--o--n/blobs/y");
    wait_notified(watched);
    while (td_clock_ns() < snapshot->unsettled.next_due_ns + SECOND / 10)
        nap_ms(10);
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 2 && snapshot->unsettled.count == 0);
    assert_non_null(file_at(place, "o/n/a.safetensors"));
    watched->notified = 0;
    tree_text(&place->tree, "models--o--n/refs/v1", C0); /* is not listed, but decides what is */
    wait_notified(watched);
}

/* A commit that is made elsewhere and renamed into place is complete, and so are its blobs. The ref follows. */
static void commits_are_renamed_into_place(void **state)
{
    struct watched_place *watched = *state;
    struct place *place = &watched->place;
    tree_directory(&place->tree, "models--o--n/snapshots");
    tree_directory(&place->tree, "models--o--n/refs");
    (void)scanner_scan(&place->scanner);
    tree_simple(&place->tree, "models--o--n/blobs/x", "a");
    tree_simple(&place->tree, "models--o--n/blobs/y", "b");
    tree_symlink(&place->tree, "models--o--n/new/a.safetensors", "../../blobs/x");
    tree_symlink(&place->tree, "models--o--n/new/sub/b.safetensors", "../../../blobs/y");
    await_quiet(watched);
    tree_rename(&place->tree, "models--o--n/new", "models--o--n/snapshots/" C1);
    wait_notified(watched);
    const struct td_snapshot *snapshot = scan_when_due(watched);
    assert_true(snapshot->entry_count == 2 && snapshot->unsettled.count == 0);
    tree_text(&place->tree, "models--o--n/blobs/z", "later");
    tree_symlink(&place->tree, "models--o--n/new/a.safetensors", "../../blobs/x");
    tree_symlink(&place->tree, "models--o--n/new/z.txt", "../../blobs/z");
    await_quiet(watched);
    tree_rename(&place->tree, "models--o--n/new", "models--o--n/snapshots/" C0);
    wait_notified(watched);
    nap_ms(30);
    tree_text(&place->tree, "models--o--n/blobs/z", "again"); /* after the rename */
    (void)scanner_scan(&place->scanner);
    tree_text(&place->tree, "models--o--n/refs/main", C0); /* it is known by its other path until now */
    nap_ms(60);
    snapshot = scanner_scan(&place->scanner);
    assert_non_null(file_at(place, "o/n/sub/b.safetensors"));
    assert_true(snapshot->entry_count == 2 && snapshot->unsettled.pending_count == 1);
    assert_string_equal(scanner_model(&place->scanner, "o/n")->revision, C1);
    watched->notified = 0;
    tree_rename(&place->tree, "models--o--n/blobs/z", "models--o--n/blobs/z.incomplete");
    tree_rename(&place->tree, "models--o--n/blobs/z.incomplete", "models--o--n/blobs/z");
    wait_notified(watched);
    nap_ms(20);                        /* both renames were heard */
    snapshot = scan_when_due(watched); /* the arrivals from before were not forgotten */
    assert_string_equal(scanner_model(&place->scanner, "o/n")->revision, C0);
    assert_non_null(file_at(place, "o/n/z.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(watched, renamed_files_do_not_wait),
        TEST_IN(watched, later_writes_settle),
        TEST_IN(watched, writes_between_two_scans_settle),
        TEST_IN(watched, directories_are_renamed_with_their_files),
        TEST_IN(watched, blobs_of_a_cache),
        TEST_IN(watched, commits_are_renamed_into_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
