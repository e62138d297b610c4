/* The store of kept models: what is in it, what is published, what leaves first, and what a kill leaves behind. */
#include "catalog/upstream/upstream_store.h"

#include "core/digest.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct td_upstream_store *open_store(const struct tree *tree, uint64_t max_bytes)
{
    struct td_upstream_store *store = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_upstream_store_open(tree->path, max_bytes, &store, &err), "%s", err.message);
    return store;
}

static bool exists(const struct tree *tree, const char *name)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(tree, name, path);
    return lstat(path, &st) == 0;
}

/* Writes a file into a directory. */
static void put(int directory, const char *name, const char *text)
{
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

/* Begins a model, with one file in it. */
static void begin(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    CHECK(td_upstream_store_begin(store, id, bytes, &folder, &began_s, &evicted, &err), "%s", err.message);
    put(folder->fd, "config.json", "{}");
    td_root_unref(folder);
}

static bool is_config(void *context, const char *path)
{
    (void)context;
    return strcmp(path, "config.json") == 0 || strcmp(path, "d/config.json") == 0;
}

static void publish(struct td_upstream_store *store, const char *id)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_upstream_store_publish(store, id, true, is_config, NULL, &err), "%s", err.message);
}

static void keep(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    begin(store, id, bytes);
    publish(store, id);
}

/* As keep, with a directory in the model and a file in that. */
static void keep_deep(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    CHECK(td_upstream_store_begin(store, id, bytes, &folder, &began_s, &evicted, &err), "%s", err.message);
    put(folder->fd, "config.json", "{}");
    assert_int_equal(mkdirat(folder->fd, "d", 0755), 0);
    put(folder->fd, "d/config.json", "{}");
    td_root_unref(folder);
    publish(store, id);
}

/* Sets when a record was last read, as the store keeps it. */
static void set_read(const struct tree *tree, const char *id, int64_t seconds)
{
    char key[TD_TAG_BYTES];
    char name[128];
    char path[TREE_PATH_BYTES];
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_true(td_digest_tag(id, strlen(id), key));
    (void)snprintf(name, sizeof name, ".tensord-upstream/records/%s", key);
    tree_at(tree, name, path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void ids_are_those_of_models_and_lead_nowhere_else(void **state)
{
    static const char *const good[] = {"gpt2", "org/name", "Org-1/na_me.v2"};
    static const char *const bad[] = {
        "",     "/",        "a/",          "/a",    "a/b/c",       ".hidden",  "a/.b",
        "a/..", "..",       "a b",         "a/b\n", "datasets/x",  "datasets", "models--a--b",
        "a\\b", "\xc3\xa9", "a/models--b", "a//b",  "datasets--a", "a%2fb",
    };
    char longest[98];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_kept_id_is_valid(td_text_of(good[i])), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_kept_id_is_valid(td_text_of(bad[i])), "%s", bad[i]);
    memset(longest, 'a', sizeof longest);
    assert_true(td_kept_id_is_valid(td_text_n(longest, 96)));
    assert_false(td_kept_id_is_valid(td_text_n(longest, 97)));
    assert_false(td_kept_id_is_valid(td_text_n("a\0b", 3)));
}

static void a_model_appears_by_one_rename_without_what_does_not_belong_to_it(void **state)
{
    struct tree tree;
    struct td_kept_model kept;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 0);
    assert_true(td_upstream_store_begin(store, "org/name", 2, &folder, &began_s, &evicted, NULL));
    put(folder->fd, "config.json", "{}");
    put(folder->fd, ".config.json.tensord-part", "left over");
    assert_int_equal(mkdirat(folder->fd, "old", 0755), 0);
    put(folder->fd, "old/model.bin", "of another version");
    td_root_unref(folder);
    assert_false(exists(&tree, "org"));
    assert_false(td_upstream_store_find(store, TD_TEXT("org/name"), &kept));
    publish(store, "org/name");
    assert_true(exists(&tree, "org/name/config.json"));
    assert_false(exists(&tree, "org/name/.config.json.tensord-part"));
    assert_false(exists(&tree, "org/name/old"));
    assert_true(td_upstream_store_find(store, TD_TEXT("org/name"), &kept));
    assert_int_equal(kept.bytes, 2);
    assert_true(kept.is_verified);
    assert_true(td_upstream_store_is_there(store, TD_TEXT("org/name")));
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void what_the_operator_has_is_left_alone(void **state)
{
    struct tree tree;
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    (void)state;
    tree_open(&tree);
    tree_text(&tree, "org/mine/config.json", "mine");
    tree_text(&tree, "later/x", "x");
    tree_remove(&tree, "later");
    struct td_upstream_store *store = open_store(&tree, 100);
    assert_false(td_upstream_store_begin(store, "org/mine", 2, &folder, &began_s, &evicted, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    begin(store, "later", 2);
    tree_text(&tree, "later/config.json", "the operator was faster");
    td_error_init(&err);
    assert_false(td_upstream_store_publish(store, "later", true, is_config, NULL, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    keep(store, "swapped", 60);
    tree_remove(&tree, "swapped");
    tree_text(&tree, "swapped/config.json", "the operator's own");
    keep(store, "added", 10);
    tree_text(&tree, "added/notes.txt", "the operator's own");
    keep_deep(store, "org/deep", 10);
    tree_text(&tree, "org/deep/d/precious.bin", "the operator's own");
    keep_deep(store, "org/written", 10);
    tree_poke(&tree, "org/written/d/config.json", 0, "[]", 2);
    keep_deep(store, "untouched", 10);
    assert_true(td_upstream_store_begin(store, "new", 95, &folder, &began_s, &evicted, NULL)); /* makes room */
    td_root_unref(folder);
    assert_int_equal(evicted, 1); /* of others the record goes, and the operator's directory stays */
    assert_false(exists(&tree, "untouched"));
    assert_true(exists(&tree, "org/deep/d/precious.bin") && exists(&tree, "org/deep/config.json"));
    assert_true(exists(&tree, "org/written/d/config.json") && exists(&tree, "org/written/config.json"));
    assert_true(exists(&tree, "swapped/config.json"));
    assert_true(exists(&tree, "added/config.json") && exists(&tree, "added/notes.txt"));
    assert_true(exists(&tree, "later/config.json"));
    assert_true(exists(&tree, "org/mine/config.json"));
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void a_model_that_was_being_compared_at_a_kill_goes_back(void **state)
{
    struct tree tree;
    struct td_kept_model kept;
    char key[TD_TAG_BYTES];
    char name[128];
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 100);
    keep_deep(store, "org/name", 10);
    td_upstream_store_close(store);
    assert_true(td_digest_tag("org/name", 8, key));
    (void)snprintf(name, sizeof name, ".tensord-upstream/check/%s", key);
    tree_rename(&tree, "org/name", name);
    tree_text(&tree, ".tensord-upstream/check/unknown/x", "x"); /* without a record */
    store = open_store(&tree, 100);
    assert_true(exists(&tree, "org/name/d/config.json"));
    assert_true(td_upstream_store_find(store, TD_TEXT("org/name"), &kept));
    assert_true(exists(&tree, ".tensord-upstream/check/unknown/x"));
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void a_record_of_an_older_version_makes_the_model_the_operators(void **state)
{
    struct tree tree;
    struct td_kept_model kept;
    struct stat st;
    char key[TD_TAG_BYTES];
    char name[128];
    char text[256];
    char path[TREE_PATH_BYTES];
    (void)state;
    tree_open(&tree);
    tree_text(&tree, "a/config.json", "{}");
    tree_at(&tree, "a", path);
    assert_int_equal(stat(path, &st), 0);
    assert_true(td_digest_tag("a", 1, key));
    (void)snprintf(name, sizeof name, ".tensord-upstream/records/%s", key);
    (void)snprintf(text, sizeof text,
                   "{\"id\":\"a\",\"bytes\":2,\"inode\":%llu,\"mtime\":%lld,\"began\":1,\"verified\":true}\n",
                   (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec);
    tree_text(&tree, name, text);
    struct td_upstream_store *store = open_store(&tree, 100);
    assert_false(td_upstream_store_find(store, TD_TEXT("a"), &kept));
    assert_false(exists(&tree, name));
    assert_true(exists(&tree, "a/config.json"));
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void the_least_recently_read_model_leaves_first(void **state)
{
    struct tree tree;
    struct td_kept_model kept;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    size_t count;
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 100);
    keep(store, "a", 30);
    keep(store, "b", 30);
    keep(store, "c", 30);
    td_upstream_store_close(store);
    set_read(&tree, "a", 3000);
    set_read(&tree, "b", 1000);
    set_read(&tree, "c", 2000);
    store = open_store(&tree, 100);
    assert_int_equal(td_upstream_store_bytes(store, &count), 90);
    assert_int_equal(count, 3);
    assert_true(td_upstream_store_find(store, TD_TEXT("b"), &kept));
    assert_int_equal(kept.read_ns, 1000 * 1000000000L);
    td_upstream_store_note_read(store, TD_TEXT("b"));
    assert_true(td_upstream_store_begin(store, "org/d", 50, &folder, &began_s, &evicted, NULL)); /* c, then a */
    td_root_unref(folder);
    assert_int_equal(evicted, 2);
    assert_false(exists(&tree, "c") || exists(&tree, "a"));
    assert_true(exists(&tree, "b/config.json"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 80);
    td_upstream_store_close(store); /* writes when b was read */
    store = open_store(&tree, 100);
    assert_true(td_upstream_store_find(store, TD_TEXT("b"), &kept));
    assert_true(kept.read_ns > 3000 * 1000000000L);
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void a_model_without_room_is_refused_and_changes_nothing(void **state)
{
    struct tree tree;
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 100);
    keep(store, "kept", 40);
    assert_false(td_upstream_store_begin(store, "huge", 101, &folder, &began_s, &evicted, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_says(&err, "it has 101 bytes, more than --cache-max-bytes 100", "too large");
    assert_true(exists(&tree, "kept/config.json"));
    begin(store, "running", 60);
    td_error_init(&err);
    assert_false(td_upstream_store_begin(store, "other", 50, &folder, &began_s, &evicted, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_says(&err, "being fetched", "others are fetched");
    td_error_init(&err);
    assert_false(td_upstream_store_begin(store, "running", 60, &folder, &began_s, &evicted, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    td_upstream_store_close(store);
    store = open_store(&tree, 0);
    td_error_init(&err);
    assert_false(td_upstream_store_begin(store, "sky", UINT64_MAX / 2, &folder, &began_s, &evicted, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_says(&err, "the disk has", "larger than the disk");
    begin(store, "grown", 2);
    td_upstream_store_pause(store, "grown"); /* what was left over is asked for its missing bytes, too */
    td_error_init(&err);
    assert_false(td_upstream_store_begin(store, "grown", UINT64_MAX / 2, &folder, &began_s, &evicted, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_says(&err, "the disk has", "grown larger than the disk");
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void what_was_fetched_before_a_kill_goes_on(void **state)
{
    struct tree tree;
    struct td_root *folder = NULL;
    int64_t first_s;
    int64_t second_s;
    uint64_t evicted = 0;
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 100);
    assert_true(td_upstream_store_begin(store, "a", 50, &folder, &first_s, &evicted, NULL));
    put(folder->fd, "config.json", "{}");
    td_root_unref(folder);
    td_upstream_store_close(store); /* nothing is noted at the end, so this is what a kill leaves */
    tree_text(&tree, ".tensord-upstream/incoming/unknown/files/x", "x");
    tree_text(&tree, ".tensord-upstream/trash/1-1/x/y", "x");
    store = open_store(&tree, 100);
    assert_false(exists(&tree, ".tensord-upstream/incoming/unknown"));
    assert_false(exists(&tree, ".tensord-upstream/trash/1-1"));
    assert_true(td_upstream_store_begin(store, "a", 50, &folder, &second_s, &evicted, NULL));
    assert_int_equal(second_s, first_s);
    assert_int_equal(faccessat(folder->fd, "config.json", R_OK, 0), 0);
    td_root_unref(folder);
    td_upstream_store_pause(store, "a");
    keep(store, "b", 80); /* what was left over leaves before anything that was published */
    assert_int_equal(evicted, 0);
    td_upstream_store_discard(store, "a");
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void a_kill_between_record_and_rename_publishes_nothing(void **state)
{
    struct tree tree;
    struct td_kept_model kept;
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 100);
    keep(store, "a", 50);
    td_upstream_store_close(store);
    tree_remove(&tree, "a"); /* the record is there, the directory is not */
    store = open_store(&tree, 100);
    assert_false(td_upstream_store_find(store, TD_TEXT("a"), &kept));
    keep(store, "a", 50);
    tree_remove(&tree, "a"); /* by the operator, while the server runs */
    assert_false(td_upstream_store_is_there(store, TD_TEXT("a")));
    keep(store, "a", 50);
    assert_true(exists(&tree, "a/config.json"));
    td_upstream_store_close(store);
    tree_close(&tree);
}

static void damaged_notes_are_dropped(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"id\":\"a\"}",
        "{\"id\":\"a\\u0000\",\"bytes\":1,\"inode\":1,\"mtime\":1,\"began\":1,\"verified\":true}",
        "{\"id\":\"../x\",\"bytes\":1,\"inode\":1,\"mtime\":1,\"began\":1,\"verified\":true}",
        "{\"id\":\"a\",\"bytes\":-1,\"inode\":1,\"mtime\":1,\"began\":1,\"verified\":true}",
        "{\"id\":\"a\",\"bytes\":1,\"inode\":1,\"mtime\":1,\"began\":18446744073709551615,\"verified\":true}",
        "{\"id\":\"b\",\"bytes\":1,\"inode\":1,\"mtime\":1,\"began\":1,\"verified\":true}",
    };
    struct tree tree;
    char key[TD_TAG_BYTES];
    char name[128];
    size_t count;
    (void)state;
    tree_open(&tree);
    assert_true(td_digest_tag("a", 1, key));
    tree_text(&tree, "a/config.json", "{}");
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        (void)snprintf(name, sizeof name, ".tensord-upstream/records/%s", key);
        tree_text(&tree, name, texts[i]);
        (void)snprintf(name, sizeof name, ".tensord-upstream/incoming/%s/model", key);
        tree_text(&tree, name, texts[i]);
        struct td_upstream_store *store = open_store(&tree, 100);
        CHECK(td_upstream_store_bytes(store, &count) == 0 && count == 0, "%s", texts[i]);
        CHECK(!exists(&tree, name), "%s", texts[i]);
        td_upstream_store_close(store);
    }
    assert_true(exists(&tree, "a/config.json"));
    tree_close(&tree);
}

static void a_second_process_is_kept_out(void **state)
{
    struct tree tree;
    struct td_error err = TD_ERROR_INIT;
    struct td_upstream_store *second = NULL;
    (void)state;
    tree_open(&tree);
    struct td_upstream_store *store = open_store(&tree, 0);
    assert_false(td_upstream_store_open(tree.path, 0, &second, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "another tensord", "second");
    td_upstream_store_close(store);
    td_upstream_store_close(open_store(&tree, 0));
    tree_close(&tree);
}

static void a_directory_of_the_models_name_that_is_a_link_is_not_entered(void **state)
{
    struct tree tree;
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    tree_open(&tree);
    tree_directory(&tree, "elsewhere");
    struct td_upstream_store *store = open_store(&tree, 0);
    begin(store, "org/name", 2);
    tree_symlink(&tree, "org", "elsewhere");
    assert_false(td_upstream_store_publish(store, "org/name", true, is_config, NULL, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    assert_false(exists(&tree, "elsewhere/name"));
    td_upstream_store_close(store);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_models_and_lead_nowhere_else),
        cmocka_unit_test(a_model_appears_by_one_rename_without_what_does_not_belong_to_it),
        cmocka_unit_test(what_the_operator_has_is_left_alone),
        cmocka_unit_test(a_model_that_was_being_compared_at_a_kill_goes_back),
        cmocka_unit_test(a_record_of_an_older_version_makes_the_model_the_operators),
        cmocka_unit_test(the_least_recently_read_model_leaves_first),
        cmocka_unit_test(a_model_without_room_is_refused_and_changes_nothing),
        cmocka_unit_test(what_was_fetched_before_a_kill_goes_on),
        cmocka_unit_test(a_kill_between_record_and_rename_publishes_nothing),
        cmocka_unit_test(damaged_notes_are_dropped),
        cmocka_unit_test(a_second_process_is_kept_out),
        cmocka_unit_test(a_directory_of_the_models_name_that_is_a_link_is_not_entered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
