/* Files that are too young to trust. */
#include "catalog/scan/scan.h"

#include "core/clock.h"
#include "tests/unit/catalog/scan_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void young_files_wait(void **state)
{
    struct place *place = *state;
    place->scanner.config.settle_ns = (uint64_t)10 * SECOND;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_set_age(&place->tree, "m/a.safetensors", INT64_C(4) * SECOND);
    tree_simple(&place->tree, "m/b.safetensors", "b");
    uint64_t now_ns = td_clock_ns();
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->unsettled.count == 1 && snapshot->entry_count == 1);
    assert_null(file_at(place, "m/a.safetensors"));
    /* due in 6 s, when the 10 s are over */
    assert_true(snapshot->unsettled.next_due_ns > now_ns + (uint64_t)2 * SECOND);
    assert_true(snapshot->unsettled.next_due_ns < now_ns + (uint64_t)8 * SECOND);
    assert_int_equal(place->scanner.unsettled.count, 1);
    assert_string_equal(place->scanner.unsettled.items[0].path, "m/a.safetensors");
    tree_set_age(&place->tree, "m/a.safetensors", INT64_C(11) * SECOND);
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->unsettled.count == 0 && snapshot->entry_count == 2 && snapshot->unsettled.next_due_ns == 0);
    assert_int_equal(place->scanner.unsettled.count, 0);
}

/* All kinds of files settle, not only checkpoints: clients read config.json too. */
static void all_files_settle(void **state)
{
    struct place *place = *state;
    place->scanner.config.settle_ns = (uint64_t)3600 * SECOND;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_text(&place->tree, "m/config.json", "{}");
    tree_index(&place->tree, "m/x.safetensors.index.json", "a a.safetensors");
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->unsettled.count == 3 && snapshot->entry_count == 0 && snapshot->model_count == 0);
    place->scanner.config.settle_ns = 0;
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->unsettled.count == 0 && snapshot->entry_count == 3);
}

/* A future mtime does not give a file's age: the file settles when it stood still long enough between scans. */
static void future_files_settle_by_watching(void **state)
{
    struct place *place = *state;
    place->scanner.config.settle_ns = 300000000;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_set_age(&place->tree, "m/a.safetensors", -INT64_C(1000) * SECOND);
    assert_int_equal(scanner_scan(&place->scanner)->entry_count, 0);
    uint64_t due_ns = place->scanner.snapshot->unsettled.next_due_ns;
    assert_true(due_ns > 0 && due_ns <= td_clock_ns() + 300000000);
    nap_ms(150);
    tree_poke(&place->tree, "m/a.safetensors", 8, "{", 1); /* the file is still being written */
    tree_set_age(&place->tree, "m/a.safetensors", -INT64_C(1000) * SECOND);
    assert_int_equal(scanner_scan(&place->scanner)->entry_count, 0);
    assert_true(place->scanner.snapshot->unsettled.next_due_ns > due_ns); /* the wait started again */
    while (td_clock_ns() < place->scanner.snapshot->unsettled.next_due_ns)
        nap_ms(10);
    assert_int_equal(scanner_scan(&place->scanner)->entry_count, 1);
}

/* Makes the state between the two steps of a truncation: the new size with the old times. */
static void truncate_half(const struct place *place, const char *name, uint64_t size)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(&place->tree, name, path);
    assert_int_equal(stat(path, &st), 0);
    tree_truncate(&place->tree, name, size);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Replaces the file by a copy with the same times, as cp -p and mv do. */
static void replace_by_copy(const struct place *place, const char *name)
{
    char path[TREE_PATH_BYTES];
    char copy[TREE_PATH_BYTES];
    struct stat st;
    tree_at(&place->tree, name, path);
    tree_at(&place->tree, "copy", copy);
    assert_int_equal(stat(path, &st), 0);
    tree_simple(&place->tree, "copy", "a");
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, copy, times, 0), 0);
    assert_int_equal(rename(copy, path), 0);
}

/* A file with an old mtime can be in the middle of a change, whether it was published before or only seen, and whether
 * or not another file has taken its place since. */
/* shows: security.md file-random-changes */
static void half_changed_files_wait(void **state)
{
    (void)state;
    for (int row = 0; row < 4; row++) {
        int published = row % 2;
        struct place place;
        open_place(&place);
        place.scanner.config.settle_ns = published ? 300000000 : (uint64_t)36000 * SECOND;
        tree_simple(&place.tree, "m/a.safetensors", "a");
        tree_set_age(&place.tree, "m/a.safetensors", INT64_C(100) * SECOND);
        assert_int_equal(scanner_scan(&place.scanner)->entry_count, published);
        place.scanner.config.settle_ns = 300000000;
        if (row >= 2)
            replace_by_copy(&place, "m/a.safetensors");
        truncate_half(&place, "m/a.safetensors", 0);
        for (int i = 0; i < 2; i++) {
            const struct td_snapshot *snapshot = scanner_scan(&place.scanner);
            assert_true(snapshot->entry_count == (size_t)published && snapshot->unsettled.count == 1);
            assert_true(!published || file_at(&place, "m/a.safetensors")->source.id.size_bytes > 0);
        }
        while (td_clock_ns() < place.scanner.snapshot->unsettled.next_due_ns)
            nap_ms(10);
        assert_int_equal(scanner_scan(&place.scanner)->unsettled.count, 0);
        assert_int_equal(file_at(&place, "m/a.safetensors")->source.id.size_bytes, 0);
        close_place(&place);
    }
}

/* A truncation that takes longer than a file takes to settle: its writer still has the file open. */
static void half_changed_files_wait_for_their_writers(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    place->scanner.config.settle_ns = 50000000;
    take_leases(place);
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_set_age(&place->tree, "m/a.safetensors", INT64_C(100) * SECOND);
    assert_int_equal(scanner_scan(&place->scanner)->entry_count, 1);
    truncate_half(place, "m/a.safetensors", 0);
    tree_at(&place->tree, "m/a.safetensors", path);
    int writer = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(writer >= 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(scanner_scan(&place->scanner)->unsettled.count, 1);
        assert_true(place->scanner.snapshot->unsettled.next_due_ns <= td_clock_ns() + 50000000);
        while (td_clock_ns() < place->scanner.snapshot->unsettled.next_due_ns)
            nap_ms(10);
    }
    assert_int_equal(close(writer), 0);
    assert_int_equal(scanner_scan(&place->scanner)->unsettled.count, 0);
    assert_int_equal(file_at(place, "m/a.safetensors")->source.id.size_bytes, 0);
}

/* While a known file changes its old entry stays: requests get an answer to try again, not one that the file is
 * gone. */
static void known_files_stay_while_they_settle(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    struct td_file *before = file_at(place, "m/a.safetensors");
    place->scanner.config.settle_ns = (uint64_t)10 * SECOND;
    tree_simple(&place->tree, "m/a.safetensors", "b");
    tree_set_age(&place->tree, "m/a.safetensors", SECOND);
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_int_equal(snapshot->unsettled.count, 1);
    assert_ptr_equal(file_at(place, "m/a.safetensors"), before);
    assert_string_equal(td_checkpoint_tensor(&scanner_model(&place->scanner, "m")->checkpoints[0], 0).tensor->name,
                        "a");
    (void)scanner_scan(&place->scanner);
    assert_ptr_equal(file_at(place, "m/a.safetensors"), before);
    tree_set_age(&place->tree, "m/a.safetensors", INT64_C(10) * SECOND);
    (void)scanner_scan(&place->scanner);
    assert_string_equal(td_checkpoint_tensor(&scanner_model(&place->scanner, "m")->checkpoints[0], 0).tensor->name,
                        "b");
    tree_simple(&place->tree, "m/a.safetensors", "c");
    tree_set_age(&place->tree, "m/a.safetensors", SECOND);
    (void)scanner_scan(&place->scanner);
    tree_remove(&place->tree, "m/a.safetensors"); /* a removed file leaves at once */
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 0 && snapshot->unsettled.count == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, young_files_wait),
        TEST_IN(place, all_files_settle),
        TEST_IN(place, future_files_settle_by_watching),
        cmocka_unit_test(half_changed_files_wait),
        TEST_IN(place, half_changed_files_wait_for_their_writers),
        TEST_IN(place, known_files_stay_while_they_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
