/* Which files are in which bucket, under which key: checks the rules in catalog/names/bucket.h by hand and by a plain
 * walk over all entries. */
#include "catalog/names/bucket.h"

#include "catalog/names/repo.h"
#include "tests/unit/catalog/scan_place.h"

static const struct td_bucket *find(const struct place *place, const char *name)
{
    return td_bucket_find(place->scanner.snapshot, td_text_of(name));
}

static const struct td_entry *get(const struct place *place, const char *name, const char *key)
{
    return td_bucket_find_entry(place->scanner.snapshot, find(place, name), td_text_of(key));
}

/* Checks every bucket with its keys: "name: key key; name: key". */
static void expect_buckets(const struct place *place, const char *wanted)
{
    char got[2048] = "";
    size_t used = 0;
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    for (size_t i = 0; i < td_buckets_of(snapshot)->count; i++) {
        const struct td_bucket *bucket = &td_buckets_of(snapshot)->items[i];
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s:", i > 0 ? "; " : "", bucket->name);
        for (size_t k = 0; k < bucket->key_count; k++) {
            const struct td_entry *entry = td_bucket_entry(snapshot, bucket, k);
            const char *key = td_bucket_key(bucket, entry);
            used += (size_t)snprintf(got + used, sizeof got - used, " %s", key);
            assert_true(td_bucket_find_entry(snapshot, bucket, td_text_of(key)) == entry);
            assert_true(td_bucket_of(snapshot, td_text_of(entry->path)) == bucket);
        }
    }
    assert_string_equal(got, wanted);
}

/* "Qwen" is no repository, "qwen3" is one. Some names sort differently as whole paths and as segments. */
static void first_segments_are_buckets(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "Qwen/Qwen3-0.6B/model.safetensors", "a");
    tree_text(&place->tree, "Qwen/Qwen3-0.6B/config.json", "{}");
    tree_simple(&place->tree, "Qwen-x/y/model.safetensors", "a");
    tree_simple(&place->tree, "qwen3/model.safetensors", "a");
    tree_text(&place->tree, "qwen3/deep/er/x.txt", "");
    tree_simple(&place->tree, "a-b/model.safetensors", "a");
    tree_simple(&place->tree, "a/model.safetensors", "a");
    tree_simple(&place->tree, "a0/b/model.safetensors", "a");
    tree_simple(&place->tree, "bert.safetensors", "a");
    tree_text(&place->tree, "README.md", "belongs to no model");
    tree_text(&place->tree, "notes/x/readme.md", "");
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "Qwen: Qwen3-0.6B/config.json Qwen3-0.6B/model.safetensors; Qwen-x: "
                          "y/model.safetensors; a0: b/model.safetensors; local: a-b/model.safetensors "
                          "a/model.safetensors bert.safetensors qwen3/deep/er/x.txt "
                          "qwen3/model.safetensors; notes: x/readme.md");
    assert_null(find(place, ""));
    assert_null(find(place, "Qwe"));
    assert_null(get(place, "local", "README.md"));
    assert_null(get(place, "local", "Qwen/Qwen3-0.6B/config.json"));
    assert_null(get(place, "local", "qwen3"));
    assert_null(get(place, "local", "qwen3/"));
    assert_null(get(place, "local", ""));
    assert_null(get(place, "local", "/qwen3/model.safetensors"));
    assert_null(get(place, "Qwen", "Qwen3-0.6B"));
    assert_null(get(place, "Qwen", ""));
    assert_null(get(place, "Qwen", "/Qwen3-0.6B/config.json"));
    assert_true(td_bucket_of(place->scanner.snapshot, TD_TEXT("Qwen")) == find(place, "local"));
}

static void nothing_is_no_bucket(void **state)
{
    struct place *place = *state;
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "");
    assert_null(td_bucket_of(place->scanner.snapshot, TD_TEXT("x/y")));
    tree_text(&place->tree, "README.md", "");
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "");
}

/* A model in bucket `local` also has a bucket of its own name: "demo" and "local/demo" are one model. */
static void names_of_one_segment_are_buckets_too(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "demo/model.safetensors", "a");
    tree_text(&place->tree, "demo/deep/x.txt", "");
    tree_simple(&place->tree, "bert.safetensors", "a");
    tree_simple(&place->tree, "s-00001-of-00002.safetensors", "a");
    tree_simple(&place->tree, "s-00001-of-00002.safetensors.d/e/x.safetensors", "a");
    tree_simple(&place->tree, "s-00002-of-00002.safetensors", "b");
    tree_simple(&place->tree, "models--gpt2/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(&place->tree, "models--gpt2/snapshots/" C0 "/model.safetensors", "b");
    tree_text(&place->tree, "models--gpt2/refs/main", C1);
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "local: bert.safetensors demo/deep/x.txt demo/model.safetensors "
                          "gpt2/model.safetensors s-00001-of-00002.safetensors "
                          "s-00002-of-00002.safetensors; s-00001-of-00002.safetensors.d: "
                          "e/x.safetensors");
    static const char *const pairs[][2] = {{"demo", "model.safetensors"},
                                           {"demo", "deep/x.txt"},
                                           {"gpt2", "model.safetensors"},
                                           {"bert.safetensors", "bert.safetensors"},
                                           {"s", "s-00002-of-00002.safetensors"}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        const struct td_entry *entry = get(place, pairs[i][0], pairs[i][1]);
        const struct td_bucket *bucket = find(place, pairs[i][0]);
        assert_non_null(entry);
        assert_string_equal(td_bucket_key(bucket, entry), pairs[i][1]);
    }
    assert_int_equal(find(place, "demo")->key_count, 2);
    assert_int_equal(find(place, "s")->key_count, 2);
    assert_null(get(place, "s", "s-00001-of-00002.safetensors.d/e/x.safetensors"));
    assert_null(get(place, "demo", "demo/model.safetensors"));
    assert_null(find(place, "demo/deep"));
    assert_null(find(place, "gpt2@" C0));
}

/* The directory local/m owns the name "local/m"; then m has only the bucket "m". Keys of both directories come in byte
 * order. */
static void a_directory_called_local(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "local/m/model.safetensors", "a");
    tree_simple(&place->tree, "local/b/model.safetensors", "a");
    tree_simple(&place->tree, "local/b-1/model.safetensors", "a");
    tree_simple(&place->tree, "m/model.safetensors", "b");
    tree_text(&place->tree, "m/only-here.txt", "");
    tree_simple(&place->tree, "a/model.safetensors", "b");
    tree_simple(&place->tree, "c/model.safetensors", "b");
    tree_simple(&place->tree, "b.safetensors", "b");
    tree_simple(&place->tree, "models--local--n/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(&place->tree, "models--local--n/snapshots/" C0 "/model.safetensors", "b");
    tree_text(&place->tree, "models--local--n/refs/main", C1);
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "local: a/model.safetensors b-1/model.safetensors b.safetensors "
                          "b/model.safetensors c/model.safetensors m/model.safetensors "
                          "n/model.safetensors; m: model.safetensors only-here.txt");
    assert_string_equal(get(place, "local", "m/model.safetensors")->path, "local/m/model.safetensors");
    assert_string_equal(get(place, "m", "model.safetensors")->path, "m/model.safetensors");
    assert_null(get(place, "local", "m/only-here.txt")); /* keys of two models are not mixed */
    /* whole paths, which versions up to 1.0 listed */
    assert_string_equal(get(place, "local", "local/m/model.safetensors")->path, "local/m/model.safetensors");
    assert_string_equal(get(place, "local", "n@" C0 "/model.safetensors")->path, "local/n@" C0 "/model.safetensors");
}

/* A directory `local` that holds files is a model like others of one segment. */
static void a_model_called_local(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "local/model.safetensors", "a");
    tree_simple(&place->tree, "local/m/model.safetensors", "a");
    tree_simple(&place->tree, "m/model.safetensors", "b");
    tree_simple(&place->tree, "n/model.safetensors", "b");
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "local: local/m/model.safetensors local/model.safetensors n/model.safetensors; "
                          "m: model.safetensors");
    assert_string_equal(get(place, "local", "model.safetensors")->path, "local/model.safetensors");
    assert_string_equal(get(place, "local", "m/model.safetensors")->path, "local/m/model.safetensors");
}

/* An index in the root makes DIR one model, which has the files of its directories too. */
static void a_root_that_is_a_model(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "x-00001-of-00001.safetensors", "a");
    tree_index(&place->tree, "x.safetensors.index.json", "a x-00001-of-00001.safetensors");
    tree_text(&place->tree, "config.json", "{}");
    tree_text(&place->tree, "a/b/c.txt", "");
    tree_text(&place->tree, "d/e.txt", "");
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "local: a/b/c.txt config.json d/e.txt x-00001-of-00001.safetensors "
                          "x.safetensors.index.json");
    const char *name = strrchr(place->tree.path, '/') + 1;
    assert_string_equal(get(place, name, "a/b/c.txt")->path, "a/b/c.txt");
    assert_int_equal(find(place, name)->key_count, 5);
}

static void other_revisions_are_not_listed(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "models--org--name/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(&place->tree, "models--org--name/snapshots/" C0 "/model.safetensors", "b");
    tree_text(&place->tree, "models--org--name/refs/main", C1);
    tree_simple(&place->tree, "models--org--zeta/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(&place->tree, "models--gpt2/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(&place->tree, "models--gpt2/snapshots/" C0 "/model.safetensors", "b");
    tree_text(&place->tree, "models--gpt2/refs/main", C1);
    tree_text(&place->tree, "datasets--org--data/snapshots/" C0 "/x.parquet", "b");
    (void)scanner_scan(&place->scanner);
    expect_buckets(place, "datasets: org/data/x.parquet; local: gpt2/model.safetensors; org: "
                          "name/model.safetensors zeta/model.safetensors");
    assert_string_equal(get(place, "org", "name@" C0 "/model.safetensors")->path, "org/name@" C0 "/model.safetensors");
    assert_string_equal(get(place, "local", "gpt2@" C0 "/model.safetensors")->path, "gpt2@" C0 "/model.safetensors");
}

/* ---- at random ----------------------------------------------------------------------------------------- */

static const char *const segments[] = {"a", "a-b", "a.b", "a0", "local", "b", "z"};

static void random_tree(const struct tree *tree, uint64_t *random)
{
    for (size_t i = 0; i < 20; i++) {
        char path[128] = "";
        size_t used = 0;
        size_t depth = random_below(random, 4);
        for (size_t d = 0; d < depth; d++)
            used += (size_t)snprintf(path + used, sizeof path - used, "%s/",
                                     segments[random_below(random, COUNT_OF(segments))]);
        (void)snprintf(path + used, sizeof path - used, "%s.safetensors", random_below(random, 2) != 0 ? "x" : "y");
        tree_simple(tree, path, "t");
    }
}

/* Returns whether the path is in bucket `local`, by the rule for one path over the lists of entries and
 * repositories. */
static bool is_local(const struct td_snapshot *snapshot, const char *path)
{
    size_t len = strcspn(path, "/");
    if (path[len] == '\0' || (len == 5 && memcmp(path, "local", 5) == 0))
        return true;
    for (size_t i = 0; i < snapshot->entry_count; i++) /* a directory in local/ owns the name */
        if (strncmp(snapshot->entries[i].path, "local/", 6) == 0 &&
            strncmp(snapshot->entries[i].path + 6, path, len + 1) == 0)
            return false;
    for (size_t i = 0; i < td_repos_of(snapshot)->count; i++)
        if (strlen(td_repos_of(snapshot)->items[i].id) == len &&
            td_repos_of(snapshot)->items[i].prefix_len == len + 1 &&
            memcmp(td_repos_of(snapshot)->items[i].id, path, len) == 0)
            return true;
    return false;
}

/* Returns whether there is a directory `local` that holds no file directly. */
static bool is_local_a_namespace(const struct td_snapshot *snapshot)
{
    bool is = false;
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const char *path = snapshot->entries[i].path;
        if (strncmp(path, "local/", 6) == 0 && strchr(path + 6, '/') == NULL)
            return false;
        is = is || strncmp(path, "local/", 6) == 0;
    }
    return is;
}

static void lower_bounds(const struct td_snapshot *snapshot, const struct td_bucket *bucket)
{
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const char *key = snapshot->entries[i].path;
        for (size_t len = 0; len <= strlen(key); len++) {
            size_t wanted = 0;
            while (wanted < bucket->key_count) {
                const char *at = td_bucket_key(bucket, td_bucket_entry(snapshot, bucket, wanted));
                int order = strncmp(at, key, len);
                if (order >= 0)
                    break;
                wanted++;
            }
            assert_int_equal(td_bucket_lower(snapshot, bucket, td_text_n(key, len)), wanted);
        }
    }
}

static void every_file_is_in_one_bucket(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (size_t round = 0; round < 40; round++) {
        struct place place;
        open_place_of_revisions(&place);
        random_tree(&place.tree, &random);
        const struct td_snapshot *snapshot = scanner_scan(&place.scanner);
        size_t keys = 0;
        for (size_t i = 0; i < td_buckets_of(snapshot)->count; i++) {
            keys += td_buckets_of(snapshot)->items[i].key_count;
            lower_bounds(snapshot, &td_buckets_of(snapshot)->items[i]);
        }
        assert_int_equal(keys, snapshot->entry_count);
        for (size_t i = 0; i < snapshot->entry_count; i++) {
            const char *path = snapshot->entries[i].path;
            size_t len = strcspn(path, "/");
            bool local = is_local(snapshot, path);
            const struct td_bucket *bucket = td_bucket_of(snapshot, td_text_of(path));
            assert_non_null(bucket);
            CHECK(bucket->is_local == local && (local || strncmp(bucket->name, path, len) == 0), "%s in %s", path,
                  bucket->name);
            bool is_below = local && is_local_a_namespace(snapshot) && strncmp(path, "local/", 6) == 0;
            const char *key = local && !is_below ? path : path + len + 1;
            assert_true(td_bucket_find_entry(snapshot, bucket, td_text_of(key)) == &snapshot->entries[i]);
        }
        close_place(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(revisions, first_segments_are_buckets),     TEST_IN(revisions, nothing_is_no_bucket),
        TEST_IN(revisions, a_directory_called_local),       TEST_IN(revisions, a_root_that_is_a_model),
        TEST_IN(revisions, a_model_called_local),           TEST_IN(revisions, names_of_one_segment_are_buckets_too),
        TEST_IN(revisions, other_revisions_are_not_listed), cmocka_unit_test(every_file_is_in_one_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
