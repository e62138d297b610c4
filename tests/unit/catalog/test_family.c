/* Families of versions: the rules in catalog/names/family.h, on trees as trainers and clients of the Hub write them. */
#include "catalog/names/family.h"

#include "catalog/names/oci_name.h"
#include "catalog/names/repo.h"
#include "tests/unit/catalog/scan_place.h"

static const struct td_family *family_of(const struct place *place, const char *id)
{
    return td_family_find(place->scanner.snapshot, td_text_of(id));
}

/* Checks the versions of a family: their names in order, separated by blanks, the latest between [ and ]. */
static void expect_versions(const struct place *place, const char *id, const char *wanted)
{
    char got[2048] = "";
    size_t used = 0;
    const struct td_family *family = family_of(place, id);
    for (size_t i = 0; family != NULL && i < family->count; i++) {
        const struct td_version *version = &family->versions[i];
        bool is_latest = version == family->latest;
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s%s%s", i > 0 ? " " : "", is_latest ? "[" : "",
                                 version->name, is_latest ? "]" : "");
    }
    CHECK(strcmp(got, wanted) == 0, "%s has \"%s\", not \"%s\"", id, got, wanted);
}

/* Returns the id of the model that the text leads to, "?" if several do, "" if none does. */
static const char *meant(const struct place *place, const char *id, const char *text)
{
    const struct td_version *version;
    switch (td_family_find_version(family_of(place, id), td_text_of(text), &version)) {
    case TD_VERSION_FOUND:
        return version->model->id;
    case TD_VERSION_AMBIGUOUS:
        return "?";
    default:
        assert_null(version);
        return "";
    }
}

static void folders_are_versions_of_the_folder_above(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "run/weight_v000010/model.safetensors", "a");
    tree_simple(&place->tree, "run/weight_v000009/model.safetensors", "a");
    tree_simple(&place->tree, "run/step-9/model.safetensors", "a");
    tree_simple(&place->tree, "run/7/model.safetensors", "a");
    tree_simple(&place->tree, "run/final/model.safetensors", "a");
    tree_simple(&place->tree, "run/step-11/deep/model.safetensors", "a"); /* step-11 itself is no model */
    tree_text(&place->tree, "run/step-12/readme.md", "no model");
    tree_simple(&place->tree, "a/b/c/step_1/model.safetensors", "a");
    tree_simple(&place->tree, "org/m/model.safetensors", "a"); /* a model and a family */
    tree_simple(&place->tree, "org/m/checkpoint-500/model.safetensors", "a");
    tree_simple(&place->tree, "org/m/checkpoint-500/step1/model.safetensors", "a");
    tree_simple(&place->tree, "google/gemma-2/model.safetensors", "a");
    tree_simple(&place->tree, "google/gemma-3/model.safetensors", "a");
    tree_simple(&place->tree, "v1/model.safetensors", "a"); /* no folder is above it */
    tree_simple(&place->tree, "v2.safetensors", "a");
    tree_simple(&place->tree, "x/v3.safetensors", "a"); /* a file is no folder */
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "run", "7 step-9 weight_v000009 [weight_v000010]");
    expect_versions(place, "a/b/c", "[step_1]");
    expect_versions(place, "org/m", "[checkpoint-500]");
    expect_versions(place, "org/m/checkpoint-500", "[step1]");
    assert_int_equal(td_families_of(place->scanner.snapshot)->count, 4);
    static const char *const none[] = {"google", "", "x", "org", "a/b", "run/", "run/7", "ru", "runs"};
    for (size_t i = 0; i < COUNT_OF(none); i++)
        CHECK(family_of(place, none[i]) == NULL, "%s", none[i]);
    assert_string_equal(meant(place, "run", "weight_v000009"), "run/weight_v000009");
    assert_string_equal(meant(place, "run", "10"), "run/weight_v000010");
    assert_string_equal(meant(place, "run", "0000010"), "run/weight_v000010");
    assert_string_equal(meant(place, "run", "9"), "?");
    assert_string_equal(meant(place, "run", "7"), "run/7"); /* a name comes before a number */
    assert_string_equal(meant(place, "run", "latest"), "run/weight_v000010");
    static const char *const unknown[] = {"",       "8",       "11", "weight_v10",
                                          "Latest", "latest ", "-9", "9999999999999999999"};
    for (size_t i = 0; i < COUNT_OF(unknown); i++)
        CHECK(meant(place, "run", unknown[i])[0] == '\0', "%s", unknown[i]);
}

static void the_latest_is_served_without_an_error(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "run/v1/model.safetensors", "a");
    tree_simple(&place->tree, "run/v2/model.safetensors", "a");
    tree_text(&place->tree, "run/v3/model.safetensors", "broken");
    tree_simple(&place->tree, "run/v4/model-00001-of-00002.safetensors", "a"); /* a shard is missing */
    tree_text(&place->tree, "bad/v1/model.safetensors", "broken");
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "run", "v1 [v2] v3 v4");
    expect_versions(place, "bad", "v1");
    assert_string_equal(meant(place, "bad", "latest"), "");
    assert_string_equal(meant(place, "bad", "v1"), "bad/v1");
    tree_remove(&place->tree, "run/v2");
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "run", "[v1] v3 v4");
}

static void pages_continue_after_a_name(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"step-2", "step_2", "step-10", "step-30"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "run/%s/model.safetensors", names[i]);
        tree_simple(&place->tree, path, "a");
    }
    (void)scanner_scan(&place->scanner);
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    const struct td_family *family = family_of(place, "run");
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_int_equal(td_family_after(snapshot, family, td_text_of(names[i])), i + 1);
    assert_int_equal(td_family_after(snapshot, family, TD_TEXT("step-9")), 2); /* a version that is gone */
    assert_int_equal(td_family_after(snapshot, family, TD_TEXT("v1.0")), 0);   /* those without numbers come first */
    assert_int_equal(td_family_after(snapshot, family, TD_TEXT("step-99")), 4);
    size_t rest = 77;
    assert_true(td_family_route(snapshot, TD_TEXT("run/tensors/x"), &rest) == family && rest == 4);
    assert_true(td_family_route(snapshot, TD_TEXT("run"), &rest) == family && rest == 3);
    assert_null(td_family_route(snapshot, TD_TEXT("runs/tensors"), &rest));
    assert_null(td_family_route(snapshot, TD_TEXT(""), &rest));
}

static void prefixes_can_be_added(void **state)
{
    struct place *place = *state;
    static const char *const items[] = {"ckpt="};
    static const struct td_version_prefixes more = {.items = items, .count = COUNT_OF(items)};
    tree_simple(&place->tree, "run/ckpt=4/model.safetensors", "a");
    tree_simple(&place->tree, "run/step-3/model.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "run", "[step-3]");
    place->scanner.config.version_prefixes = &more;
    tree_simple(&place->tree, "other/model.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "run", "step-3 [ckpt=4]");
}

/* Writes a snapshot of the cache models--NAME with a file of its own. */
static void write_snapshot(const struct place *place, const char *cache, const char *commit, const char *tensor)
{
    char path[256];
    (void)snprintf(path, sizeof path, "models--%s/snapshots/%s/model.safetensors", cache, commit);
    tree_simple(&place->tree, path, tensor);
}

static void write_ref(const struct place *place, const char *cache, const char *ref, const char *commit)
{
    char path[256];
    (void)snprintf(path, sizeof path, "models--%s/refs/%s", cache, ref);
    tree_text(&place->tree, path, commit);
}

#define C2 "2222222222222222222222222222222222222222"
#define C3 "3333333333333333333333333333333333333333"

static void snapshots_of_a_cache_are_versions(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "org--name", C0, "a");
    write_snapshot(place, "org--name", C1, "b");
    write_snapshot(place, "org--name", C2, "c");
    write_snapshot(place, "org--name", C3, "d");
    write_ref(place, "org--name", "main", C2);
    write_ref(place, "org--name", "step-5", C1);
    write_ref(place, "org--name", "step-40", C1);
    write_ref(place, "org--name", "v1.0", C1);
    write_ref(place, "org--name", "step-30", C2);
    write_ref(place, "org--name", "gone", "4444444444444444444444444444444444444444");
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "org/name", C0 " " C3 " step-30 [step-40]");
    const struct td_family *family = family_of(place, "org/name");
    assert_true(family->is_cache);
    const struct td_version *version = &family->versions[3];
    assert_string_equal(version->commit, C1);
    assert_int_equal(version->ref_count, 3);
    assert_string_equal(version->refs[0], "step-40");
    assert_string_equal(version->refs[1], "step-5");
    assert_string_equal(version->refs[2], "v1.0");
    version = &family->versions[2];
    assert_true(version->ref_count == 2 && strcmp(version->refs[0], "main") == 0);
    assert_false(family->versions[0].has_number);
    static const struct {
        const char *text, *id;
    } cases[] = {
        {"main", "org/name"},
        {"step-30", "org/name"},
        {"30", "org/name"},
        {C2, "org/name"},
        {"step-5", "org/name@" C1},
        {"v1.0", "org/name@" C1},
        {"40", "org/name@" C1},
        {C1, "org/name@" C1},
        {"latest", "org/name@" C1},
        {C0, "org/name@" C0},
        {"5", ""},
        {"gone", ""},
        {"4444444444444444444444444444444444444444", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(strcmp(meant(place, "org/name", cases[i].text), cases[i].id) == 0, "%s", cases[i].text);
    write_ref(place, "org--name", "latest", C0); /* a ref of that name wins */
    (void)scanner_scan(&place->scanner);
    assert_string_equal(meant(place, "org/name", "latest"), "org/name@" C0);
    expect_versions(place, "org/name", C0 " " C3 " step-30 [step-40]");
}

static void the_latest_of_a_cache_without_numbers_is_main(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "gpt2", C0, "a");
    write_snapshot(place, "gpt2", C1, "b");
    write_snapshot(place, "gpt2", C2, "c");
    write_ref(place, "gpt2", "main", C1);
    write_ref(place, "gpt2", "v1.0", C0);
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "gpt2", C0 " [" C1 "] " C2);
    assert_string_equal(meant(place, "gpt2", "latest"), "gpt2");
}

/* A commit that no ref names, such as that of a deleted branch, is a version, and never the latest one. */
static void a_commit_without_a_ref_is_never_the_latest(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "org--name", C1, "a");
    write_snapshot(place, "org--name", C2, "b");
    tree_text(&place->tree, "models--org--name/snapshots/" C3 "/model.safetensors", "broken");
    write_ref(place, "org--name", "main", C1);
    write_ref(place, "org--name", "step-7", C3);
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "org/name", "[" C1 "] " C2 " step-7");
    tree_text(&place->tree, "models--org--name/snapshots/" C0 "/model.safetensors", "broken");
    write_ref(place, "org--name", "main", C0);
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "org/name", C0 " " C1 " " C2 " step-7");
}

/* Folders of snapshots may have any names. */
static void snapshots_may_be_named(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "hub--m", "weight_v000001", "a");
    write_snapshot(place, "hub--m", "weight_v000002", "b");
    write_snapshot(place, "hub--m", "v1.0", "c");
    write_snapshot(place, "hub--m", C0, "d");
    write_ref(place, "hub--m", "main", C0);
    write_ref(place, "hub--m", "v1.0", "weight_v000001"); /* so no name leads to the folder v1.0 */
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "hub/m", C0 " weight_v000001 [weight_v000002]");
    assert_string_equal(meant(place, "hub/m", "v1.0"), "hub/m@weight_v000001");
}

static void version_folders_in_a_cache_take_precedence(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "org--name", C0, "a");
    tree_simple(&place->tree, "models--org--name/snapshots/" C0 "/step-1/model.safetensors", "b");
    write_snapshot(place, "org--name", C1, "c");
    write_ref(place, "org--name", "main", C0);
    write_ref(place, "org--name", "step-1", C1);
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "org/name", "[step-1]");
    assert_false(family_of(place, "org/name")->is_cache);
    const struct td_repo *repo = td_repo_find(place->scanner.snapshot, false, TD_TEXT("org/name"));
    assert_string_equal(td_repo_at(repo, TD_TEXT("step-1"))->commit, C1); /* a ref that is there keeps its meaning */
}

/* A push to run/step-3 makes a cache of that id, which is a subfolder of `run` as clients know it. */
static void a_cache_can_be_a_version(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "run--step-3", C0, "a");
    write_snapshot(place, "run--step-3", C1, "b");
    write_ref(place, "run--step-3", "main", C0);
    tree_simple(&place->tree, "run/step-2/model.safetensors", "c");
    (void)scanner_scan(&place->scanner);
    expect_versions(place, "run", "step-2 [step-3]");
    assert_string_equal(meant(place, "run", "3"), "run/step-3");
    expect_versions(place, "run/step-3", "[" C0 "] " C1);
    const struct td_repo *repo = td_repo_find(place->scanner.snapshot, false, TD_TEXT("run"));
    assert_int_equal(td_repo_at(repo, TD_TEXT("step-3"))->entry_count, 1);
}

/* ---- repositories -------------------------------------------------------------------------------------- */

/* Returns the path below DIR of the file model.safetensors of this revision; "" when there is no such revision. */
static const char *file_of(const struct place *place, const char *id, const char *revision)
{
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    const struct td_repo *repo = td_repo_find(snapshot, false, td_text_of(id));
    assert_non_null(repo);
    const struct td_repo *at = td_repo_at(repo, td_text_of(revision));
    if (at == NULL)
        return "";
    const struct td_entry *entry = td_snapshot_find_in_run(snapshot, at->first_entry, at->entry_count, at->prefix_len,
                                                           TD_TEXT("model.safetensors"));
    return entry == NULL ? "no such file" : entry->path;
}

static void versions_are_revisions_of_a_repository(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "run/weight_v000001/model.safetensors", "a");
    tree_simple(&place->tree, "run/weight_v000002/model.safetensors", "b");
    tree_text(&place->tree, "run/weight_v000003/model.safetensors", "broken");
    tree_simple(&place->tree, "org/run/step-1/model.safetensors", "a");
    tree_text(&place->tree, "org/run/state.json", "{}");
    tree_text(&place->tree, "bad/v1/model.safetensors", "broken");
    tree_simple(&place->tree, "a/b/c/step-1/model.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    assert_string_equal(file_of(place, "run", "weight_v000001"), "run/weight_v000001/model.safetensors");
    assert_string_equal(file_of(place, "local/run", "weight_v000003"), "run/weight_v000003/model.safetensors");
    assert_string_equal(file_of(place, "run", "latest"), "run/weight_v000002/model.safetensors");
    assert_string_equal(file_of(place, "run", "main"), "run/weight_v000002/model.safetensors");
    assert_string_equal(file_of(place, "run", "weight_v000004"), "");
    assert_string_equal(file_of(place, "org/run", "step-1"), "org/run/step-1/model.safetensors");
    assert_string_equal(file_of(place, "org/run", "main"), "no such file"); /* it has step-1/ and state.json, as ever */
    assert_string_equal(file_of(place, "bad", "main"), "");
    assert_string_equal(file_of(place, "bad", "latest"), "");
    assert_string_equal(file_of(place, "bad", "v1"), "bad/v1/model.safetensors");
    assert_string_equal(file_of(place, "run/weight_v000001", "main"), "run/weight_v000001/model.safetensors");
    const struct td_repo *run = td_repo_find(snapshot, false, TD_TEXT("run"));
    assert_string_equal(run->hub_id, "local/run");
    assert_int_equal(run->ref_count, 4);
    const struct td_repo *first = td_repo_at(run, TD_TEXT("weight_v000001"));
    assert_true(td_repo_at(run, td_text_of(first->commit)) == first); /* read by its commit as well */
    assert_string_not_equal(first->commit, run->commit);
    /* the list of repositories is as without families; the registry's catalogue has `run` as well */
    for (size_t i = 0; i < td_repos_of(snapshot)->count; i++)
        assert_string_not_equal(td_repos_of(snapshot)->items[i].id, "run");
    size_t named = 0;
    for (size_t i = 0; i < td_oci_names_of(snapshot)->count; i++)
        named += strcmp(td_oci_names_of(snapshot)->items[i].name, "run") == 0 ? 1 : 0;
    assert_int_equal(named, 1);
    assert_true(td_oci_name_find(snapshot, TD_TEXT("run")) == run);
    assert_true(td_oci_name_find(snapshot, TD_TEXT("org/run")) == td_repo_find(snapshot, false, TD_TEXT("org/run")));
    assert_null(td_repo_find(snapshot, false, TD_TEXT("a/b/c")));
}

static void revisions_of_a_cache_stay(void **state)
{
    struct place *place = *state;
    write_snapshot(place, "org--name", C0, "a");
    write_snapshot(place, "org--name", C1, "b");
    write_snapshot(place, "org--name", "step-7", "c");
    write_ref(place, "org--name", "main", C0);
    write_ref(place, "org--name", "step-5", C1);
    write_snapshot(place, "gpt2", C0, "a");
    write_ref(place, "gpt2", "main", C0);
    (void)scanner_scan(&place->scanner);
    assert_string_equal(file_of(place, "org/name", "main"), "org/name/model.safetensors");
    assert_string_equal(file_of(place, "org/name", C1), "org/name@" C1 "/model.safetensors");
    assert_string_equal(file_of(place, "org/name", "step-5"), "org/name@" C1 "/model.safetensors");
    assert_string_equal(file_of(place, "org/name", "latest"), "org/name@step-7/model.safetensors");
    const struct td_repo *repo = td_repo_find(place->scanner.snapshot, false, TD_TEXT("org/name"));
    assert_int_equal(repo->ref_count, 4); /* latest, main, step-5, step-7 */
    assert_string_equal(file_of(place, "gpt2", "latest"), "gpt2/model.safetensors");
    repo = td_repo_find(place->scanner.snapshot, false, TD_TEXT("gpt2"));
    assert_int_equal(repo->ref_count, 1); /* as without families */
    write_ref(place, "gpt2", "latest", "gone");
    (void)scanner_scan(&place->scanner);
    assert_string_equal(file_of(place, "gpt2", "latest"), ""); /* a ref of that name wins */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(revisions, folders_are_versions_of_the_folder_above),
        TEST_IN(revisions, the_latest_is_served_without_an_error),
        TEST_IN(revisions, pages_continue_after_a_name),
        TEST_IN(revisions, prefixes_can_be_added),
        TEST_IN(revisions, snapshots_of_a_cache_are_versions),
        TEST_IN(revisions, the_latest_of_a_cache_without_numbers_is_main),
        TEST_IN(revisions, a_commit_without_a_ref_is_never_the_latest),
        TEST_IN(revisions, snapshots_may_be_named),
        TEST_IN(revisions, version_folders_in_a_cache_take_precedence),
        TEST_IN(revisions, a_cache_can_be_a_version),
        TEST_IN(revisions, versions_are_revisions_of_a_repository),
        TEST_IN(revisions, revisions_of_a_cache_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
