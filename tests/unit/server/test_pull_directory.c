/* The owners of staging directories that are used, and the files that are removed from them. The wrapped calls fake the
 * owners, since only root can give a file to another user. */
#include "server/cmd/pull_directory.h"

#include "core/clock.h"
#include "tests/unit/tree_fixture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAGING ".m.tensord-pull"
#define NOTE STAGING "/.tensord-pull-of"

static uid_t staging_owner, above_owner; /* as the wrapped calls report them */
static bool fakes_owners;
static bool is_remote;         /* the file system is one where locks say nothing of other machines */
static uint64_t clock_step_ns; /* by which each reading of the clock advances it */
static uint64_t clock_ns;
/* The tree where another program makes the directory "m" when the clock is first read, which is for a lock. */
static struct tree *taken_tree;
/* The tree where another program makes the directory "m" when somebody asks whether locks work. */
static struct tree *taken_at_lock;

int __real_lstat64(const char *path, struct stat *st);
int __real_stat64(const char *path, struct stat *st);
uint64_t __real_td_clock_ns(void);

int __wrap_lstat64(const char *path, struct stat *st);
int __wrap_lstat64(const char *path, struct stat *st)
{
    int result = __real_lstat64(path, st);
    if (fakes_owners && strstr(path, STAGING) != NULL)
        st->st_uid = staging_owner;
    return result;
}

int __wrap_stat64(const char *path, struct stat *st);
int __wrap_stat64(const char *path, struct stat *st)
{
    int result = __real_stat64(path, st);
    if (fakes_owners)
        st->st_uid = above_owner;
    return result;
}

bool __wrap_td_sees_every_writer(int fd);
bool __wrap_td_sees_every_writer(int fd)
{
    (void)fd;
    if (taken_at_lock != NULL)
        tree_directory(taken_at_lock, "m");
    taken_at_lock = NULL;
    return !is_remote;
}

uint64_t __wrap_td_clock_ns(void);
uint64_t __wrap_td_clock_ns(void)
{
    if (taken_tree != NULL) {
        tree_directory(taken_tree, "m");
        tree_text(taken_tree, "m/other", "x");
        taken_tree = NULL;
    }
    return clock_step_ns == 0 ? __real_td_clock_ns() : (clock_ns += clock_step_ns);
}

/* All files belong that are called "wanted", wherever they are. */
static bool belongs(void *context, const char *path)
{
    const char *slash = strrchr(path, '/');
    (void)context;
    return strcmp(slash == NULL ? path : slash + 1, "wanted") == 0;
}

static const struct tree *emptied_tree; /* what is asked for there goes */

static bool is_gone(void *context, const char *path)
{
    char name[TREE_PATH_BYTES];
    char at[TREE_PATH_BYTES];
    if (belongs(context, path))
        return true;
    (void)snprintf(name, sizeof name, STAGING "/%s", path);
    tree_at(emptied_tree, name, at);
    (void)unlink(at);
    return false;
}

static const struct td_pull_belonging belonging = {.belongs = belongs};

static bool open_at(const struct tree *tree, struct td_pull_directory *out, struct td_error *err)
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, "m", path);
    return td_pull_directory_open(path, "org/m at main", &belonging, out, err);
}

static void must_open(const struct tree *tree, struct td_pull_directory *out)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(open_at(tree, out, &err), "%s", err.message);
}

static bool has(const struct tree *tree, const char *name)
{
    struct stat st;
    char path[TREE_PATH_BYTES];
    tree_at(tree, name, path);
    return __real_lstat64(path, &st) == 0;
}

/* The rule of fs.protected_regular (Documentation/admin-guide/sysctl/fs.rst): in a sticky directory that others may
 * write to, only the user's own, or one of the directory's owner. */
/* shows: security.md pull-staging-owner */
static void another_users_directory_is_refused(void **state)
{
    (void)state;
    const uid_t me = geteuid();
    const uid_t other = me + 1;
    const uid_t third = me + 2;
    const struct {
        mode_t above;
        uid_t above_owner, owner;
        bool is_refused;
    } cases[] = {
        {01777, third, other, true}, {01770, third, other, true},  {01777, me, other, true},
        {01777, third, me, false},   {01777, other, other, false}, {0777, third, other, false},
        {0700, third, other, false}, {01755, third, other, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tree tree;
        struct td_pull_directory directory;
        struct td_error err = TD_ERROR_INIT;
        tree_open(&tree);
        tree_directory(&tree, STAGING);
        assert_int_equal(chmod(tree.path, cases[i].above), 0);
        above_owner = cases[i].above_owner;
        staging_owner = cases[i].owner;
        fakes_owners = true;
        bool ok = open_at(&tree, &directory, &err);
        fakes_owners = false;
        CHECK(ok == !cases[i].is_refused, "case %zu: %s", i, err.message);
        CHECK(ok || err.code == TD_PERMISSION_DENIED, "case %zu: %s", i, err.message);
        CHECK(ok || strstr(err.message, "is of another user") != NULL, "case %zu: %s", i, err.message);
        CHECK(has(&tree, NOTE) == ok, "case %zu", i); /* nothing is written */
        td_pull_directory_close(&directory);
        tree_close(&tree);
    }
}

/* A directory that the pull itself makes is its own, even if the file system reports another owner. */
static void a_new_directory_is_not_refused(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    assert_int_equal(chmod(tree->path, 01777), 0);
    above_owner = geteuid() + 1;
    staging_owner = geteuid() + 2;
    fakes_owners = true;
    bool ok = open_at(tree, &directory, &err);
    fakes_owners = false;
    CHECK(ok, "%s", err.message);
    td_pull_directory_close(&directory);
}

static const char *const kept[] = {"/wanted", "/d/wanted", "/d/.wanted.tensord-part", "/.wanted.tensord-journal"};
static const char *const left[] = {"/old",      "/d/old",      "/.old.tensord-part", "/d/.old.tensord-journal",
                                   "/gone/x/y", "/wanted.txt", "/.wanted",           "/d/..tensord-part"};

static void fill(const struct tree *tree)
{
    char name[100];
    for (size_t i = 0; i < COUNT_OF(kept) + COUNT_OF(left); i++) {
        const char *end = i < COUNT_OF(kept) ? kept[i] : left[i - COUNT_OF(kept)];
        (void)snprintf(name, sizeof name, STAGING "%s", end);
        tree_text(tree, name, "x");
    }
    tree_directory(tree, "outside");
    tree_text(tree, "outside/old", "x");
    tree_symlink(tree, STAGING "/link", "../outside");
    tree_text(tree, NOTE, "org/m at main");
}

static void check_names(const struct tree *tree, bool is_tidy)
{
    char name[100];
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        (void)snprintf(name, sizeof name, STAGING "%s", kept[i]);
        CHECK(has(tree, name), "%s", name);
    }
    for (size_t i = 0; i < COUNT_OF(left); i++) {
        (void)snprintf(name, sizeof name, STAGING "%s", left[i]);
        CHECK(has(tree, name) == !is_tidy, "%s", name);
    }
    assert_true(has(tree, STAGING "/link") == !is_tidy && has(tree, STAGING "/gone") == !is_tidy);
    assert_true(has(tree, "outside/old") && has(tree, NOTE));
}

static void what_does_not_belong_is_removed(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    fill(tree);
    must_open(tree, &directory);
    check_names(tree, true);
    td_pull_directory_close(&directory);
}

/* As when a pull without a lock renames an unfinished file at that moment. */
static void what_goes_by_itself_is_no_error(void **state)
{
    static const struct td_pull_belonging going = {.belongs = is_gone};
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    char path[TREE_PATH_BYTES];
    fill(tree);
    emptied_tree = tree;
    tree_at(tree, "m", path);
    CHECK(td_pull_directory_open(path, "org/m at main", &going, &directory, &err), "%s", err.message);
    check_names(tree, true);
    td_pull_directory_close(&directory);
}

/* The first pull may have listed other files; the second one must not remove them. */
static void nothing_is_removed_while_another_pull_is_there(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory first;
    struct td_pull_directory second;
    struct td_pull_directory third;
    must_open(tree, &first);
    fill(tree);
    must_open(tree, &second);
    check_names(tree, false);
    td_pull_directory_close(&first);
    must_open(tree, &third); /* the second one is there */
    check_names(tree, false);
    td_pull_directory_close(&second);
    td_pull_directory_close(&third);
    must_open(tree, &first);
    check_names(tree, true);
    td_pull_directory_close(&first);
}

/* A running pull may also remove files when the model changes: while it is alone, and has not published the
 * directory. */
static void a_pull_that_is_at_work_is_alone_or_not(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory first;
    struct td_pull_directory second;
    struct td_error err = TD_ERROR_INIT;
    must_open(tree, &first);
    assert_true(td_pull_directory_claim(&first));
    td_pull_directory_share(&first);
    is_remote = true;
    assert_false(td_pull_directory_claim(&first));
    is_remote = false;
    must_open(tree, &second);
    assert_false(td_pull_directory_claim(&first));
    assert_false(td_pull_directory_claim(&second)); /* the first one still shares the lock */
    CHECK(td_pull_directory_publish(&second, &err), "%s", err.message);
    td_pull_directory_close(&second);
    assert_false(td_pull_directory_claim(&first));
    must_open(tree, &second);
    assert_true(second.staging == NULL);
    assert_false(td_pull_directory_claim(&second));
    td_pull_directory_close(&second);
    td_pull_directory_close(&first);
}

/* Linux locks directories of NFS and FUSE for this machine alone, without an error. */
static void nothing_is_removed_where_others_are_not_seen(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    fill(tree);
    is_remote = true;
    must_open(tree, &directory);
    check_names(tree, false);
    is_remote = false;
    td_pull_directory_close(&directory);
}

static void another_content_is_not_removed(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    fill(tree);
    tree_text(tree, NOTE, "org/n at main");
    assert_false(open_at(tree, &directory, &err));
    CHECK(strstr(err.message, "unfinished pull of org/n at main") != NULL, "%s", err.message);
    check_names(tree, false);
    td_pull_directory_close(&directory);
}

/* The files may be a user's own, or of a model that is no longer known. */
static void files_that_no_pull_has_noted_are_left_alone(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    fill(tree);
    tree_text(tree, NOTE, "");       /* as of a pull that was killed, or that found no room, before it wrote it */
    for (size_t i = 0; i < 2; i++) { /* the second time as the first one */
        assert_false(open_at(tree, &directory, &err));
        CHECK(err.code == TD_FAILED_PRECONDITION, "%s", err.message);
        CHECK(strstr(err.message, "holds files that no pull has noted") != NULL, "%s", err.message);
        check_names(tree, false);
        td_pull_directory_close(&directory);
        td_error_init(&err);
    }
}

/* When the name is taken while the directory is opened, the files of another pull, and its note, are not touched. */
static void the_note_of_another_pull_stays(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory first;
    struct td_pull_directory second;
    struct td_error err = TD_ERROR_INIT;
    must_open(tree, &first);
    taken_tree = tree;
    must_open(tree, &second);
    assert_true(taken_tree == NULL && second.staging == NULL);
    assert_true(has(tree, NOTE) && has(tree, "m"));
    td_pull_directory_close(&second);
    assert_false(td_pull_directory_publish(&first, &err)); /* the name is taken */
    assert_true(has(tree, NOTE));
    td_pull_directory_close(&first);
}

/* Every user who may read a file may lock it. */
/* shows: security.md pull-staging-owner */
static void a_lock_that_is_held_for_ever_holds_up_nobody(void **state)
{
    static const char *const locked[] = {STAGING, NOTE};
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    char path[TREE_PATH_BYTES];
    int fds[COUNT_OF(locked)];
    fill(tree);
    for (size_t i = 0; i < COUNT_OF(locked); i++) {
        tree_at(tree, locked[i], path);
        fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(flock(fds[i], LOCK_EX), 0);
    }
    clock_step_ns = TD_NS_PER_S;
    bool ok = open_at(tree, &directory, &err);
    clock_step_ns = 0;
    CHECK(ok, "%s", err.message);
    check_names(tree, false);
    td_pull_directory_close(&directory);
    for (size_t i = 0; i < COUNT_OF(locked); i++)
        (void)close(fds[i]);
}

static const struct tree *swapped_tree; /* whose directory "b" becomes a symlink */

static bool swap(void *context, const char *path)
{
    if (strcmp(path, "a/x") == 0) {
        tree_rename(swapped_tree, STAGING "/b", "gone");
        tree_symlink(swapped_tree, STAGING "/b", "../elsewhere");
    }
    return belongs(context, path);
}

/* Another user who may write into the staging directory replaces a directory that the walk has seen by a symlink. The
 * files at its target stay. */
/* shows: security.md pull-staging-links */
static void nothing_is_removed_elsewhere(void **state)
{
    static const struct td_pull_belonging swapping = {.belongs = swap};
    struct tree *tree = *state;
    struct td_pull_directory directory;
    char path[TREE_PATH_BYTES];
    tree_text(tree, NOTE, "org/m at main");
    tree_text(tree, STAGING "/a/x", "x");
    tree_text(tree, STAGING "/b/y", "y");
    tree_text(tree, "elsewhere/y", "y");
    tree_text(tree, "elsewhere/empty/z", "z");
    swapped_tree = tree;
    tree_at(tree, "m", path);
    (void)td_pull_directory_open(path, "org/m at main", &swapping, &directory, NULL);
    assert_true(has(tree, "gone/y") && !has(tree, STAGING "/a/x"));
    assert_true(has(tree, "elsewhere/y") && has(tree, "elsewhere/empty/z"));
    td_pull_directory_close(&directory);
}

static void expect_mode(const struct tree *tree, const char *name, mode_t mode)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(tree, name, path);
    assert_int_equal(__real_lstat64(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
}

/* A user who may not write into the staging directory cannot open it, and so cannot lock it. The final directory has
 * the mode of any new one. */
/* shows: security.md pull-staging-links */
static void others_cannot_open_the_staging_directory(void **state)
{
    (void)state;
    static const struct {
        mode_t mask, staging, final;
    } cases[] = {{022, 0700, 0755}, {002, 0770, 0775}, {0, 0777, 0777}, {077, 0700, 0700}};
    mode_t before = umask(0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tree tree;
        struct td_pull_directory directory;
        tree_open(&tree);
        (void)umask(cases[i].mask);
        assert_true(open_at(&tree, &directory, NULL));
        expect_mode(&tree, STAGING, cases[i].staging);
        assert_true(td_pull_directory_publish(&directory, NULL));
        expect_mode(&tree, "m", cases[i].final);
        td_pull_directory_close(&directory);
        tree_close(&tree);
    }
    (void)umask(before);
}

/* ---- directories that one process writes alone ---------------------------------------------------------- */

#define ALONE ".m.alone"

static bool open_alone(const struct tree *tree, struct td_pull_directory *out, struct td_error *err)
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, "m", path);
    return td_pull_directory_open_alone(path, ".alone", out, err);
}

static void a_directory_is_written_alone(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_pull_directory second;
    struct td_error err = TD_ERROR_INIT;
    CHECK(open_alone(tree, &directory, &err), "%s", err.message);
    assert_true(has(tree, ALONE) && !has(tree, "m"));
    CHECK(!open_alone(tree, &second, &err) && err.code == TD_CONFLICT, "%s", err.message);
    assert_non_null(strstr(err.message, "another tensord writes"));
    td_pull_directory_discard(&second);
    td_pull_directory_close(&second);
    tree_text(tree, ALONE "/d/x", "x");
    td_error_init(&err);
    CHECK(td_pull_directory_publish(&directory, &err), "%s", err.message);
    assert_true(has(tree, "m/d/x") && !has(tree, ALONE));
    td_pull_directory_discard(&directory);
    td_pull_directory_close(&directory);
    assert_true(has(tree, "m/d/x"));
    assert_true(!open_alone(tree, &directory, &err) && err.code == TD_CONFLICT && !has(tree, ALONE));
    assert_non_null(strstr(err.message, "is there already"));
    td_pull_directory_close(&directory);
}

static void files_of_a_killed_process_are_removed(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    tree_text(tree, ALONE "/d/x", "x");
    tree_text(tree, "outside/y", "x");
    tree_symlink(tree, ALONE "/link", "../outside");
    CHECK(open_alone(tree, &directory, &err), "%s", err.message);
    assert_true(has(tree, ALONE) && !has(tree, ALONE "/d") && !has(tree, ALONE "/link") && has(tree, "outside/y"));
    tree_text(tree, ALONE "/d/z", "x");
    td_pull_directory_discard(&directory);
    td_pull_directory_close(&directory);
    assert_true(!has(tree, ALONE) && !has(tree, "m"));
}

/* There a lock may be known to this machine alone. */
static void nobody_is_disturbed_where_others_are_not_seen(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    is_remote = true;
    bool ok = open_alone(tree, &directory, &err); /* new, and so its own */
    td_pull_directory_discard(&directory);
    td_pull_directory_close(&directory);
    tree_text(tree, ALONE "/x", "x");
    bool again = open_alone(tree, &directory, &err);
    is_remote = false;
    CHECK(ok && !again && err.code == TD_FAILED_PRECONDITION, "%s", err.message);
    td_pull_directory_discard(&directory);
    td_pull_directory_close(&directory);
    assert_true(has(tree, ALONE "/x"));
}

/* Between the look at the name and the new staging directory, another process may give the name to its own. */
static void a_name_that_was_taken_since_is_refused(void **state)
{
    struct tree *tree = *state;
    struct td_pull_directory directory;
    struct td_error err = TD_ERROR_INIT;
    taken_at_lock = tree;
    bool ok = open_alone(tree, &directory, &err);
    CHECK(!ok && err.code == TD_CONFLICT && strstr(err.message, "is there already") != NULL, "%s", err.message);
    td_pull_directory_discard(&directory);
    td_pull_directory_close(&directory);
    assert_true(has(tree, "m") && !has(tree, ALONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_users_directory_is_refused),
        TEST_IN(tree, a_new_directory_is_not_refused),
        TEST_IN(tree, what_does_not_belong_is_removed),
        TEST_IN(tree, what_goes_by_itself_is_no_error),
        TEST_IN(tree, nothing_is_removed_while_another_pull_is_there),
        TEST_IN(tree, a_pull_that_is_at_work_is_alone_or_not),
        TEST_IN(tree, nothing_is_removed_where_others_are_not_seen),
        TEST_IN(tree, another_content_is_not_removed),
        TEST_IN(tree, files_that_no_pull_has_noted_are_left_alone),
        TEST_IN(tree, the_note_of_another_pull_stays),
        TEST_IN(tree, a_lock_that_is_held_for_ever_holds_up_nobody),
        TEST_IN(tree, nothing_is_removed_elsewhere),
        cmocka_unit_test(others_cannot_open_the_staging_directory),
        TEST_IN(tree, a_directory_is_written_alone),
        TEST_IN(tree, files_of_a_killed_process_are_removed),
        TEST_IN(tree, nobody_is_disturbed_where_others_are_not_seen),
        TEST_IN(tree, a_name_that_was_taken_since_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
