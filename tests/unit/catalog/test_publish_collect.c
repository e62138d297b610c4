/* Collection: what no revision and no snapshot names goes when it is old; all else stays. */
#include "catalog/publish/publish_collect.h"

#include "core/clock.h"
#include "tests/unit/catalog/publish_place.h"

enum { HOUR = 3600, DAY = 86400 };

/* Collects as if it were so many seconds later: commits stay for an hour, blobs for a day. Returns what was removed,
 * and checks that the trash holds it. */
static struct td_collected collect_later(struct publish_place *place, int64_t seconds)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_collected collected;
    const struct td_collect_rules rules = {
        .now_s = td_wall_now().seconds + seconds, .keep_commits_s = HOUR, .upload_expires_s = DAY};
    CHECK(td_publish_collect(&place->repo, &rules, &collected, &err), "%s", err.message);
    struct stat st;
    if (collected.trash[0] != '\0') {
        assert_int_equal(fstatat(place->disk.own.fd, collected.trash, &st, AT_SYMLINK_NOFOLLOW), 0);
        td_own_folder_remove(&place->disk.own, collected.trash);
    }
    return collected;
}

static bool has_commit(const struct publish_place *place, const char *commit)
{
    char found[TD_COMMIT_BYTES];
    return td_publish_resolve(&place->repo, commit, found);
}

static void commits_and_blobs_that_nothing_names_go_when_they_are_old(void **state)
{
    struct publish_place *place = *state;
    char first[TD_COMMIT_BYTES];
    char note[128];
    struct stat st;
    commit_is(place, &(struct ask){.files = "a=1 b=2"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    commit_is(place, &(struct ask){.files = "a=1 b=333"}, TD_COMMIT_MOVED);
    put_blob(place, "of no commit");
    struct td_collected got = collect_later(place, HOUR - 60);
    assert_int_equal(got.commits + got.blobs, 0);
    assert_string_equal(got.trash, "");
    got = collect_later(place, HOUR + 60);
    assert_int_equal(got.commits, 1);
    assert_int_equal(got.blobs, 0); /* "2" has no snapshot now, but is not a day old */
    assert_false(has_commit(place, first));
    (void)snprintf(note, sizeof note, "commits/%s", first);
    assert_int_not_equal(fstatat(place->repo.fd, note, &st, 0), 0);
    got = collect_later(place, DAY + 60);
    assert_int_equal(got.commits, 0);
    assert_int_equal(got.blobs, 2);
    assert_int_equal(got.blob_bytes, 1 + strlen("of no commit"));
    assert_string_equal(files_at(place, "main"), "a=1 b=333");
    assert_false(has_blob(place, "2") || has_blob(place, "of no commit"));
}

/* The time counts from when the last revision left, not from when the commit was made. */
static void a_commit_stays_for_as_long_after_a_revision_left_it(void **state)
{
    struct publish_place *place = *state;
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char first[TD_COMMIT_BYTES];
    char note[128];
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    assert_true(td_publish_set_ref(&place->repo, "v1", "main", false, NULL));
    (void)snprintf(note, sizeof note, "commits/%s", first);
    assert_int_equal(utimensat(place->repo.fd, note, times, 0), 0); /* made long ago */
    commit_is(place, &(struct ask){.files = "a=2"}, TD_COMMIT_MOVED);
    assert_int_equal(utimensat(place->repo.fd, note, times, 0), 0); /* and left by main long ago */
    assert_int_equal(collect_later(place, 10 * DAY).commits, 0);    /* v1 names it */
    assert_true(td_publish_delete_ref(&place->repo, "v1", NULL));
    assert_int_equal(collect_later(place, HOUR - 60).commits, 0);
    assert_int_equal(collect_later(place, HOUR + 60).commits, 1);
    assert_false(has_commit(place, first));
    commit_is(place, &(struct ask){.files = "a=3"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    (void)snprintf(note, sizeof note, "commits/%s", first);
    assert_int_equal(utimensat(place->repo.fd, note, times, 0), 0);
    commit_is(place, &(struct ask){.files = "a=4", .revision = "dev"}, TD_COMMIT_MOVED);
    assert_true(td_publish_set_ref(&place->repo, "main", "dev", true, NULL)); /* main leaves a=3 by a move */
    (void)collect_later(place, HOUR - 60);
    assert_true(has_commit(place, first));
    (void)collect_later(place, HOUR + 60);
    assert_false(has_commit(place, first));
}

/* Of commits without a revision, the 64 that were left last stay. */
static void a_repository_keeps_a_number_of_commits(void **state)
{
    struct publish_place *place = *state;
    char commits[TD_PUBLISH_KEPT_COMMITS + 4][TD_COMMIT_BYTES];
    for (size_t i = 0; i < COUNT_OF(commits); i++) {
        char files[32];
        char note[128];
        const time_t left_s = td_wall_now().seconds - (time_t)(COUNT_OF(commits) - i);
        const struct timespec times[2] = {{.tv_sec = left_s}, {.tv_sec = left_s}};
        (void)snprintf(files, sizeof files, "a=%zu", i);
        commit_is(place, &(struct ask){.files = files}, TD_COMMIT_MOVED);
        memcpy(commits[i], place->result.commit, TD_COMMIT_BYTES);
        (void)snprintf(note, sizeof note, "commits/%.40s", commits[i > 0 ? i - 1 : 0]);
        assert_int_equal(utimensat(place->repo.fd, note, times, 0), 0);
    }
    assert_int_equal(collect_later(place, 0).commits, 3); /* one of the others is main */
    for (size_t i = 0; i < COUNT_OF(commits); i++)
        assert_int_equal(has_commit(place, commits[i]), i >= 3);
    assert_int_equal(collect_later(place, 0).commits, 0);
}

/* A blob with an old modification time that has just got its name here is new. */
static void blobs_of_unfinished_pushes_stay(void **state)
{
    struct publish_place *place = *state;
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    put_blob(place, "waits");
    char name[128] = "blobs/";
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    hex_of("waits", name + strlen(name));
    assert_int_equal(utimensat(place->repo.fd, name, times, 0), 0);
    assert_int_equal(collect_later(place, DAY - 60).blobs, 0);
    commit_is(place, &(struct ask){.files = "b=waits", .keep = true, .lacks = true}, TD_COMMIT_MOVED);
    assert_int_equal(collect_later(place, 2 * DAY).blobs, 0);
    assert_string_equal(files_at(place, "main"), "a=1 b=waits");
}

/* Other files in blobs/ are not ours to remove: unfinished blobs, files of other programs. */
static void only_blobs_are_collected(void **state)
{
    struct publish_place *place = *state;
    char path[TREE_PATH_BYTES];
    struct stat st;
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    tree_text(&place->tree, REPO "/blobs/.x.tensord-part", "part");
    tree_text(&place->tree, REPO "/blobs/0123456789012345678901234567890123456789", "of Git");
    tree_directory(&place->tree, REPO "/blobs/0000000000000000000000000000000000000000000000000000000000000000");
    assert_int_equal(collect_later(place, 10 * DAY).blobs, 0);
    tree_at(&place->tree, REPO "/blobs/.x.tensord-part", path);
    assert_int_equal(lstat(path, &st), 0);
}

static void nothing_goes_when_a_snapshot_cannot_be_read(void **state)
{
    struct publish_place *place = *state;
    char name[256];
    commit_is(place, &(struct ask){.files = "a=1 d/x=2"}, TD_COMMIT_MOVED);
    put_blob(place, "of no commit");
    (void)snprintf(name, sizeof name, REPO "/snapshots/%s/d/y", place->result.commit);
    tree_symlink(&place->tree, name, "../../blobs/elsewhere");
    assert_int_equal(collect_later(place, 2 * DAY).blobs, 0);
    tree_remove(&place->tree, name);
    tree_text(&place->tree, REPO "/snapshots/other/file", "a file");
    assert_int_equal(collect_later(place, 2 * DAY).blobs, 0);
    tree_remove(&place->tree, REPO "/snapshots/other");
    char link[256] = "../../blobs/";
    hex_of("of no commit", link + strlen(link));
    tree_symlink(&place->tree, REPO "/snapshots/other/file", link); /* another program's snapshot counts */
    assert_int_equal(collect_later(place, 2 * DAY).blobs, 0);
    tree_remove(&place->tree, REPO "/snapshots/other");
    assert_int_equal(collect_later(place, 2 * DAY).blobs, 1);
    assert_string_equal(files_at(place, "main"), "a=1 d/x=2");
}

static void no_commit_goes_when_revisions_are_not_known(void **state)
{
    struct publish_place *place = *state;
    char first[TD_COMMIT_BYTES];
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    commit_is(place, &(struct ask){.files = "a=2"}, TD_COMMIT_MOVED);
    tree_text(&place->tree, REPO "/refs/v1", "");
    assert_int_equal(collect_later(place, 2 * DAY).commits, 0);
    tree_remove(&place->tree, REPO "/refs/v1");
    tree_rename(&place->tree, REPO "/refs/main", REPO "/main");
    assert_int_equal(collect_later(place, 2 * DAY).commits, 0);
    tree_rename(&place->tree, REPO "/main", REPO "/refs/main");
    tree_text(&place->tree, REPO "/refs/of another program!", first);
    assert_int_equal(collect_later(place, 2 * DAY).commits, 0);
    tree_remove(&place->tree, REPO "/refs/of another program!");
    assert_int_equal(collect_later(place, 2 * DAY).commits, 1);
}

/* Notes that have lost their snapshot go. */
static void a_note_without_a_snapshot_goes(void **state)
{
    struct publish_place *place = *state;
    char path[TREE_PATH_BYTES];
    struct stat st;
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    tree_text(&place->tree, REPO "/commits/0000000000000000000000000000000000000000", "{}");
    (void)collect_later(place, 0);
    tree_at(&place->tree, REPO "/commits/0000000000000000000000000000000000000000", path);
    assert_int_not_equal(lstat(path, &st), 0);
    tree_at(&place->tree, REPO "/commits/", path);
    (void)snprintf(path + strlen(path), 64, "%s", commit_at(place, "main"));
    assert_int_equal(lstat(path, &st), 0);
}

static void an_empty_repository_goes_when_it_is_old(void **state)
{
    struct publish_place *place = *state;
    struct td_collected got = collect_later(place, DAY - 60);
    assert_true(place->repo.fd >= 0);
    tree_text(&place->tree, NEW "/blobs/.x.tensord-part", "part");
    got = collect_later(place, DAY + 60);
    assert_true(place->repo.fd >= 0); /* a blob is arriving */
    tree_remove(&place->tree, NEW "/blobs/.x.tensord-part");
    put_blob(place, "waits");
    got = collect_later(place, DAY - 60);
    assert_int_equal(got.blobs, 0);
    got = collect_later(place, DAY + 60);
    assert_int_equal(got.blobs, 1);
    assert_int_equal(got.blob_bytes, 5);
    assert_int_equal(place->repo.fd, -1);
    assert_int_equal(collect_later(place, DAY + 60).blobs, 0); /* of a repository that does not exist */
    reopen(place);
    assert_true(place->repo.is_new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(publish, commits_and_blobs_that_nothing_names_go_when_they_are_old),
        TEST_IN(publish, a_commit_stays_for_as_long_after_a_revision_left_it),
        TEST_IN(publish, a_repository_keeps_a_number_of_commits),
        TEST_IN(publish, blobs_of_unfinished_pushes_stay),
        TEST_IN(publish, only_blobs_are_collected),
        TEST_IN(publish, nothing_goes_when_a_snapshot_cannot_be_read),
        TEST_IN(publish, no_commit_goes_when_revisions_are_not_known),
        TEST_IN(publish, a_note_without_a_snapshot_goes),
        TEST_IN(publish, an_empty_repository_goes_when_it_is_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
