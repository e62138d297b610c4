/* Which files make a repository: the rules in catalog/names/repo.h. Layout of caches: huggingface_hub, the guide
 * "Understand caching". */
#include "catalog/names/repo.h"

#include "tests/unit/catalog/scan_place.h"

static const struct td_repo *find(const struct place *place, bool as_dataset, const char *id)
{
    return td_repo_find(place->scanner.snapshot, as_dataset, td_text_of(id));
}

static const struct td_repo *at(const struct td_repo *repo, const char *revision)
{
    return td_repo_at(repo, td_text_of(revision));
}

static const struct td_entry *file_of(const struct place *place, const struct td_repo *repo, const char *path)
{
    return td_snapshot_find_in_run(place->scanner.snapshot, repo->first_entry, repo->entry_count, repo->prefix_len,
                                   td_text_of(path));
}

/* Checks all ids, separated by blanks; "D:" marks those below datasets/. */
static void expect_repos(const struct place *place, const char *wanted)
{
    char got[1024] = "";
    size_t used = 0;
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    for (size_t i = 0; i < td_repos_of(snapshot)->count; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s%s%s", i > 0 ? " " : "",
                                 td_repos_of(snapshot)->items[i].is_dataset_folder ? "D:" : "",
                                 td_repos_of(snapshot)->items[i].id,
                                 td_repos_of(snapshot)->items[i].is_other_revision ? "@" : "");
    assert_string_equal(got, wanted);
}

static void topmost_directories_with_files(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "qwen3/model.safetensors", "a");
    tree_simple(&place->tree, "qwen3/unet/x.safetensors", "a");
    tree_simple(&place->tree, "Qwen/Qwen3-0.6B/model.safetensors", "a");
    tree_simple(&place->tree, "Qwen/Qwen3-0.6B-x/model.safetensors", "a");
    tree_simple(&place->tree, "sdxl/unet/x.safetensors", "a");
    tree_simple(&place->tree, "sdxl/vae/x.safetensors", "a");
    tree_simple(&place->tree, "a/deep/er/x.safetensors", "a");
    tree_simple(&place->tree, "a/deep/er-2/x.safetensors", "a");
    tree_simple(&place->tree, "a/deep-2/er/x.safetensors", "a");
    tree_text(&place->tree, "notes/readme.md", "no checkpoint here");
    tree_text(&place->tree, "CACHEDIR.TAG", "the root itself is not one");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "Qwen/Qwen3-0.6B Qwen/Qwen3-0.6B-x a/deep a/deep-2 notes qwen3 sdxl/unet sdxl/vae");
    const struct td_repo *repo = find(place, false, "qwen3");
    assert_true(repo != NULL && repo == find(place, false, "local/qwen3"));
    assert_int_equal(repo->entry_count, 2);
    assert_non_null(file_of(place, repo, "model.safetensors"));
    assert_non_null(file_of(place, repo, "unet/x.safetensors"));
    assert_null(file_of(place, repo, "x.safetensors"));
    assert_null(file_of(place, repo, ""));
    assert_non_null(find(place, false, "Qwen/Qwen3-0.6B"));
    assert_null(find(place, false, "local/Qwen/Qwen3-0.6B"));
    assert_null(find(place, false, "Qwen"));
    assert_null(find(place, false, "local/none"));
    assert_null(find(place, false, "local/"));
    assert_null(find(place, false, ""));
}

static void models_in_the_root(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "bert.safetensors", "a");
    tree_simple(&place->tree, "b/x.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "b bert.safetensors");
    const struct td_repo *repo = find(place, false, "local/bert.safetensors");
    assert_true(repo != NULL && repo->entry_count == 1);
    assert_non_null(file_of(place, repo, "bert.safetensors"));
}

/* A folder is a dataset if it has no checkpoint but data files, or if it is below datasets/. */
static void datasets(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "squad/train.jsonl", "{}");
    tree_text(&place->tree, "org/both/data.json", "{}");
    tree_simple(&place->tree, "org/both/model.safetensors", "a");
    tree_text(&place->tree, "docs/readme.md", "");
    tree_text(&place->tree, "datasets/org/d/a.csv", "");
    tree_text(&place->tree, "datasets/org/both/a.PARQUET", "");
    tree_text(&place->tree, "datasets/org/deep/data/a.csv", "");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "docs org/both squad D:org/both D:org/d D:org/deep");
    assert_true(td_repo_is_dataset(find(place, true, "squad")));
    assert_true(find(place, true, "squad") == find(place, false, "squad")); /* also a model */
    assert_true(find(place, true, "local/squad") != NULL);
    assert_false(td_repo_is_dataset(find(place, false, "org/both")));
    assert_true(find(place, true, "org/both") != find(place, false, "org/both"));
    assert_non_null(file_of(place, find(place, true, "org/both"), "a.PARQUET"));
    assert_true(td_repo_is_dataset(find(place, true, "org/d")));
    assert_null(find(place, false, "org/d"));
    assert_false(td_repo_is_dataset(find(place, false, "docs")));
}

static void caches_have_their_commits(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "models--org--name/blobs/aaa", "w");
    tree_directory(&place->tree, "models--org--name/snapshots/" C1);
    tree_symlink(&place->tree, "models--org--name/snapshots/" C1 "/model.safetensors", "../../blobs/aaa");
    tree_text(&place->tree, "models--org--name/snapshots/" C0 "/unet/config.json", "{}");
    tree_text(&place->tree, "models--org--name/refs/main", C1);
    tree_text(&place->tree, "models--org--name/refs/v1.0", C0 "\n");
    tree_text(&place->tree, "models--org--name/refs/refs/pr/1", C0);
    tree_text(&place->tree, "models--org--name/refs/gone", "2222222222222222222222222222222222222222");
    tree_text(&place->tree, "datasets--org--name/snapshots/" C1 "/a.txt", "");
    tree_text(&place->tree, "CACHEDIR.TAG", "");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "org/name org/name@ D:org/name");
    const struct td_repo *repo = find(place, false, "org/name");
    assert_string_equal(repo->commit, C1);
    assert_string_equal(repo->revision, C1);
    assert_true(at(repo, "main") == repo && at(repo, "HEAD") == repo && at(repo, C1) == repo);
    const struct td_repo *old = at(repo, C0);
    assert_true(old != NULL && old != repo);
    assert_string_equal(old->commit, C0);
    assert_true(at(repo, "v1.0") == old && at(repo, "refs/pr/1") == old);
    assert_non_null(file_of(place, old, "unet/config.json"));
    assert_null(file_of(place, old, "model.safetensors"));
    assert_null(at(repo, "gone"));
    assert_null(at(repo, "v1"));
    assert_null(at(repo, ""));
    assert_int_equal(repo->ref_count, 4);
    const struct td_repo *dataset = find(place, true, "org/name");
    assert_true(dataset != NULL && dataset != repo && td_repo_is_dataset(dataset));
    /* a moved ref makes a new snapshot */
    tree_text(&place->tree, "models--org--name/refs/v1.0", C1);
    (void)scanner_scan(&place->scanner);
    repo = find(place, false, "org/name");
    assert_true(at(repo, "v1.0") == repo);
}

/* Each revision of a cache is a model of its own files; only the chosen revision is listed. */
static void other_revisions_are_models_that_are_not_listed(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "models--org--name/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(&place->tree, "models--org--name/snapshots/" C0 "/model.safetensors", "b");
    tree_text(&place->tree, "models--org--name/refs/main", C1);
    (void)scanner_scan(&place->scanner);
    const struct td_model *model = scanner_model(&place->scanner, "org/name");
    assert_true(model != NULL && !model->is_other_revision && model->entry_count == 1);
    model = scanner_model(&place->scanner, "org/name@" C0);
    assert_true(model != NULL && model->is_other_revision);
    assert_string_equal(model->revision, C0);
    assert_string_equal(model->checkpoints[0].parts[0]->file->manifest.tensors[0].name, "b");
    place->scanner.config.all_revisions = false;
    (void)scanner_scan(&place->scanner);
    assert_null(scanner_model(&place->scanner, "org/name@" C0));
}

/* The owner of a repository chose the names in its snapshots, so these names must not define other repositories. */
static void names_in_a_snapshot_mean_nothing(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "models--evil--repo/snapshots/" C1 "/models--meta--llama/snapshots/" C0 "/config.json",
              "1");
    tree_text(&place->tree, "models--evil--repo/snapshots/" C1 "/models--meta--llama/refs/main", C0);
    tree_text(&place->tree, "models--meta--llama/snapshots/" C1 "/config.json", "2");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "evil/repo meta/llama");
    assert_string_equal(find(place, false, "meta/llama")->commit, C1);
}

/* When several caches hold one repository, the folder nearest to the root gets the id; at equal depth the first by
 * path. */
static void one_folder_has_an_id(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "alice/models--x--y/snapshots/" C1 "/config.json", "1");
    tree_text(&place->tree, "alice/models--x--y/snapshots/" C0 "/config.json", "1");
    tree_text(&place->tree, "alice/models--x--y/refs/main", C1);
    tree_text(&place->tree, "bob/models--x--y/snapshots/" C0 "/config.json", "2");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "x/y x/y@");
    const struct td_repo *repo = find(place, false, "x/y");
    assert_string_equal(repo->folder, "alice/x/y");
    assert_true(at(repo, C0) != NULL && at(repo, C0) != repo);
    assert_non_null(scanner_problem(&place->scanner, NULL, "bob/x/y"));
    tree_text(&place->tree, "x/y/config.json", "3");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "x/y");
    assert_string_equal(find(place, false, "x/y")->folder, "x/y");
}

/* A commit has only the files of its own snapshot. */
static void commits_do_not_mix(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "models--gpt2/snapshots/" C1 "/config.json", "1");
    tree_text(&place->tree, "models--gpt2--sub/snapshots/" C0 "/config.json", "2");
    tree_text(&place->tree, "models--o--n/snapshots/" C1 "/config.json", "1");
    tree_text(&place->tree, "models--o--n/snapshots/" C0 "/config.json", "1");
    tree_text(&place->tree, "models--o--n/refs/main", C1);
    tree_text(&place->tree, "o/n@" C0 "/extra.json", "3");
    (void)scanner_scan(&place->scanner);
    assert_int_equal(find(place, false, "gpt2")->entry_count, 1);
    assert_null(find(place, false, "gpt2/sub"));
    assert_non_null(scanner_problem(&place->scanner, NULL, "gpt2/sub"));
    assert_null(at(find(place, false, "o/n"), C0));
    assert_non_null(scanner_problem(&place->scanner, NULL, "o/n@" C0));
}

static void main_may_be_a_symlink_and_must_be_text(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "models--sym--link/snapshots/" C0 "/config.json", "1");
    tree_symlink(&place->tree, "models--sym--link/snapshots/" C1, C0);
    tree_text(&place->tree, "models--sym--link/refs/main", C1);
    tree_text(&place->tree, "models--bad--utf/snapshots/\xff\xfe/config.json", "1");
    tree_text(&place->tree, "models--bad--utf/refs/main", "\xff\xfe");
    (void)scanner_scan(&place->scanner);
    expect_repos(place, "sym/link sym/link@");
    assert_string_equal(find(place, false, "sym/link")->commit, C1);
}

/* The commit is computed from paths and contents, or from file identities while contents are not known. Requests may
 * use either. */
static void commits_of_plain_directories(void **state)
{
    (void)state;
    static const uint8_t sum[2][TD_SHA256_BYTES] = {{1}, {2}};
    struct place place;
    struct place copy;
    open_place_of_revisions(&place);
    open_place(&copy);
    struct place *both[] = {&place, &copy};
    char commits[2][TD_COMMIT_BYTES];
    for (size_t i = 0; i < 2; i++) {
        tree_text(&both[i]->tree, "m/a", "1");
        tree_text(&both[i]->tree, "m/b", "2");
        (void)scanner_scan(&both[i]->scanner);
        const struct td_repo *repo = find(both[i], false, "m");
        assert_int_equal(strlen(repo->commit), TD_COMMIT_BYTES - 1);
        assert_string_equal(repo->commit, repo->identity_commit);
        memcpy(commits[i], repo->commit, TD_COMMIT_BYTES);
        (void)td_file_set_sha256(scanner_entry(&both[i]->scanner, "m/a")->file, sum[0]);
        (void)scanner_scan(&both[i]->scanner);
        repo = find(both[i], false, "m");
        assert_string_equal(repo->commit, commits[i]); /* the digest of m/b is not known yet */
        (void)td_file_set_sha256(scanner_entry(&both[i]->scanner, "m/b")->file, sum[1]);
        (void)scanner_scan(&both[i]->scanner);
        repo = find(both[i], false, "m");
        assert_string_equal(repo->identity_commit, commits[i]);
        assert_string_not_equal(repo->commit, commits[i]);
        assert_true(at(repo, commits[i]) == repo && at(repo, repo->commit) == repo);
    }
    assert_string_not_equal(commits[0], commits[1]); /* the copies have other inodes */
    assert_string_equal(find(&place, false, "m")->commit, find(&copy, false, "m")->commit);
    close_place(&place);
    close_place(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(revisions, topmost_directories_with_files),
        TEST_IN(revisions, models_in_the_root),
        TEST_IN(revisions, datasets),
        TEST_IN(revisions, caches_have_their_commits),
        TEST_IN(revisions, other_revisions_are_models_that_are_not_listed),
        TEST_IN(revisions, names_in_a_snapshot_mean_nothing),
        TEST_IN(revisions, one_folder_has_an_id),
        TEST_IN(revisions, commits_do_not_mix),
        TEST_IN(revisions, main_may_be_a_symlink_and_must_be_text),
        cmocka_unit_test(commits_of_plain_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
