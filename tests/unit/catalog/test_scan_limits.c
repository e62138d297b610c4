/* Scans that meet a limit or a fault, and scans of a single file. */
#include "catalog/scan/scan.h"

#include "tests/unit/catalog/scan_place.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- limits and faults --------------------------------------------------------------------------------- */

static void limits_are_said(void **state)
{
    struct place *place = *state;
    char name[64];
    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof name, "m%02d/a.safetensors", i);
        tree_simple(&place->tree, name, "a");
    }
    place->scanner.config.max_files = 12;
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 12 && snapshot->problems.count == 1);
    place->scanner.config.max_files = 100;
    place->scanner.config.max_directories = 5; /* the root included */
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 4 && snapshot->problems.count == 1);
    place->scanner.config.max_directories = 100;
    place->scanner.config.limits.max_header_bytes = 10;
    tree_simple(&place->tree, "m00/a.safetensors", "b");
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->problems.count == 0 && snapshot->entry_count == 20);
    assert_int_equal(scanner_model(&place->scanner, "m00")->checkpoint_count, 0);
    assert_int_equal(scanner_model(&place->scanner, "m01")->checkpoint_count, 1); /* read under the old limit */
}

/* A file that could not be opened is tried again, because its identity does not show whether it can be opened now. */
static void passing_faults_are_tried_again(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_simple(&place->tree, "m/b.safetensors", "b");
    tree_at(&place->tree, "m/a.safetensors", path);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(place->tree.path, 0755), 0);
    pid_t child = fork(); /* root can read every file */
    assert_true(child >= 0);
    if (child == 0) {
        bool ok = geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0);
        ok = ok && scanner_try(&place->scanner, &place->err);
        const struct td_model *model = ok ? scanner_model(&place->scanner, "m") : NULL;
        ok = ok && model->checkpoint_count == 1 && scanner_problem(&place->scanner, model, "a.safetensors") != NULL;
        struct td_file *before = ok ? file_at(place, "m/a.safetensors") : NULL;
        ok = ok && before->transient && scanner_try(&place->scanner, &place->err) &&
             place->scanner.progress.files_to_read == 1;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Returns the memory that is kept for one file with these tensors. */
static uint64_t memory_of_one(const char *tensors)
{
    struct place place;
    struct td_budget memory = {.max_bytes = UINT64_MAX};
    open_place(&place);
    place.scanner.config.memory = &memory;
    tree_simple(&place.tree, "m/a.safetensors", tensors);
    (void)scanner_scan(&place.scanner);
    uint64_t bytes = memory.used_bytes;
    assert_true(bytes > 0 && file_at(&place, "m/a.safetensors")->memory_bytes == bytes);
    close_place(&place);
    assert_int_equal(memory.used_bytes, 0);
    return bytes;
}

/* A file that does not fit in memory is named in a problem, and read again only when it may fit. */
/* shows: security.md content-many-large-files */
static void memory_of_all_files_is_bounded(void **state)
{
    (void)state;
    struct place place;
    const uint64_t each = memory_of_one("a b c");
    struct td_budget memory = {.max_bytes = 2 * each + each / 2};
    open_place(&place);
    place.scanner.config.memory = &memory;
    tree_simple(&place.tree, "m/1.safetensors", "a b c");
    tree_simple(&place.tree, "m/2.safetensors", "d e f");
    tree_simple(&place.tree, "m/3.safetensors", "g h i");
    (void)scanner_scan(&place.scanner);
    const struct td_model *model = scanner_model(&place.scanner, "m");
    assert_int_equal(place.scanner.progress.files_to_read, 3);
    assert_true(model->problems.count == 1 && memory.used_bytes == 2 * each);
    assert_non_null(strstr(scanner_problem(&place.scanner, model, "3.safetensors"), "--max-memory"));
    assert_int_equal(file_at(&place, "m/3.safetensors")->manifest.arena.used_bytes, 0);
    (void)scanner_scan(&place.scanner); /* nothing changed */
    assert_int_equal(place.scanner.progress.files_to_read, 0);
    tree_simple(&place.tree, "m/2.safetensors", "d e F"); /* takes the memory of its old version */
    (void)scanner_scan(&place.scanner);
    assert_true(place.scanner.progress.files_to_read == 1 && memory.used_bytes == 2 * each);
    assert_int_equal(scanner_model(&place.scanner, "m")->problems.count, 1);
    tree_simple(&place.tree, "m/0.safetensors", "j k l"); /* other files stay in memory */
    (void)scanner_scan(&place.scanner);
    model = scanner_model(&place.scanner, "m");
    assert_true(model->problems.count == 2 && memory.used_bytes == 2 * each);
    assert_non_null(scanner_problem(&place.scanner, model, "0.safetensors"));
    tree_remove(&place.tree, "m/0.safetensors");
    tree_remove(&place.tree, "m/1.safetensors");
    (void)scanner_scan(&place.scanner);
    assert_true(place.scanner.progress.files_to_read == 1 && memory.used_bytes == 2 * each);
    assert_int_equal(scanner_model(&place.scanner, "m")->problems.count, 0);
    close_place(&place);
    assert_int_equal(memory.used_bytes, 0);
}

/* A running answer may hold an old snapshot, and the snapshot's files count. */
static void old_snapshots_count(void **state)
{
    struct place *place = *state;
    const uint64_t each = memory_of_one("a b c");
    struct td_budget memory = {.max_bytes = 2 * each};
    place->scanner.config.memory = &memory;
    tree_simple(&place->tree, "m/1.safetensors", "a b c");
    struct td_snapshot *first = td_snapshot_ref((struct td_snapshot *)(uintptr_t)scanner_scan(&place->scanner));
    tree_simple(&place->tree, "m/1.safetensors", "d e f");
    (void)scanner_scan(&place->scanner);
    tree_simple(&place->tree, "m/1.safetensors", "g h i");
    (void)scanner_scan(&place->scanner);
    assert_true(scanner_model(&place->scanner, "m")->problems.count == 0 && memory.used_bytes == 2 * each);
    tree_simple(&place->tree, "m/2.safetensors", "a b c");
    (void)scanner_scan(&place->scanner);
    assert_int_equal(scanner_model(&place->scanner, "m")->problems.count, 1);
    td_snapshot_unref(first);
    (void)scanner_scan(&place->scanner);
    assert_true(scanner_model(&place->scanner, "m")->problems.count == 0 && memory.used_bytes == 2 * each);
}

/* A refused file keeps no memory, however much of it was read. */
/* shows: security.md content-many-large-files */
static void refused_files_keep_no_memory(void **state)
{
    struct place *place = *state;
    struct td_budget memory = {.max_bytes = UINT64_MAX};
    place->scanner.config.memory = &memory;
    tree_simple(&place->tree, "m/a.safetensors", "a b c d e f a");
    tree_text(&place->tree, "n/model.safetensors.index.json",
              "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"../x\"}}");
    (void)scanner_scan(&place->scanner);
    const struct td_file *file = file_at(place, "m/a.safetensors");
    assert_true(!file->readable && file->manifest.arena.used_bytes == 0 && file->manifest.arena.chunks == NULL);
    file = file_at(place, "n/model.safetensors.index.json");
    assert_true(!file->readable && file->index.arena.chunks == NULL);
    assert_int_equal(memory.used_bytes, 0);
}

static void a_scan_can_be_stopped(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    struct td_snapshot *before = place->scanner.snapshot;
    atomic_store(&place->scanner.stop, true);
    assert_false(scanner_try(&place->scanner, &place->err));
    assert_ptr_equal(place->scanner.snapshot, before);
}

/* ---- a single file ------------------------------------------------------------------------------------- */

static void one_file_is_looked_at_anywhere(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    struct td_limits limits = td_limits_default();
    char path[TREE_PATH_BYTES];
    tree_simple(&place->tree, "deep/down/x.safetensors", "a b");
    tree_at(&place->tree, "deep/down/x.safetensors", path);
    assert_true(td_scan_file(path, &limits, NULL, &snapshot, &place->err));
    assert_true(snapshot->model_count == 1 && snapshot->entry_count == 1);
    const struct td_model *model = &snapshot->models[0];
    assert_string_equal(model->id, "x.safetensors");
    assert_int_equal(model->checkpoint_count, 1);
    assert_string_equal(model->checkpoints[0].id, "safetensors");
    assert_int_equal(model->checkpoints[0].tensor_count, 2);
    assert_true(model->total_bytes == 16 && model->entry_count == 1);
    td_snapshot_unref(snapshot);
}

static void one_file_may_be_refused(void **state)
{
    static const struct {
        const char *name;
        enum td_code code;
        const char *said;
    } cases[] = {
        {"absent.safetensors", TD_NOT_FOUND, "cannot open"},
        {"x.bin", TD_INVALID_ARGUMENT,
         "none of the formats that a file of such a name is read as: PyTorch, HDF5, GGUF"},
        {"bad.safetensors", TD_INVALID_ARGUMENT, "header"},
        {"pipe.safetensors", TD_FAILED_PRECONDITION, "regular"},
        {"folder.safetensors", TD_FAILED_PRECONDITION, "regular"},
        {"model.bin.index.json", TD_INVALID_ARGUMENT, "names the files of a sharded checkpoint"},
        {".metadata", TD_INVALID_ARGUMENT, "names the files of a sharded checkpoint"},
        {"__0_0.distcp", TD_INVALID_ARGUMENT, "a part of a distributed checkpoint"},
        {"readme.md", TD_INVALID_ARGUMENT,
         "known extensions are .safetensors .sft .pt .pth .ckpt .bin .pth.tar .pt.tar .ckpt.tar .th .ptl .pyth .h5"},
    };
    struct place *place = *state;
    struct td_limits limits = td_limits_default();
    tree_text(&place->tree, "x.bin", "");
    tree_text(&place->tree, "bad.safetensors", "rubbish");
    tree_text(&place->tree, "model.bin.index.json", "{\"weight_map\":{}}");
    tree_text(&place->tree, ".metadata", "");
    tree_text(&place->tree, "__0_0.distcp", "");
    tree_text(&place->tree, "readme.md", "");
    tree_fifo(&place->tree, "pipe.safetensors");
    tree_directory(&place->tree, "folder.safetensors");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_snapshot *snapshot = NULL;
        struct td_error err = TD_ERROR_INIT;
        char path[TREE_PATH_BYTES];
        tree_at(&place->tree, cases[i].name, path);
        CHECK(!td_scan_file(path, &limits, NULL, &snapshot, &err), "%s", cases[i].name);
        CHECK(err.code == cases[i].code, "%s: %s", cases[i].name, err.message);
        CHECK(strstr(err.message, cases[i].said) != NULL, "%s: %s", cases[i].name, err.message);
        CHECK(snapshot == NULL, "%s", cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, limits_are_said),
        TEST_IN(place, passing_faults_are_tried_again),
        cmocka_unit_test(memory_of_all_files_is_bounded),
        TEST_IN(place, old_snapshots_count),
        TEST_IN(place, refused_files_keep_no_memory),
        TEST_IN(place, a_scan_can_be_stopped),
        TEST_IN(place, one_file_is_looked_at_anywhere),
        TEST_IN(place, one_file_may_be_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
