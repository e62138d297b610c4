/* Layout: huggingface_hub, file_download.py (repo_folder_name) and the guide "Understand caching":
 * models--org--name/{blobs,refs,snapshots/<commit>}. */
#include "catalog/model/hub_cache.h"

#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>

static void ids_of_folders(void **state)
{
    (void)state;
    static const struct {
        const char *name, *id; /* NULL: no cache folder */
    } cases[] = {
        {"models--Qwen--Qwen3-0.6B", "Qwen/Qwen3-0.6B"},
        {"models--gpt2", "gpt2"},
        {"models--a--b_c.d-e", "a/b_c.d-e"},
        {"models--org--name-with-dashes", "org/name-with-dashes"},
        {"models--", NULL},
        {"models-", NULL},
        {"models", NULL},
        {"", NULL},
        {"models-gpt2", NULL},
        {"Models--gpt2", NULL},
        {"datasets--a--b", "datasets/a/b"},
        {"datasets--squad", "datasets/squad"},
        {"datasets--", NULL},
        {"spaces--a--b", NULL},
        {"xmodels--a--b", NULL},
        /* no repository has such an id, and no URL can name it */
        {"models----b", NULL},
        {"models--a--", NULL},
        {"models--a----b", NULL},
        {"models--..--etc", NULL},
        {"models--a--..", NULL},
        {"models--..", NULL},
        {"models--.--a", NULL},
        {"models--a--.hidden", NULL} /* dot-files are not listed */,
        {"models--.git--x", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char id[256] = "?";
        bool ok = td_hub_cache_id(cases[i].name, id, sizeof id);
        CHECK(ok == (cases[i].id != NULL), "%s: %s", cases[i].name, id);
        CHECK(!ok || strcmp(id, cases[i].id) == 0, "%s: %s", cases[i].name, id);
    }
}

static void ids_fit_or_are_refused(void **state)
{
    (void)state;
    char id[8];
    for (size_t capacity = 1; capacity <= sizeof id; capacity++)
        assert_int_equal(td_hub_cache_id("models--ab--cd", id, capacity), capacity >= sizeof "ab/cd");
}

static void places_in_snapshots(void **state)
{
    (void)state;
    static const struct {
        const char *path, *folder, *below, *id, *commit; /* folder NULL: the path is not in a snapshot */
    } cases[] = {
        {"/c/models--o--n/snapshots/c1", "/c/models--o--n", "snapshots/c1", "o/n", "c1"},
        {"/c/models--o--n/snapshots/c1/unet/x", "/c/models--o--n", "snapshots/c1/unet/x", "o/n/unet/x", "c1"},
        {"/models--gpt2/snapshots/c1", "/models--gpt2", "snapshots/c1", "gpt2", "c1"},
        {"/snapshots/a/models--o--n/snapshots/c1", "/snapshots/a/models--o--n", "snapshots/c1", "o/n", "c1"},
        {"/c/models--o--n/snapshots", NULL, NULL, NULL, NULL},
        {"/c/models--o--n/snapshots/", NULL, NULL, NULL, NULL},
        {"/c/models--o--n", NULL, NULL, NULL, NULL},
        {"/c/models--o--n/blobs/c1", NULL, NULL, NULL, NULL},
        {"/c/datasets--o--n/snapshots/c1", "/c/datasets--o--n", "snapshots/c1", "datasets/o/n", "c1"},
        {"/c/spaces--o--n/snapshots/c1", NULL, NULL, NULL, NULL},
        {"/c/models--o--n/x/snapshots/c1", NULL, NULL, NULL, NULL},
        {"/snapshots/c1", NULL, NULL, NULL, NULL},
        {"/", NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_hub_place place = {.below = ""};
        bool ok = td_hub_cache_place(cases[i].path, &place);
        CHECK(ok == (cases[i].folder != NULL), "%s", cases[i].path);
        CHECK(!ok || (strcmp(place.folder, cases[i].folder) == 0 && strcmp(place.below, cases[i].below) == 0 &&
                      strcmp(place.id, cases[i].id) == 0 && strcmp(place.commit, cases[i].commit) == 0),
              "%s: %s %s %s %s", cases[i].path, place.folder, place.below, place.id, place.commit);
    }
    char longest[PATH_MAX + 8] = "/models--o--n/snapshots/c1/";
    memset(longest + strlen(longest), 'x', PATH_MAX - 1 - strlen(longest));
    struct td_hub_place place;
    assert_true(td_hub_cache_place(longest, &place));
    longest[PATH_MAX - 1] = 'x';
    assert_false(td_hub_cache_place(longest, &place));
}

struct place {
    struct tree tree;
    struct td_root *root;
};

static void open_place(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    tree_open(&place->tree);
    tree_directory(&place->tree, "root");
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, "root", path);
    assert_true(td_root_create(path, &place->root, &err));
}

static void close_place(struct place *place)
{
    td_root_unref(place->root);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Checks the snapshot of the folder that is published. `wanted` NULL: none. */
static void expect(const struct place *place, const char *folder, const char *wanted)
{
    char commit[256] = "?";
    bool ok = td_hub_cache_commit(place->root, folder, commit, sizeof commit);
    CHECK(ok == (wanted != NULL), "%s: %s", folder, commit);
    CHECK(!ok || strcmp(commit, wanted) == 0, "%s: %s, wanted %s", folder, commit, wanted);
}

static void main_decides(void **state)
{
    struct place *place = *state;
    tree_directory(&place->tree, "root/c/snapshots/aaa");
    tree_directory(&place->tree, "root/c/snapshots/bbb");
    tree_set_age(&place->tree, "root/c/snapshots/aaa", 0);
    tree_set_age(&place->tree, "root/c/snapshots/bbb", INT64_C(5000000000));
    static const char *const contents[] = {"bbb", "bbb\n", "bbb\r\n", "bbb other\n", "bbb\nmore\n"};
    for (size_t i = 0; i < COUNT_OF(contents); i++) {
        tree_text(&place->tree, "root/c/refs/main", contents[i]);
        expect(place, "c", "bbb");
    }
}

/* Without a usable refs/main the snapshot that changed last is published. */
static void newest_snapshot_otherwise(void **state)
{
    struct place *place = *state;
    char long_line[2000];
    tree_directory(&place->tree, "root/c/snapshots/aaa");
    tree_directory(&place->tree, "root/c/snapshots/bbb");
    tree_directory(&place->tree, "root/c/snapshots/.hidden");
    tree_text(&place->tree, "root/c/snapshots/file", "x");
    tree_symlink(&place->tree, "root/c/snapshots/zzz", "aaa");
    tree_set_age(&place->tree, "root/c/snapshots/aaa", INT64_C(1000000000));
    tree_set_age(&place->tree, "root/c/snapshots/bbb", INT64_C(5000000000));
    expect(place, "c", "aaa");
    memset(long_line, 'a', sizeof long_line - 1);
    long_line[sizeof long_line - 1] = '\0';
    const char *const contents[] = {"",     "\n",      "ccc", "../snapshots/bbb", "..",           ".", "/etc",
                                    "file", ".hidden", "bb",  long_line,          "snapshots/bbb"};
    for (size_t i = 0; i < COUNT_OF(contents); i++) {
        tree_text(&place->tree, "root/c/refs/main", contents[i]);
        expect(place, "c", "aaa");
    }
    tree_remove(&place->tree, "root/c/refs/main");
    tree_fifo(&place->tree, "root/c/refs/main");
    expect(place, "c", "aaa");
    tree_remove(&place->tree, "root/c/refs/main");
    tree_text(&place->tree, "outside", "bbb");
    tree_symlink(&place->tree, "root/c/refs/main", "../../../outside");
    expect(place, "c", "aaa");
}

/* With equal times the greater name is published, so that all scans choose the same. */
static void equal_times_choose_the_greater_name(void **state)
{
    struct place *place = *state;
    struct timespec same[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    static const char *const names[] = {"m", "z", "a", "q"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[64];
        char path[TREE_PATH_BYTES];
        (void)snprintf(name, sizeof name, "root/c/snapshots/%s", names[i]);
        tree_directory(&place->tree, name);
        tree_at(&place->tree, name, path);
        assert_int_equal(utimensat(AT_FDCWD, path, same, 0), 0);
    }
    expect(place, "c", "z");
}

static void folders_without_snapshots(void **state)
{
    struct place *place = *state;
    expect(place, "absent", NULL);
    tree_directory(&place->tree, "root/empty");
    expect(place, "empty", NULL);
    tree_directory(&place->tree, "root/none/snapshots");
    tree_text(&place->tree, "root/none/refs/main", "aaa");
    expect(place, "none", NULL);
    tree_directory(&place->tree, "outside/aaa");
    tree_symlink(&place->tree, "root/linked/snapshots", "../../outside");
    expect(place, "linked", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_folders),          cmocka_unit_test(ids_fit_or_are_refused),
        cmocka_unit_test(places_in_snapshots),     TEST_IN(place, main_decides),
        TEST_IN(place, newest_snapshot_otherwise), TEST_IN(place, equal_times_choose_the_greater_name),
        TEST_IN(place, folders_without_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
