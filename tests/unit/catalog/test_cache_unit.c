/* Commits of Hugging Face caches: each is shown whole or not at all. */
#include "catalog/scan/cache_unit.h"

#include "catalog/names/repo.h"
#include "core/clock.h"
#include "tests/unit/catalog/scan_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define C2 "2222222222222222222222222222222222222222"
#define CACHE "models--o--n"
#define SNAPSHOT0 CACHE "/snapshots/" C0
#define SNAPSHOT1 CACHE "/snapshots/" C1

static const int64_t old_ns = INT64_C(60) * SECOND;
static const int64_t young_ns = INT64_C(10) * SECOND;

/* Files of tree_text and tree_simple are older than the time to settle. */
static void open_settling(struct place *place)
{
    open_place_of_revisions(place);
    place->scanner.config.settle_ns = (uint64_t)30 * SECOND;
}

FIXTURE(settling, struct place, open_settling, close_place)

static void set_ref(const struct place *place, const char *cache, const char *ref, const char *commit)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s/refs/%s", cache, ref);
    tree_text(&place->tree, name, commit);
}

/* Adds links to blobs of their names to a snapshot, in one of its folders ("" or "sub/"). The blobs are made if they
 * are not there. The folder is young afterwards. */
static void add_links(const struct place *place, const char *snapshot, const char *folder, const char *names)
{
    char list[256];
    char *rest = NULL;
    (void)snprintf(list, sizeof list, "%s", names);
    size_t cache_len = strcspn(snapshot, "/");
    for (const char *name = strtok_r(list, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        char blob[256];
        char link[256];
        char target[256];
        char path[TREE_PATH_BYTES];
        (void)snprintf(blob, sizeof blob, "%.*s/blobs/%s", (int)cache_len, snapshot, name);
        (void)snprintf(link, sizeof link, "%s/%s%s.safetensors", snapshot, folder, name);
        (void)snprintf(target, sizeof target, "../../%sblobs/%s", folder[0] == '\0' ? "" : "../", name);
        tree_at(&place->tree, blob, path);
        if (access(path, F_OK) != 0)
            tree_simple(&place->tree, blob, name);
        tree_symlink(&place->tree, link, target);
    }
}

/* Makes a commit that has settled. */
static void make_commit(const struct place *place, const char *snapshot, const char *names)
{
    add_links(place, snapshot, "", names);
    tree_set_age(&place->tree, snapshot, old_ns);
}

/* Scans, and checks the commit and the files of a repository, as "commit: a b"; "" if it is not shown. All that knows
 * the repository must agree. */
static void expect_at(struct place *place, bool as_dataset, const char *id, const char *revision, const char *wanted)
{
    char got[1024] = "";
    size_t used = 0;
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    const struct td_repo *repo = td_repo_find(snapshot, as_dataset, td_text_of(id));
    if (repo != NULL && revision != NULL)
        repo = td_repo_at(repo, td_text_of(revision));
    if (repo != NULL)
        used += (size_t)snprintf(got, sizeof got, "%.1s:", repo->revision);
    for (size_t i = 0; repo != NULL && i < repo->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[repo->first_entry + i];
        const char *name = td_repo_relative(repo, entry);
        used += (size_t)snprintf(got + used, sizeof got - used, " %.*s", (int)strcspn(name, "."), name);
        const struct td_model *model = scanner_model(&place->scanner, id);
        if (revision == NULL && model != NULL)
            assert_string_equal(model->revision, repo->revision);
    }
    for (size_t i = 1; i < snapshot->entry_count; i++)
        assert_true(strcmp(snapshot->entries[i - 1].path, snapshot->entries[i].path) < 0);
    CHECK(strcmp(got, wanted) == 0, "\"%s\", not \"%s\"", got, wanted);
}

static void expect(struct place *place, const char *wanted)
{
    expect_at(place, false, "o/n", NULL, wanted);
}

static void expect_revision(struct place *place, const char *revision, const char *wanted)
{
    expect_at(place, false, "o/n", revision, wanted);
}

static void files_settle_at_different_times(void **state)
{
    struct place *place = *state;
    static const char *const blobs[] = {CACHE "/blobs/a", CACHE "/blobs/b", CACHE "/blobs/c", CACHE "/blobs/d",
                                        CACHE "/blobs/e"};
    make_commit(place, SNAPSHOT0, "a b c d e");
    set_ref(place, CACHE, "main", C0);
    for (size_t i = 0; i < COUNT_OF(blobs); i++)
        tree_set_age(&place->tree, blobs[i], (int64_t)i * 5 * SECOND);
    for (size_t i = 0; i < COUNT_OF(blobs); i++) {
        uint64_t now_ns = td_clock_ns();
        expect(place, "");
        const struct td_snapshot *snapshot = place->scanner.snapshot;
        assert_int_equal(snapshot->unsettled.count, COUNT_OF(blobs) - i);
        assert_true(snapshot->unsettled.next_due_ns < now_ns + UINT64_C(30) * SECOND);
        assert_true(snapshot->entry_count == 0 && snapshot->model_count == 0 && snapshot->problems.count == 0);
        assert_true(td_snapshot_lacks_below(snapshot, TD_TEXT("o/n")));
        tree_set_age(&place->tree, blobs[COUNT_OF(blobs) - 1 - i], old_ns);
    }
    expect(place, "0: a b c d e");
    assert_int_equal(place->scanner.snapshot->unsettled.count, 0);
    assert_int_equal(scanner_model(&place->scanner, "o/n")->checkpoint_count, 1);
}

/* Names are added to a folder one after the other, and the blobs are old. */
static void names_settle(void **state)
{
    struct place *place = *state;
    set_ref(place, CACHE, "main", C0);
    add_links(place, SNAPSHOT0, "", "a");
    expect(place, "");
    add_links(place, SNAPSHOT0, "sub/", "b");
    expect(place, "");
    assert_int_equal(place->scanner.snapshot->unsettled.count, 2); /* two folders */
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "");
    assert_string_equal(place->scanner.unsettled.items[0].path, "o/n/sub/");
    tree_set_age(&place->tree, SNAPSHOT0 "/sub", old_ns);
    expect(place, "0: a sub/b");
}

static void main_stays_until_the_next_one_has_settled(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b c");
    set_ref(place, CACHE, "main", C0);
    expect(place, "0: a b c");
    const struct td_file *before = file_at(place, "o/n/a.safetensors");
    make_commit(place, SNAPSHOT1, "a d e");
    expect_revision(place, C1, "1: a d e"); /* beside main */
    make_commit(place, CACHE "/snapshots/" C2, "d f g");
    tree_set_age(&place->tree, CACHE "/blobs/f", young_ns);
    set_ref(place, CACHE, "main", C2);
    for (int i = 0; i < 2; i++) {
        expect(place, "0: a b c");
        expect_revision(place, C0, "0: a b c");
        expect_revision(place, C1, "1: a d e");
        expect_revision(place, C2, "");
        assert_null(scanner_model(&place->scanner, "o/n@" C0)); /* it is main */
        assert_ptr_equal(file_at(place, "o/n/a.safetensors"), before);
        const struct td_repo *repo = td_repo_find(place->scanner.snapshot, false, TD_TEXT("o/n"));
        assert_true(repo->ref_count == 1 && strcmp(repo->refs[0].commit, C0) == 0);
    }
    tree_set_age(&place->tree, CACHE "/blobs/f", old_ns);
    expect(place, "2: d f g");
    expect_revision(place, C0, "0: a b c");
    assert_ptr_equal(file_at(place, "o/n@" C0 "/a.safetensors"), before); /* it was not read again */
    set_ref(place, CACHE, "main", C0);                                    /* back, at once */
    expect(place, "0: a b c");
    assert_ptr_equal(file_at(place, "o/n/a.safetensors"), before);
    expect_revision(place, C2, "2: d f g");
    assert_int_equal(place->scanner.snapshot->unsettled.count, 0);
}

/* Clients of the Hub write the ref first, make the folder, and add one file after the other. */
static void an_empty_commit_does_not_replace_another(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    set_ref(place, CACHE, "main", C0);
    expect(place, "0: a b");
    set_ref(place, CACHE, "main", C1);
    tree_directory(&place->tree, SNAPSHOT1);
    expect(place, "0: a b");
    tree_text(&place->tree, CACHE "/blobs/c.incomplete", "c");
    tree_set_age(&place->tree, CACHE "/blobs/c.incomplete", 0);
    tree_set_age(&place->tree, SNAPSHOT1, old_ns);
    expect(place, "0: a b");
    make_commit(place, SNAPSHOT1, "d");
    expect(place, "0: a b"); /* the other download runs */
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    assert_true(snapshot->unsettled.count == 1 && snapshot->unsettled.pending_count == 0);
    assert_true(snapshot->unsettled.next_due_ns > td_clock_ns() + UINT64_C(50) * SECOND);
    tree_rename(&place->tree, CACHE "/blobs/c.incomplete", CACHE "/blobs/c");
    tree_set_age(&place->tree, CACHE "/blobs/c", old_ns);
    make_commit(place, SNAPSHOT1, "c");
    expect(place, "1: c d");
    /* a commit that is shown gets files while others are downloaded */
    tree_text(&place->tree, CACHE "/blobs/e.incomplete", "e");
    tree_set_age(&place->tree, CACHE "/blobs/e.incomplete", 0);
    make_commit(place, SNAPSHOT1, "f");
    expect(place, "1: c d f");
}

/* A commit that stays empty is shown as such. */
static void a_commit_may_be_empty(void **state)
{
    struct place *place = *state;
    tree_directory(&place->tree, SNAPSHOT0);
    expect(place, "");
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "0:");
    assert_int_equal(place->scanner.snapshot->unsettled.count, 0);
}

static void a_download_that_was_given_up_does_not_count(void **state)
{
    static const int64_t ages_s[] = {61, -61, 59, -59};
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a");
    set_ref(place, CACHE, "main", C0);
    tree_text(&place->tree, CACHE "/blobs/c.1234.incomplete", "c");
    for (size_t i = COUNT_OF(ages_s); i-- > 0;) {
        tree_set_age(&place->tree, CACHE "/blobs/c.1234.incomplete", ages_s[i] * SECOND);
        expect(place, i >= 2 ? "" : "0: a");
    }
}

static void without_settling_nothing_waits(void **state)
{
    struct place *place = *state;
    place->scanner.config.settle_ns = 0;
    add_links(place, SNAPSHOT0, "", "a");
    tree_text(&place->tree, CACHE "/blobs/c.incomplete", "c");
    tree_set_age(&place->tree, CACHE "/blobs/c.incomplete", 0);
    expect(place, "0: a");
}

static void a_shown_commit_changes_as_a_whole(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b c");
    expect(place, "0: a b c");
    add_links(place, SNAPSHOT0, "", "d"); /* its folder is young */
    expect(place, "0: a b c");
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "0: a b c d");
    add_links(place, SNAPSHOT0, "", "e f");
    tree_set_age(&place->tree, CACHE "/blobs/e", young_ns);
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "0: a b c d"); /* f has settled, e has not */
    tree_set_age(&place->tree, CACHE "/blobs/e", old_ns);
    expect(place, "0: a b c d e f");
    /* links lead to other blobs, one after the other */
    const struct td_file *before = file_at(place, "o/n/a.safetensors");
    const struct td_file *other = file_at(place, "o/n/b.safetensors");
    tree_remove(&place->tree, SNAPSHOT0 "/a.safetensors");
    tree_symlink(&place->tree, SNAPSHOT0 "/a.safetensors", "../../blobs/c");
    expect(place, "0: a b c d e f");
    assert_ptr_equal(file_at(place, "o/n/a.safetensors"), before);
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "0: a b c d e f");
    assert_ptr_not_equal(file_at(place, "o/n/a.safetensors"), before);
    assert_ptr_equal(file_at(place, "o/n/b.safetensors"), other);
}

static void what_vanishes_leaves_a_whole_commit(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b c");
    expect(place, "0: a b c");
    tree_remove(&place->tree, SNAPSHOT0 "/a.safetensors");
    expect(place, "0: a b c");
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "0: b c");
    tree_remove(&place->tree, CACHE "/blobs/b"); /* the link stays, and so do its times */
    expect(place, "0: b c");
    assert_int_equal(place->scanner.snapshot->problems.count, 0);
    place->scanner.config.settle_ns = 1;
    expect(place, "0: c");
    assert_non_null(scanner_problem(&place->scanner, scanner_model(&place->scanner, "o/n"), "b.safetensors"));
    place->scanner.config.settle_ns = (uint64_t)30 * SECOND;
    tree_remove(&place->tree, CACHE);
    expect(place, "");
}

/* The old commit is removed from disk before the new one has settled. Another repository sorts between the two. */
static void a_removed_commit_stays_until_the_next_one_has_settled(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    make_commit(place, "models--o--n-x/snapshots/" C0, "a");
    tree_simple(&place->tree, "o/o/x.safetensors", "a");
    set_ref(place, CACHE, "main", C0);
    expect(place, "0: a b");
    make_commit(place, SNAPSHOT1, "c");
    tree_set_age(&place->tree, CACHE "/blobs/c", young_ns);
    set_ref(place, CACHE, "main", C1);
    tree_remove(&place->tree, SNAPSHOT0);
    expect(place, "0: a b");
    expect(place, "0: a b");
    tree_set_age(&place->tree, CACHE "/blobs/c", old_ns);
    expect(place, "1: c");
    assert_int_equal(place->scanner.snapshot->entry_count, 3);
}

static void ages_of_link(const struct place *place, const char *name, int64_t age_s)
{
    char path[TREE_PATH_BYTES];
    struct timespec now;
    tree_at(&place->tree, name, path);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec times[2] = {{.tv_sec = now.tv_sec - age_s}, {.tv_sec = now.tv_sec - age_s}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A file that cannot be read is a problem, and keeps no commit away once it has settled. */
static void a_missing_blob_settles_with_its_link(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    tree_text(&place->tree, CACHE "/blobs/bad", "not a checkpoint");
    tree_symlink(&place->tree, SNAPSHOT0 "/bad.safetensors", "../../blobs/bad");
    tree_remove(&place->tree, CACHE "/blobs/b");
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect(place, "");
    assert_int_equal(place->scanner.snapshot->unsettled.count, 1);
    ages_of_link(place, SNAPSHOT0 "/b.safetensors", 60);
    expect(place, "0: a bad");
    const struct td_model *model = scanner_model(&place->scanner, "o/n");
    assert_int_equal(model->problems.count, 2);
    assert_non_null(strstr(scanner_problem(&place->scanner, model, "b.safetensors"), "does not exist"));
    assert_non_null(scanner_problem(&place->scanner, model, "bad.safetensors"));
    /* the problems stay with the state that is kept */
    add_links(place, SNAPSHOT0, "", "c");
    expect(place, "0: a bad");
    assert_int_equal(scanner_model(&place->scanner, "o/n")->problems.count, 2);
    make_commit(place, SNAPSHOT1, "c");
    tree_set_age(&place->tree, CACHE "/blobs/c", young_ns);
    set_ref(place, CACHE, "main", C1);
    expect(place, "0: a bad");
    model = scanner_model(&place->scanner, "o/n");
    assert_true(model->problems.count == 2 && scanner_problem(&place->scanner, model, "b.safetensors") != NULL);
}

/* Nothing was shown before: not the old commit as if it were main, and none beside a main one that is not shown. */
static void after_a_restart(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    make_commit(place, SNAPSHOT1, "a c");
    set_ref(place, CACHE, "main", C1);
    set_ref(place, CACHE, "v1", C0);
    tree_set_age(&place->tree, CACHE "/blobs/c", young_ns);
    expect(place, "");
    assert_true(place->scanner.snapshot->entry_count == 0 && place->scanner.snapshot->model_count == 0);
    tree_set_age(&place->tree, CACHE "/blobs/c", old_ns);
    expect(place, "1: a c");
    expect_revision(place, "v1", "0: a b");
}

/* The paths of "o/n-x" come before those of "o/n", which is the beginning of both. */
static void ids_that_begin_alike_hide_their_own_commits(void **state)
{
    static const char *const others[] = {"models--o--n", "models--o--p", "models--o--q"};
    struct place *place = *state;
    size_t first;
    size_t count;
    make_commit(place, "models--o--n-x/snapshots/" C0, "a");
    make_commit(place, "models--o--n-x/snapshots/" C1, "c");
    set_ref(place, "models--o--n-x", "main", C1);
    tree_set_age(&place->tree, "models--o--n-x/blobs/c", young_ns);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        char snapshot[256];
        (void)snprintf(snapshot, sizeof snapshot, "%s/snapshots/" C0, others[i]);
        make_commit(place, snapshot, "a");
        set_ref(place, others[i], "main", C0);
    }
    expect(place, "0: a");
    td_snapshot_entries_below(place->scanner.snapshot, TD_TEXT("o/n-x@" C0), &first, &count);
    assert_int_equal(count, 0); /* no commit is shown while the main one is not */
    tree_set_age(&place->tree, "models--o--n-x/blobs/c", old_ns);
    expect_at(place, false, "o/n-x", NULL, "1: c");
    expect_at(place, false, "o/n-x", C0, "0: a");
}

static void revisions_are_whole(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    make_commit(place, SNAPSHOT1, "a c");
    set_ref(place, CACHE, "main", C0);
    set_ref(place, CACHE, "v1", C1);
    tree_set_age(&place->tree, CACHE "/blobs/c", young_ns);
    expect(place, "0: a b");
    expect_revision(place, "v1", ""); /* left out */
    assert_int_equal(td_repo_find(place->scanner.snapshot, false, TD_TEXT("o/n"))->ref_count, 1);
    tree_set_age(&place->tree, CACHE "/blobs/c", old_ns);
    expect_revision(place, "v1", "1: a c");
    make_commit(place, CACHE "/snapshots/" C2, "d e");
    tree_set_age(&place->tree, CACHE "/blobs/e", young_ns);
    set_ref(place, CACHE, "v1", C2);
    expect_revision(place, "v1", "1: a c"); /* as before */
    expect_revision(place, C2, "");
    tree_set_age(&place->tree, CACHE "/blobs/e", old_ns);
    expect_revision(place, "v1", "2: d e");
    expect_revision(place, C1, "1: a c");
    add_links(place, CACHE "/snapshots/" C2, "", "f"); /* young, and it becomes main */
    set_ref(place, CACHE, "main", C2);
    expect(place, "2: d e");
    expect_revision(place, C0, "0: a b");
}

static void datasets_and_models_in_folders(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "datasets--o--n/snapshots/" C0 "/train.jsonl", "{}");
    tree_text(&place->tree, "datasets--o--n/snapshots/" C0 "/test.jsonl", "{}");
    tree_set_age(&place->tree, "datasets--o--n/snapshots/" C0, young_ns);
    add_links(place, SNAPSHOT0, "step-1/", "a b");
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect_at(place, true, "o/n", NULL, "");
    assert_null(scanner_model(&place->scanner, "o/n/step-1"));
    tree_set_age(&place->tree, "datasets--o--n/snapshots/" C0, old_ns);
    tree_set_age(&place->tree, SNAPSHOT0 "/step-1", old_ns);
    expect_at(place, true, "o/n", NULL, "0: test train");
    const struct td_model *model = scanner_model(&place->scanner, "o/n/step-1");
    assert_true(model != NULL && model->entry_count == 2 && strcmp(model->revision, C0) == 0);
    add_links(place, SNAPSHOT0, "step-1/", "c");
    add_links(place, SNAPSHOT0, "step-2/", "d");
    tree_set_age(&place->tree, SNAPSHOT0 "/step-1", old_ns);
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    expect_at(place, false, "o/n", NULL, "0: step-1/a step-1/b");
    model = scanner_model(&place->scanner, "o/n/step-1");
    assert_true(model != NULL && model->entry_count == 2 && strcmp(model->revision, C0) == 0);
    tree_set_age(&place->tree, SNAPSHOT0 "/step-2", old_ns);
    expect_at(place, false, "o/n", NULL, "0: step-1/a step-1/b step-1/c step-2/d");
}

/* A request for a scan finds out that a file is cut short only when it reads it, after others of the commit. */
static void a_requested_scan_publishes_whole_commits(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    take_leases(place);
    place->scanner.config.publish_complete = true;
    make_commit(place, SNAPSHOT0, "a b c");
    expect(place, "0: a b c");
    make_commit(place, SNAPSHOT1, "d e f");
    tree_set_age(&place->tree, CACHE "/blobs/d", young_ns);
    tree_set_age(&place->tree, CACHE "/blobs/f", young_ns);
    set_ref(place, CACHE, "main", C1);
    tree_at(&place->tree, CACHE "/blobs/f", path);
    int writer = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(writer >= 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* later writes give another change time */
    expect(place, "0: a b c");
    assert_int_equal(close(writer), 0);
    tree_truncate(&place->tree, CACHE "/blobs/f", 20);
    tree_set_age(&place->tree, CACHE "/blobs/f", young_ns);
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    expect(place, "0: a b c");
    assert_int_equal(place->scanner.snapshot->problems.count, 0);
    expect_revision(place, C1, "");
    tree_simple(&place->tree, CACHE "/blobs/f", "f");
    tree_set_age(&place->tree, CACHE "/blobs/f", young_ns);
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    expect(place, "1: d e f");
    expect_revision(place, C0, "0: a b c");
}

/* Each blob is looked at once for all links to it. Links that lead elsewhere are looked at by themselves. */
static void links_of_many_commits(void **state)
{
    static const char *const commits[] = {SNAPSHOT0, SNAPSHOT1, CACHE "/snapshots/" C2};
    struct place *place = *state;
    place->scanner.config.settle_ns = 0;
    tree_simple(&place->tree, "other/d", "d");
    tree_symlink(&place->tree, CACHE "/blobs/l", "../../../outside");
    for (size_t i = 0; i < COUNT_OF(commits); i++) {
        char link[256];
        add_links(place, commits[i], "", "a b");
        add_links(place, commits[i], "sub/", "b c");
        (void)snprintf(link, sizeof link, "%s/d.safetensors", commits[i]);
        tree_symlink(&place->tree, link, "../../blobs/../../other/d");
        (void)snprintf(link, sizeof link, "%s/e.safetensors", commits[i]);
        tree_symlink(&place->tree, link, "../../blobs/l");
        (void)snprintf(link, sizeof link, "%s/f.safetensors", commits[i]);
        tree_symlink(&place->tree, link, "../../blobs/none");
    }
    set_ref(place, CACHE, "main", C0);
    expect(place, "0: a b d sub/b sub/c");
    expect_revision(place, C1, "1: a b d sub/b sub/c");
    expect_revision(place, C2, "2: a b d sub/b sub/c");
    const struct td_file *main = file_at(place, "o/n/b.safetensors");
    const struct td_file *sub = file_at(place, "o/n@" C2 "/sub/b.safetensors");
    assert_true(td_file_id_equal(&main->source.id, &sub->source.id));
    assert_non_null(scanner_problem(&place->scanner, scanner_model(&place->scanner, "o/n"), "e.safetensors"));
    tree_simple(&place->tree, CACHE "/blobs/b", "larger");
    expect(place, "0: a b d sub/b sub/c");
    main = file_at(place, "o/n/b.safetensors");
    sub = file_at(place, "o/n@" C2 "/sub/b.safetensors");
    assert_true(td_file_id_equal(&main->source.id, &sub->source.id));
}

/* A commit that this program has published is shown at once, however young it is; others of the cache are not. */
static void a_published_commit_need_not_settle(void **state)
{
    static const struct td_published published[] = {{"o/m", C1}, {"o/n", C0}, {"o/n", C2}, {"o/x", C2}};
    struct place *place = *state;
    add_links(place, SNAPSHOT1, "", "a");
    add_links(place, CACHE "/snapshots/" C2, "sub/", "b d");
    tree_set_age(&place->tree, CACHE "/blobs/a", young_ns);
    tree_set_age(&place->tree, CACHE "/blobs/d", young_ns);
    set_ref(place, CACHE, "main", C2);
    expect(place, "");
    place->scanner.config.published = published;
    place->scanner.config.published_count = COUNT_OF(published);
    expect(place, "2: sub/b sub/d");
    expect_revision(place, C1, "");
    place->scanner.config.published_count = 0;
    expect(place, "2: sub/b sub/d"); /* once shown, it stays */
    set_ref(place, CACHE, "main", C1);
    expect(place, "2: sub/b sub/d");
}

static uint64_t files_found(const struct place *place)
{
    return atomic_load(&place->scanner.progress.files_found);
}

/* A scan for a commit alone walks no published commit that it knows, wherever main and tags move. */
static void known_commits_are_not_walked(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    make_commit(place, SNAPSHOT1, "b c");
    tree_text(&place->tree, CACHE "/commits/" C0, "note");
    tree_text(&place->tree, CACHE "/commits/" C1, "note");
    set_ref(place, CACHE, "main", C0);
    place->scanner.config.keeps_published = true;
    expect(place, "0: a b");
    assert_int_equal(files_found(place), 4); /* there was no snapshot before */
    expect_revision(place, C1, "1: b c");
    assert_int_equal(files_found(place), 0);
    const struct td_file *b = file_at(place, "o/n@" C1 "/b.safetensors");
    set_ref(place, CACHE, "main", C1);
    set_ref(place, CACHE, "v1", C0);
    expect(place, "1: b c");
    expect_revision(place, "v1", "0: a b");
    assert_int_equal(files_found(place), 0);
    assert_ptr_equal(file_at(place, "o/n/b.safetensors"), b);
    assert_int_equal(scanner_model(&place->scanner, "o/n")->checkpoint_count, 1);
    set_ref(place, CACHE, "main", C0);
    expect(place, "0: a b");
    expect_revision(place, C1, "1: b c");
    make_commit(place, CACHE "/snapshots/" C2, "d");
    tree_text(&place->tree, CACHE "/commits/" C2, "note");
    set_ref(place, CACHE, "main", C2);
    expect(place, "2: d");
    assert_int_equal(files_found(place), 1);
    tree_remove(&place->tree, SNAPSHOT1);
    expect_revision(place, C1, "");
    expect_revision(place, C0, "0: a b");
    assert_int_equal(files_found(place), 0);
}

/* A whole scan walks known commits, as any scan does with one whose directory has changed, one without a note, and one
 * with a problem. */
static void other_commits_are_walked(void **state)
{
    struct place *place = *state;
    make_commit(place, SNAPSHOT0, "a b");
    tree_text(&place->tree, CACHE "/commits/" C0, "note");
    set_ref(place, CACHE, "main", C0);
    expect(place, "0: a b");
    place->scanner.config.keeps_published = true;
    tree_simple(&place->tree, CACHE "/blobs/b", "larger");
    uint64_t size_bytes = file_at(place, "o/n/b.safetensors")->source.id.size_bytes;
    expect(place, "0: a b");
    assert_int_equal(file_at(place, "o/n/b.safetensors")->source.id.size_bytes, size_bytes);
    place->scanner.config.keeps_published = false;
    expect(place, "0: a b");
    assert_int_not_equal(file_at(place, "o/n/b.safetensors")->source.id.size_bytes, size_bytes);
    place->scanner.config.keeps_published = true;
    make_commit(place, SNAPSHOT0, "c");
    expect(place, "0: a b c");
    assert_int_equal(files_found(place), 3);
    expect(place, "0: a b c");
    assert_int_equal(files_found(place), 0);
    tree_remove(&place->tree, CACHE "/commits");
    expect(place, "0: a b c");
    assert_int_equal(files_found(place), 3);
    tree_text(&place->tree, CACHE "/commits/" C0, "note");
    tree_symlink(&place->tree, SNAPSHOT0 "/d.safetensors", "../../blobs/none");
    tree_set_age(&place->tree, SNAPSHOT0, old_ns);
    for (int i = 0; i < 2; i++) {
        expect(place, "0: a b c");
        assert_int_equal(files_found(place), 4);
        assert_non_null(scanner_problem(&place->scanner, scanner_model(&place->scanner, "o/n"), "d.safetensors"));
    }
}

/* Times in the future, as of a server whose clock is ahead: folders settle when scans have seen them unchanged. */
static void folders_from_the_future_settle(void **state)
{
    struct place *place = *state;
    place->scanner.config.settle_ns = 100000000;
    add_links(place, SNAPSHOT0, "", "a");
    add_links(place, SNAPSHOT0, "sub/", "b");
    tree_set_age(&place->tree, SNAPSHOT0 "/sub", -1000 * old_ns);
    tree_set_age(&place->tree, SNAPSHOT0, -1000 * old_ns);
    expect(place, "");
    while (td_clock_ns() < place->scanner.snapshot->unsettled.next_due_ns)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    expect(place, "0: a sub/b");
}

/* Memory of what is kept is not free for new files. */
static void kept_files_take_memory(void **state)
{
    struct place *place = *state;
    struct td_budget memory;
    make_commit(place, SNAPSHOT0, "a");
    set_ref(place, CACHE, "main", C0);
    td_budget_init(&memory, SIZE_MAX, "files");
    place->scanner.config.memory = &memory;
    expect(place, "0: a");
    const size_t one = file_at(place, "o/n/a.safetensors")->memory_bytes;
    assert_true(one > 0);
    place->scanner.config.memory->max_bytes = one + one / 2; /* room for one file */
    make_commit(place, SNAPSHOT1, "b");
    tree_set_age(&place->tree, CACHE "/blobs/b", young_ns);
    set_ref(place, CACHE, "main", C1);
    tree_remove(&place->tree, SNAPSHOT0);
    tree_simple(&place->tree, "z/z.safetensors", "z");
    expect(place, "0: a");
    assert_non_null(file_at(place, "o/n/a.safetensors")->manifest.tensors);
    assert_non_null(strstr(file_at(place, "z/z.safetensors")->error, "--max-memory"));
    tree_remove(&place->tree, "z");
    tree_set_age(&place->tree, CACHE "/blobs/b", old_ns);
    expect(place, "1: b");
    assert_null(file_at(place, "o/n/b.safetensors")->error);
    td_snapshot_unref(place->scanner.snapshot); /* before its memory ends */
    place->scanner.snapshot = NULL;
}

/* Two caches with one path: the files of one are shown, not some of each. */
static void twins_are_not_mixed(void **state)
{
    struct place *place = *state;
    make_commit(place, "models--p--q--r/snapshots/" C0, "a b");
    tree_text(&place->tree, "p/models--q--r/snapshots/" C1 "/b.safetensors", "");
    tree_text(&place->tree, "p/models--q--r/snapshots/" C1 "/c.safetensors", "");
    place->scanner.config.settle_ns = 0;
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_int_equal(snapshot->entry_count, 2);
    bool is_first = file_at(place, "p/q/r/a.safetensors") != NULL;
    assert_true((file_at(place, "p/q/r/c.safetensors") != NULL) != is_first);
    assert_non_null(scanner_problem(&place->scanner, NULL, is_first ? "p/q/r/c.safetensors" : "p/q/r/a.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(settling, files_settle_at_different_times),
        TEST_IN(settling, names_settle),
        TEST_IN(settling, main_stays_until_the_next_one_has_settled),
        TEST_IN(settling, an_empty_commit_does_not_replace_another),
        TEST_IN(settling, a_commit_may_be_empty),
        TEST_IN(settling, a_download_that_was_given_up_does_not_count),
        TEST_IN(settling, without_settling_nothing_waits),
        TEST_IN(settling, a_shown_commit_changes_as_a_whole),
        TEST_IN(settling, what_vanishes_leaves_a_whole_commit),
        TEST_IN(settling, a_removed_commit_stays_until_the_next_one_has_settled),
        TEST_IN(settling, a_missing_blob_settles_with_its_link),
        TEST_IN(settling, after_a_restart),
        TEST_IN(settling, ids_that_begin_alike_hide_their_own_commits),
        TEST_IN(settling, revisions_are_whole),
        TEST_IN(settling, datasets_and_models_in_folders),
        TEST_IN(settling, a_requested_scan_publishes_whole_commits),
        TEST_IN(settling, links_of_many_commits),
        TEST_IN(settling, a_published_commit_need_not_settle),
        TEST_IN(settling, known_commits_are_not_walked),
        TEST_IN(settling, other_commits_are_walked),
        TEST_IN(settling, folders_from_the_future_settle),
        TEST_IN(settling, kept_files_take_memory),
        TEST_IN(settling, twins_are_not_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
