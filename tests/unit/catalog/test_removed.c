/* Which models are held and kept, for how long, and what is then open. The oracle is what /proc says of descriptors. */
#include "catalog/removed/removed.h"

#include "core/clock.h"
#include "tests/unit/catalog/scan_place.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

static const uint64_t long_ns = UINT64_C(3600) * SECOND;

struct kept_place {
    struct place place;
    struct td_removed *removed;
    struct td_snapshot *before; /* of the scan before the last one */
};

static void begin(struct kept_place *k, uint64_t keep_ns, size_t max_files, size_t max_models)
{
    struct td_error err = TD_ERROR_INIT;
    memset(k, 0, sizeof *k);
    open_place(&k->place);
    const struct td_removed_config config = {
        .keep_ns = keep_ns, .max_files = max_files, .max_models = max_models, .maps = &k->place.scanner.maps};
    assert_true(td_removed_create(&config, &k->removed, &err));
}

static void end(struct kept_place *k)
{
    td_removed_destroy(k->removed);
    td_snapshot_unref(k->before);
    close_place(&k->place);
}

/* Scans as the catalog does. */
static void scan(struct kept_place *k)
{
    struct td_snapshot *last = k->place.scanner.snapshot == NULL ? NULL : td_snapshot_ref(k->place.scanner.snapshot);
    (void)scanner_scan(&k->place.scanner);
    td_removed_publish(k->removed, last, k->place.scanner.snapshot);
    td_snapshot_unref(k->before);
    k->before = last;
}

static void note(struct kept_place *k, const char *path)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_removed_note_read(k->removed, k->place.scanner.snapshot, td_text_of(path), &err), "%s", err.message);
}

/* Returns how many descriptors are open of files below the tree's directory of this name, removed ones too. */
static size_t open_below(const struct kept_place *k, const char *name)
{
    char beginning[TREE_PATH_BYTES];
    char link[300];
    char target[TREE_PATH_BYTES];
    size_t count = 0;
    tree_at(&k->place.tree, name, beginning);
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
        ssize_t len = readlink(link, target, sizeof target - 1);
        if (len <= 0)
            continue;
        target[len] = '\0';
        count += strncmp(target, beginning, strlen(beginning)) == 0 && target[strlen(beginning)] == '/' ? 1 : 0;
    }
    (void)closedir(directory);
    return count;
}

/* Waits until so many are open: another thread closes them. */
static void wait_open(const struct kept_place *k, const char *name, size_t count)
{
    uint64_t give_up_ns = td_clock_ns() + UINT64_C(60) * SECOND;
    while (open_below(k, name) != count) {
        CHECK(td_clock_ns() < give_up_ns, "%s: %zu are open, not %zu", name, open_below(k, name), count);
        nap_ms(5);
    }
}

/* Checks the ids of the kept models, the one that was removed last first. */
static void check_kept(struct kept_place *k, const char *ids)
{
    char got[512] = "";
    struct td_removed_model model;
    for (size_t i = 0; td_removed_get(k->removed, i, &model); i++) {
        CHECK(td_snapshot_find_model(model.snapshot, td_text_of(model.id)) != NULL, "%s", model.id);
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i > 0 ? " " : "", model.id);
        td_snapshot_unref(model.snapshot);
    }
    CHECK(strcmp(got, ids) == 0, "\"%s\", not \"%s\"", got, ids);
}

static void make(struct kept_place *k, const char *id)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", id);
    tree_simple(&k->place.tree, path, "a b");
    (void)snprintf(path, sizeof path, "%s/config.json", id);
    tree_text(&k->place.tree, path, "{}");
}

static void remove_model(struct kept_place *k, const char *id)
{
    tree_remove(&k->place.tree, id);
    scan(k);
}

static void only_what_was_read_is_kept(void **state)
{
    (void)state;
    struct kept_place k;
    begin(&k, long_ns, 100, 4);
    make(&k, "run/v1");
    make(&k, "run/v2");
    make(&k, "run/v3");
    scan(&k);
    note(&k, "run/v1/model.safetensors");
    note(&k, "run/v3");
    note(&k, "run/v1x/model.safetensors");
    note(&k, "nothing");
    assert_true(open_below(&k, "run/v1") == 2 && open_below(&k, "run/v2") == 0 && open_below(&k, "run/v3") == 2);
    check_kept(&k, "");
    remove_model(&k, "run/v2");
    check_kept(&k, "");
    remove_model(&k, "run/v1");
    check_kept(&k, "run/v1");
    remove_model(&k, "run/v3");
    check_kept(&k, "run/v3 run/v1");
    struct td_removed_model model;
    assert_true(td_removed_get(k.removed, 1, &model));
    const struct td_model *kept = td_snapshot_find_model(model.snapshot, TD_TEXT("run/v1"));
    for (size_t i = 0; i < kept->entry_count; i++) { /* what nobody has read is there, too */
        struct td_blob *blob;
        struct td_error err = TD_ERROR_INIT;
        CHECK(td_file_source_map(&k.place.scanner.maps, model.snapshot->root,
                                 &model.snapshot->entries[kept->first_entry + i].file->source, &blob, &err),
              "%s", err.message);
        td_blob_unref(blob);
    }
    td_snapshot_unref(model.snapshot);
    td_removed_forget(k.removed, TD_TEXT("run/v1"));
    check_kept(&k, "run/v3");
    wait_open(&k, "run/v1", 0);
    td_removed_forget(k.removed, TD_TEXT("run"));
    check_kept(&k, "");
    wait_open(&k, "run", 0);
    end(&k);
}

static void it_ends_some_time_after_the_last_body(void **state)
{
    (void)state;
    struct kept_place k;
    const uint64_t keep_ns = UINT64_C(400) * SECOND / 1000;
    begin(&k, keep_ns, 100, 4);
    make(&k, "a");
    make(&k, "b");
    scan(&k);
    note(&k, "a");
    note(&k, "b");
    uint64_t read_ns = td_clock_ns();
    remove_model(&k, "a");
    wait_open(&k, "a", 0);
    assert_true(td_clock_ns() - read_ns >= keep_ns * 9 / 10);
    check_kept(&k, "");
    wait_open(&k, "b", 0); /* also of a model that is there, which is then not kept */
    remove_model(&k, "b");
    check_kept(&k, "");
    end(&k);
}

static void the_one_removed_first_goes(void **state)
{
    (void)state;
    struct kept_place k;
    static const char *const ids[] = {"a", "b", "c", "d"};
    begin(&k, long_ns, 100, 2);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        make(&k, ids[i]);
    scan(&k);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        note(&k, ids[i]);
    remove_model(&k, "c");
    remove_model(&k, "a");
    remove_model(&k, "d");
    check_kept(&k, "d a");
    wait_open(&k, "c", 0);
    end(&k);
}

static void a_model_within_another_counts_with_that(void **state)
{
    (void)state;
    struct kept_place k;
    begin(&k, long_ns, 100, 2);
    make(&k, "sd");
    make(&k, "sd/unet");
    make(&k, "sd/vae");
    make(&k, "other");
    scan(&k);
    note(&k, "sd/unet/model.safetensors");
    note(&k, "other");
    remove_model(&k, "other");
    remove_model(&k, "sd");
    check_kept(&k, "sd other");
    assert_int_equal(open_below(&k, "sd"), 6);
    end(&k);
}

static void a_folder_that_is_there_again_counts(void **state)
{
    (void)state;
    struct kept_place k;
    begin(&k, long_ns, 100, 4);
    make(&k, "a");
    make(&k, "b");
    scan(&k);
    note(&k, "a");
    note(&k, "b");
    remove_model(&k, "a");
    check_kept(&k, "a");
    make(&k, "a");
    scan(&k);
    check_kept(&k, "");
    wait_open(&k, "a", 0);
    tree_rename(&k.place.tree, "b", ".b"); /* not served */
    scan(&k);
    check_kept(&k, "b");
    tree_rename(&k.place.tree, ".b", "b"); /* the same files */
    scan(&k);
    check_kept(&k, "");
    wait_open(&k, "b", 0);
    note(&k, "b");
    assert_int_equal(open_below(&k, "b"), 2);
    tree_text(&k.place.tree, "b/new.txt", "x"); /* a model that changes is held at its next body */
    scan(&k);
    wait_open(&k, "b", 0);
    end(&k);
}

static void a_model_that_loses_files_is_kept_whole(void **state)
{
    (void)state;
    struct kept_place k;
    begin(&k, long_ns, 100, 4);
    make(&k, "a");
    tree_text(&k.place.tree, "a/third.txt", "x");
    scan(&k);
    note(&k, "a");
    tree_remove(&k.place.tree, "a/config.json");
    scan(&k);
    check_kept(&k, "a");
    tree_remove(&k.place.tree, "a/model.safetensors");
    scan(&k);
    check_kept(&k, "a");
    struct td_removed_model model;
    assert_true(td_removed_get(k.removed, 0, &model));
    assert_int_equal(td_snapshot_find_model(model.snapshot, TD_TEXT("a"))->entry_count, 3);
    td_snapshot_unref(model.snapshot);
    remove_model(&k, "a");
    check_kept(&k, "a");
    end(&k);
}

static void open_files_are_bounded(void **state)
{
    (void)state;
    struct kept_place k;
    begin(&k, long_ns, 5, 4);
    make(&k, "a");
    make(&k, "b");
    make(&k, "c");
    make(&k, "big");
    for (int i = 0; i < 5; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "big/%d.txt", i);
        tree_text(&k.place.tree, path, "x");
    }
    scan(&k);
    note(&k, "big"); /* it has more than all */
    assert_int_equal(open_below(&k, "big"), 0);
    note(&k, "a");
    nap_ms(2);
    note(&k, "b");
    nap_ms(2);
    note(&k, "a");
    note(&k, "c"); /* the one that was read longest ago makes room */
    wait_open(&k, "b", 0);
    assert_true(open_below(&k, "a") == 2 && open_below(&k, "c") == 2);
    remove_model(&k, "a");
    remove_model(&k, "c");
    note(&k, "b"); /* kept models make none */
    assert_int_equal(open_below(&k, "b"), 0);
    check_kept(&k, "c a");
    end(&k);
}

/* The files of others that a kept model's snapshot refers to do not stay open. */
static void mappings_of_others_are_closed(void **state)
{
    (void)state;
    struct kept_place k;
    struct td_blob *blob;
    begin(&k, long_ns, 100, 4);
    make(&k, "a");
    make(&k, "b");
    scan(&k);
    note(&k, "a");
    remove_model(&k, "a");
    struct td_snapshot *now = k.place.scanner.snapshot;
    const struct td_entry *entry = td_snapshot_find_entry(now, TD_TEXT("b/model.safetensors"));
    assert_true(td_file_source_map(&k.place.scanner.maps, now->root, &entry->file->source, &blob, &k.place.err));
    td_blob_unref(blob);
    assert_int_equal(open_below(&k, "b"), 1);
    remove_model(&k, "b");
    assert_int_equal(open_below(&k, "b"), 0);
    check_kept(&k, "a");
    end(&k);
}

struct noisy {
    struct kept_place *k;
    struct td_snapshot *snapshot;
    _Atomic bool stop;
};

static void *notes(void *context)
{
    static const char *const paths[] = {"a/model.safetensors", "b", "sd/unet/config.json", "c"};
    struct noisy *noisy = context;
    struct td_removed_model model;
    for (size_t i = 0; !noisy->stop; i++) {
        struct td_error err = TD_ERROR_INIT;
        (void)td_removed_note_read(noisy->k->removed, noisy->snapshot, td_text_of(paths[i % COUNT_OF(paths)]), &err);
        if (td_removed_get(noisy->k->removed, i % 3, &model))
            td_snapshot_unref(model.snapshot);
    }
    return NULL;
}

static void threads_may_do_all_at_once(void **state)
{
    (void)state;
    struct kept_place k;
    pthread_t threads[3];
    begin(&k, SECOND / 20, 7, 2);
    static const char *const ids[] = {"a", "b", "c", "sd", "sd/unet"};
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        make(&k, ids[i]);
    scan(&k);
    struct noisy noisy = {.k = &k, .snapshot = td_snapshot_ref(k.place.scanner.snapshot)};
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, notes, &noisy), 0);
    for (size_t round = 0; round < 20; round++) {
        remove_model(&k, ids[round % 3]);
        td_removed_forget(k.removed, TD_TEXT("sd"));
        make(&k, ids[round % 3]);
        scan(&k);
    }
    noisy.stop = true;
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    td_snapshot_unref(noisy.snapshot);
    end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_read_is_kept),
        cmocka_unit_test(it_ends_some_time_after_the_last_body),
        cmocka_unit_test(the_one_removed_first_goes),
        cmocka_unit_test(a_model_within_another_counts_with_that),
        cmocka_unit_test(a_folder_that_is_there_again_counts),
        cmocka_unit_test(a_model_that_loses_files_is_kept_whole),
        cmocka_unit_test(open_files_are_bounded),
        cmocka_unit_test(mappings_of_others_are_closed),
        cmocka_unit_test(threads_may_do_all_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
