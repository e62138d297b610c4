/* Commits on a disk that fails, and by a process that is killed: a revision has all files of one commit at any moment.
 */
#include "catalog/publish/publish_commit.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/catalog/publish_place.h"

#include <signal.h>
#include <sys/wait.h>

enum call { RENAME, SYNC, SYMLINK, LINK, CALLS };

static struct {
    size_t calls[CALLS];
    size_t nth[CALLS]; /* the call that fails, from 1; 0: no call does */
    int sys;
    bool has_failed;
    ino_t first_synced; /* the file or directory of the first SYNC; 0: none yet */
} disk;

int __wrap_fsync(int fd);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_symlinkat(const char *target, int dir, const char *path);
int __real_symlinkat(const char *target, int dir, const char *path);
int __wrap_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags);
int __real_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags);

static bool fails(enum call call)
{
    if (++disk.calls[call] != disk.nth[call])
        return false;
    disk.has_failed = true;
    errno = disk.sys;
    return true;
}

/* A real one would only take time: a killed process loses nothing that it has written. */
int __wrap_fsync(int fd)
{
    struct stat st;
    if (disk.first_synced == 0 && fstat(fd, &st) == 0)
        disk.first_synced = st.st_ino;
    return fails(SYNC) ? -1 : 0;
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return fails(RENAME) ? -1 : __real_renameat2(from_dir, from, to_dir, to, flags);
}

int __wrap_symlinkat(const char *target, int dir, const char *path)
{
    return fails(SYMLINK) ? -1 : __real_symlinkat(target, dir, path);
}

int __wrap_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return fails(LINK) ? -1 : __real_linkat(from_dir, from, to_dir, to, flags);
}

static void arm(enum call call, size_t nth, int sys)
{
    memset(&disk, 0, sizeof disk);
    disk.nth[call] = nth;
    disk.sys = sys;
}

static bool add_ref(void *context, const char *name, const char *commit)
{
    char *out = context;
    (void)snprintf(out + strlen(out), TEXT_BYTES - strlen(out), "%s %s\n", name, commit);
    return true;
}

/* Writes all that a reader of the repository can see: revisions, commits with their files, notes. */
static void read_all(struct publish_place *place, char out[TEXT_BYTES])
{
    struct td_arena arena;
    struct td_commit_note *notes;
    size_t count;
    out[0] = '\0';
    assert_true(td_publish_each_ref(&place->repo, add_ref, out));
    td_arena_init(&arena, 0);
    assert_true(td_publish_list_commits(&place->repo, &arena, &notes, &count, NULL));
    for (size_t i = 0; i < count; i++)
        (void)snprintf(out + strlen(out), TEXT_BYTES - strlen(out), "%s %s %s: %s\n", notes[i].commit, notes[i].parent,
                       notes[i].message, files_of(place, notes[i].commit));
    free(notes);
    td_arena_fini(&arena);
}

static bool count_item(void *context, const FTSENT *item)
{
    size_t *count = context;
    (void)item;
    (*count)++;
    return true;
}

/* Returns whether there is nothing in a directory, not even an empty one. */
static bool is_empty(const struct publish_place *place, const char *name)
{
    char path[TREE_PATH_BYTES];
    size_t count = 0;
    tree_at(&place->tree, name, path);
    assert_true(td_disk_tree_visit(path, count_item, &count));
    return count == 2; /* the directory itself, before and after its items */
}

/* Commits with one call that fails, for each call in turn, in a repository that has `first` (NULL: that is new). */
static void fail_each(enum call call, int sys, const char *first, bool may_succeed)
{
    const struct ask second = {.files = "a=1 b=4 d/e/x=5", .revision = "rel/v1", .keep = true, .from = "main"};
    const struct ask only = {.files = "a=1 b=4 d/e/x=5"};
    const struct ask *ask = first == NULL ? &only : &second;
    size_t failed = 0;
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        struct publish_place place = {.err = TD_ERROR_INIT};
        char before[TEXT_BYTES];
        char after[TEXT_BYTES];
        arm(call, 0, 0);
        publish_place_open(&place);
        if (first != NULL)
            commit_is(&place, &(struct ask){.files = first}, TD_COMMIT_MOVED);
        read_all(&place, before);
        arm(call, nth, sys);
        bool ok = commit_as(&place, ask);
        has_failed = disk.has_failed;
        arm(call, 0, 0);
        CHECK(ok || has_failed, "%zu: %s", nth, place.err.message);
        CHECK(!ok || !has_failed || may_succeed, "call %d, %zu: a failure does not count", (int)call, nth);
        if (!ok) {
            failed++;
            CHECK(place.err.code == TD_IO || place.err.code == TD_RESOURCE_EXHAUSTED, "%s", place.err.message);
            CHECK(place.err.sys == sys, "%s", place.err.message);
            read_all(&place, after);
            assert_string_equal(after, before);
            reopen(&place);
            read_all(&place, after);
            assert_string_equal(after, before);
            commit_is(&place, ask, TD_COMMIT_MOVED);
        }
        assert_string_equal(files_at(&place, first == NULL ? "main" : "rel/v1"),
                            first == NULL ? "a=1 b=4 d/e/x=5" : "a=1 b=4 c=3 d/e/x=5 d/y=2");
        assert_true(is_empty(&place, ".tensord-publish/incoming") && is_empty(&place, ".tensord-publish/trash"));
        publish_place_close(&place);
    }
    CHECK(failed > 0 || may_succeed, "call %d was never made", (int)call);
}

static void a_commit_that_fails_changes_nothing_and_can_be_repeated(void **state)
{
    static const char first[] = "a=1 b=2 c=3 d/y=2";
    (void)state;
    fail_each(RENAME, EIO, first, false);
    fail_each(SYNC, EIO, first, false);
    fail_each(SYMLINK, ENOSPC, first, false);
    fail_each(LINK, EIO, first, true); /* the last is of the old revision's file, which can be copied */
}

/* Uploads leave the names of blobs to the commit that needs them, also to one that moves no revision. */
static void a_commit_first_makes_the_names_of_blobs_durable(void **state)
{
    static const enum td_commit_verdict verdicts[] = {TD_COMMIT_MOVED, TD_COMMIT_UNCHANGED};
    struct publish_place *place = *state;
    struct stat blobs;
    for (size_t i = 0; i < COUNT_OF(verdicts); i++) {
        arm(SYNC, 0, 0);
        commit_is(place, &(struct ask){.files = "a=1 b=2"}, verdicts[i]);
        assert_int_equal(fstatat(place->repo.fd, "blobs", &blobs, 0), 0);
        assert_int_equal(disk.first_synced, blobs.st_ino);
    }
}

static void a_first_commit_that_fails_shows_nothing(void **state)
{
    (void)state;
    fail_each(RENAME, EIO, NULL, false);
    fail_each(SYNC, ENOSPC, NULL, false);
    fail_each(SYMLINK, EDQUOT, NULL, false);
}

/* Where a hard link cannot be made, a new link takes its place, with the time of the old one. */
static void links_that_cannot_be_hard_links_are_written(void **state)
{
    static const int reasons[] = {EMLINK, EPERM, EXDEV, EOPNOTSUPP};
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    for (size_t i = 0; i < COUNT_OF(reasons); i++) {
        struct publish_place *place = *state;
        char content[32];
        char link[128];
        struct stat old;
        struct stat st;
        (void)snprintf(content, sizeof content, "a=1 b=%zu", 2 * i);
        commit_is(place, &(struct ask){.files = content}, TD_COMMIT_MOVED);
        (void)snprintf(link, sizeof link, "snapshots/%s/a", place->result.commit);
        assert_int_equal(utimensat(place->repo.fd, link, times, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(fstatat(place->repo.fd, link, &old, AT_SYMLINK_NOFOLLOW), 0);
        arm(LINK, 1, reasons[i]);
        (void)snprintf(content, sizeof content, "b=%zu", 2 * i + 1);
        commit_is(place, &(struct ask){.files = content, .keep = true}, TD_COMMIT_MOVED);
        assert_true(disk.has_failed);
        arm(LINK, 0, 0);
        (void)snprintf(link, sizeof link, "snapshots/%s/a", place->result.commit);
        assert_int_equal(fstatat(place->repo.fd, link, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_not_equal(st.st_ino, old.st_ino);
        assert_int_equal(st.st_mtim.tv_sec, 1000000000);
    }
}

/* The same for revisions that are set. */
static void a_revision_that_cannot_be_set_stays(void **state)
{
    struct publish_place *place = *state;
    char first[TD_COMMIT_BYTES];
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    commit_is(place, &(struct ask){.files = "a=2"}, TD_COMMIT_MOVED);
    size_t failed = 0;
    for (size_t nth = 1;; nth++) {
        arm(SYNC, nth, EIO);
        bool ok = td_publish_set_ref(&place->repo, "main", first, true, NULL);
        if (ok)
            break;
        failed++;
        assert_string_equal(files_at(place, "main"), "a=2");
    }
    assert_int_equal(failed, 2); /* the file, its directory */
    assert_string_equal(files_at(place, "main"), "a=1");
    arm(RENAME, 1, EIO);
    assert_false(td_publish_set_ref(&place->repo, "v1", "main", false, NULL));
    arm(RENAME, 0, 0);
    assert_string_equal(files_at(place, "v1"), "none");
    assert_true(td_publish_set_ref(&place->repo, "v1", "main", false, NULL));
}

/* A history that cannot be forgotten stays as it was. */
static void a_squash_that_fails_changes_nothing(void **state)
{
    struct publish_place *place = *state;
    char before[TEXT_BYTES];
    char after[TEXT_BYTES];
    commit_is(place, &(struct ask){.files = "a=1", .message = "one"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=2", .message = "two"}, TD_COMMIT_MOVED);
    read_all(place, before);
    for (enum call call = RENAME; call <= SYNC; call++) {
        bool ok = false;
        for (size_t nth = 1; !ok; nth++) {
            arm(call, nth, EIO);
            ok = td_publish_squash(&place->repo, "main", "all", "ci", NULL);
            bool has_failed = disk.has_failed;
            arm(call, 0, 0);
            assert_int_equal(ok, !has_failed);
            read_all(place, after);
            CHECK(ok || strcmp(after, before) == 0, "call %d, %zu: %s, was %s", (int)call, nth, after, before);
        }
        memcpy(before, after, sizeof before);
    }
}

/* A repository is removed, or moved, durably or not at all. */
static void a_removal_or_a_move_that_fails_changes_nothing(void **state)
{
    struct publish_place *place = *state;
    struct td_publish_name other;
    char trash[TD_OWN_NAME_BYTES] = "";
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_publish_name("org/other", false, &other, NULL));
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    arm(SYNC, 1, EIO);
    assert_false(td_publish_repo_move(&place->repo, &other, &err));
    assert_int_equal(err.code, TD_IO);
    assert_string_equal(files_at(place, "main"), "a=1");
    arm(SYNC, 1, ENOSPC);
    td_error_init(&err);
    assert_false(td_publish_repo_remove(&place->repo, trash, &err));
    assert_int_equal(err.sys, ENOSPC);
    assert_string_equal(trash, "");
    arm(SYNC, 0, 0);
    reopen(place);
    assert_string_equal(files_at(place, "main"), "a=1");
    assert_true(td_publish_repo_remove(&place->repo, trash, NULL));
    td_own_folder_remove(&place->disk.own, trash);
    assert_string_equal(files_at(place, "main"), "none");
}

/* Without memory, too: also for a commit whose snapshot and note are there, which must not count as damaged. */
static void a_commit_without_memory_changes_nothing(void **state)
{
    struct publish_place *place = *state;
    struct td_commit_file file = {.path = "d/a"};
    const struct td_commit_order order = {
        .revision = "main", .keep = true, .files = &file, .file_count = 1, .message = "m"};
    char first[TEXT_BYTES];
    char now[TEXT_BYTES];
    commit_is(place, &(struct ask){.files = "d/a=2 b=1"}, TD_COMMIT_MOVED); /* the commit that is tried exists */
    commit_is(place, &(struct ask){.files = "d/a=1 b=1"}, TD_COMMIT_MOVED);
    td_commit_result_fini(&place->result);
    td_sha256("2", 1, file.sha256);
    for (size_t round = 0; round < 2; round++) {
        size_t k = 0;
        bool has_failed = true;
        read_all(place, first);
        while (has_failed) {
            struct td_commit_result result;
            struct td_error err = TD_ERROR_INIT;
            alloc_count_start();
            alloc_fail_at(++k);
            bool ok = td_publish_commit(&place->repo, &order, &result, &err);
            td_commit_result_fini(&result);
            alloc_fail_at(0);
            has_failed = alloc_count_get().calls >= k;
            CHECK(ok != has_failed, "allocation %zu: %s", k, err.message);
            assert_int_equal(alloc_count_get().live_bytes, 0);
            if (ok)
                continue;
            assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
            read_all(place, now);
            assert_string_equal(now, first);
        }
        assert_true(k > 10);
        assert_string_equal(files_at(place, "main"), round == 0 ? "b=1 d/a=2" : "b=1 d/a=3");
        put_blob(place, "3");
        td_sha256("3", 1, file.sha256); /* and a commit that is new */
    }
}

/* ---- a process that is killed ---------------------------------------------------------------------------- */

/* The files of a commit by its number: content and names depend on the number. */
static void files_by_number(size_t number, char out[TEXT_BYTES])
{
    out[0] = '\0';
    for (size_t i = 0; i < 20; i++)
        if ((number + i) % 7 != 0)
            (void)snprintf(out + strlen(out), TEXT_BYTES - strlen(out), "%sd%zu/f%02zu=%zu", out[0] == '\0' ? "" : " ",
                           i / 5, i, i % 3 == 0 ? number : i);
}

enum { LISTS = 5, KILLS = SANITIZED ? 40 : 200 };

/* Commits one list after the other until it is killed. */
static void commit_for_ever(struct publish_place *place, size_t number)
{
    for (;; number++) {
        char files[TEXT_BYTES];
        files_by_number(number % LISTS, files);
        if (!commit_as(place, &(struct ask){.files = files})) {
            print_error("the child cannot commit: %s\n", place->err.message);
            _exit(1);
        }
    }
}

/* Starts a child that commits, and kills it after a random time of at most so many microseconds. */
static void run_and_kill(struct publish_place *place, size_t number, size_t most_us, uint64_t *seed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!td_publish_disk_open(&place->disk, place->tree.path, NULL) ||
            !td_publish_repo_open(&place->disk, &place->name, true, &place->repo, NULL))
            _exit(2);
        commit_for_ever(place, number);
    }
    const struct timespec wait = {.tv_nsec = (long)(1 + random_below(seed, most_us)) * 1000};
    (void)nanosleep(&wait, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status), "the child ended by itself: %d", status);
}

/* Returns the number of the list that main has; LISTS without a commit. */
static size_t list_of_main(const struct publish_place *place)
{
    const char *found = files_at(place, "main");
    for (size_t list = 0; list < LISTS; list++) {
        char files[TEXT_BYTES];
        files_by_number(list, files);
        if (strcmp(files, found) == 0)
            return list;
    }
    CHECK(strcmp(found, "none") == 0, "no commit of ours: %s", found);
    return LISTS;
}

static void remove_repo(struct publish_place *place)
{
    char trash[TD_OWN_NAME_BYTES] = "";
    open_disk(place);
    open_repo(place, true);
    assert_true(td_publish_repo_remove(&place->repo, trash, NULL));
    td_publish_repo_close(&place->repo);
    td_publish_disk_close(&place->disk);
}

static void a_killed_process_leaves_one_commit_whole(void **state)
{
    struct publish_place *place = *state;
    uint64_t seed = (uint64_t)time(NULL) | 1;
    size_t seen[LISTS + 1] = {0};
    bool had_commit = false;
    arm(SYNC, 0, 0);
    print_message("seed %llu\n", (unsigned long long)seed);
    td_publish_repo_close(&place->repo);
    td_publish_disk_close(&place->disk);
    for (size_t i = 0; i < KILLS; i++) {
        bool is_first = i % 4 == 0; /* the repository's first commit may be the one that is killed */
        if (is_first)
            remove_repo(place);
        run_and_kill(place, i, is_first ? 6000 : 20000, &seed);
        open_disk(place);
        open_repo(place, true);
        size_t list = list_of_main(place);
        CHECK(list < LISTS || is_first || !had_commit, "kill %zu: main is lost", i);
        CHECK(place->repo.is_new == (list == LISTS), "kill %zu: visible without a commit", i);
        had_commit = list < LISTS;
        seen[list]++;
        assert_true(is_empty(place, ".tensord-publish/incoming") && is_empty(place, ".tensord-publish/trash"));
        td_publish_repo_close(&place->repo);
        td_publish_disk_close(&place->disk);
    }
    print_message("found: %zu %zu %zu %zu %zu, no commit %zu\n", seen[0], seen[1], seen[2], seen[3], seen[4],
                  seen[LISTS]);
    open_disk(place);
    open_repo(place, true);
    commit_is(place, &(struct ask){.files = "last=1"}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "last=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_that_fails_changes_nothing_and_can_be_repeated),
        cmocka_unit_test(a_first_commit_that_fails_shows_nothing),
        TEST_IN(publish, a_commit_first_makes_the_names_of_blobs_durable),
        TEST_IN(publish, links_that_cannot_be_hard_links_are_written),
        TEST_IN(publish, a_revision_that_cannot_be_set_stays),
        TEST_IN(publish, a_squash_that_fails_changes_nothing),
        TEST_IN(publish, a_removal_or_a_move_that_fails_changes_nothing),
        TEST_IN(publish, a_commit_without_memory_changes_nothing),
        TEST_IN(publish, a_killed_process_leaves_one_commit_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
