/* Tests which directories may hold a log of digests, and who may write to them. */
#include "core/log.h"
#include "tests/unit/catalog/digest_log_place.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void refused(const char *state, const char *root, enum td_code code, const char *says)
{
    struct td_digest_log *log = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(!td_digest_log_open(state, root, TD_RECORD_LOG_WRITE, &log, &err), "%s is accepted", state);
    CHECK(err.code == code, "%d: %s", err.code, err.message);
    check_says(&err, says, state);
    check_says(&err, "--state-dir", state);
}

/* Writes the path of the server's own sub-directory of the state directory, and of the log in it. */
static void place_own(const struct place *place, char own[TREE_PATH_BYTES], char file[TREE_PATH_BYTES])
{
    char name[64];
    (void)snprintf(name, sizeof name, "state/tensord-%u", (unsigned)geteuid());
    tree_at(&place->tree, name, own);
    (void)snprintf(name, sizeof name, "state/tensord-%u/digests", (unsigned)geteuid());
    tree_at(&place->tree, name, file);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_uid, geteuid());
    return st.st_mode & 07777;
}

/* An emptyDir is 0777, or 2777 or 2775 with an fsGroup; /tmp is 1777. */
/* shows: security.md digest-shared-directory */
static void a_directory_that_others_can_write_to_gets_a_sub_directory(void **state)
{
    (void)state;
    static const mode_t shared[] = {0777, 0770, 0720, 0702, 01777, 02777, 02775};
    for (size_t i = 0; i < COUNT_OF(shared); i++) {
        struct place place;
        char own[TREE_PATH_BYTES];
        char file[TREE_PATH_BYTES];
        place_open(&place);
        place_own(&place, own, file);
        tree_directory(&place.tree, "state");
        assert_int_equal(chmod(place.state, shared[i]), 0);
        fill(&place, 2);
        assert_int_equal(mode_of(own) & 0777, 0700);
        assert_int_equal(file_bytes(file), HEADER_BYTES + 2 * RECORD_BYTES);
        assert_int_equal(access(place.file, F_OK), -1); /* the shared directory has no log */
        for (int mode = TD_RECORD_LOG_WRITE; mode <= TD_RECORD_LOG_READ; mode++) {
            struct td_digest_log *log = open_log(&place, (enum td_record_log_mode)mode);
            knows_the_first(log, 2, 3);
            assert_true(td_digest_log_is_stored(log) == (mode == TD_RECORD_LOG_WRITE));
            td_digest_log_close(log);
        }
        tree_close(&place.tree);
    }
}

/* shows: security.md digest-foreign-directory */
static void a_directory_of_ones_own_is_used_itself(void **state)
{
    static const mode_t good[] = {0700, 0755, 0750};
    struct place *place = *state;
    char own[TREE_PATH_BYTES];
    char file[TREE_PATH_BYTES];
    place_own(place, own, file);
    fill(place, 2);
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(chmod(place->state, good[i]), 0);
        struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
        knows_the_first(log, 2, 3);
        td_digest_log_close(log);
        assert_int_equal(access(own, F_OK), -1);
    }
    if (geteuid() == 0)
        assert_int_equal(chown(place->state, 1, 0), 0);
    refused(geteuid() == 0 ? place->state : "/", NULL, TD_PERMISSION_DENIED, "must belong to the user");
}

/* A user who may write to the directory can take the name first, with any kind of file. */
/* shows: security.md digest-shared-directory */
static void what_others_put_there_is_refused(void **state)
{
    static const char says[] = "somebody else put it there";
    struct place *place = *state;
    struct td_digest_log *log;
    struct td_error err = TD_ERROR_INIT;
    char own[TREE_PATH_BYTES];
    char file[TREE_PATH_BYTES];
    char name[64];
    place_own(place, own, file);
    (void)snprintf(name, sizeof name, "state/tensord-%u", (unsigned)geteuid());
    tree_directory(&place->tree, "state");
    tree_directory(&place->tree, "ours"); /* a link to it must not be followed, though the directory is the server's */
    assert_int_equal(chmod(place->state, 01777), 0);
    assert_false(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_READ, &log, &err));
    check_says(&err, "there is no sub-directory", "reading alone makes nothing");
    assert_int_equal(access(own, F_OK), -1);
    tree_symlink(&place->tree, name, "../ours");
    refused(place->state, NULL, TD_PERMISSION_DENIED, says);
    tree_remove(&place->tree, name);
    tree_symlink(&place->tree, name, "nowhere");
    refused(place->state, NULL, TD_PERMISSION_DENIED, says);
    tree_remove(&place->tree, name);
    tree_text(&place->tree, name, "a file");
    refused(place->state, NULL, TD_PERMISSION_DENIED, says);
    tree_remove(&place->tree, name);
    tree_fifo(&place->tree, name);
    refused(place->state, NULL, TD_PERMISSION_DENIED, says);
    tree_remove(&place->tree, name);
    tree_directory(&place->tree, name);
    assert_int_equal(chmod(own, 0770), 0); /* the server's own, but others can write to it */
    refused(place->state, NULL, TD_PERMISSION_DENIED, says);
    assert_int_equal(chmod(own, 0700), 0);
    fill(place, 1);
    if (geteuid() == 0) { /* a directory and a log of another user */
        assert_int_equal(chown(own, 1, 0), 0);
        refused(place->state, NULL, TD_PERMISSION_DENIED, says);
    }
}

/* Without the sticky bit others can move the sub-directory away and put their own there. A running server continues
 * with its own; the next one refuses theirs and takes no digest from it. */
/* shows: security.md digest-shared-directory */
static void a_sub_directory_that_is_exchanged(void **state)
{
    struct place *place = *state;
    char own[TREE_PATH_BYTES];
    char file[TREE_PATH_BYTES];
    char aside[TREE_PATH_BYTES];
    place_own(place, own, file);
    tree_at(&place->tree, "state/aside", aside);
    tree_directory(&place->tree, "state");
    assert_int_equal(chmod(place->state, 0777), 0);
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    add(log, 0);
    td_digest_log_flush(log);
    assert_int_equal(rename(own, aside), 0);
    assert_int_equal(mkdir(own, 0700), 0);
    add(log, 1);
    td_digest_log_flush(log);
    struct keeper keeper = {.below = 2};
    td_digest_log_compact(log, is_below, &keeper); /* makes a new file in the directory that the log holds open */
    td_digest_log_close(log);
    assert_int_equal(access(file, F_OK), -1);
    tree_at(&place->tree, "state/aside/digests", file);
    assert_int_equal(file_bytes(file), HEADER_BYTES + 2 * RECORD_BYTES);
    if (geteuid() == 0) {
        assert_int_equal(chown(own, 1, 1), 0);
        refused(place->state, NULL, TD_PERMISSION_DENIED, "somebody else put it there");
    }
}

/* Many servers start at once: all use the one directory, and one of them writes. */
/* shows: security.md digest-shared-directory */
static void many_make_it_at_once(void **state)
{
    enum { SERVERS = 16 };
    struct place *place = *state;
    char own[TREE_PATH_BYTES];
    char file[TREE_PATH_BYTES];
    place_own(place, own, file);
    tree_directory(&place->tree, "state");
    assert_int_equal(chmod(place->state, 01777), 0);
    pid_t pids[SERVERS];
    for (size_t i = 0; i < SERVERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            struct td_digest_log *log = NULL;
            struct td_error err = TD_ERROR_INIT;
            bool ok = td_digest_log_open(place->state, NULL, TD_RECORD_LOG_WRITE, &log, &err);
            td_digest_log_close(log);
            _exit(ok ? 0 : 1);
        }
    }
    for (size_t i = 0; i < SERVERS; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(mode_of(own) & 0777, 0700);
}

/* The served directory is the sub-directory itself, or above it. */
/* shows: security.md digest-inside-root */
static void a_sub_directory_in_the_root_is_refused(void **state)
{
    struct place *place = *state;
    char own[TREE_PATH_BYTES];
    char file[TREE_PATH_BYTES];
    place_own(place, own, file);
    tree_directory(&place->tree, "state");
    assert_int_equal(chmod(place->state, 01777), 0);
    refused(place->state, place->state, TD_FAILED_PRECONDITION, "is in the served directory");
    assert_int_equal(access(own, F_OK), -1); /* the refusal leaves nothing behind */
    assert_int_equal(mkdir(own, 0700), 0);
    refused(place->state, own, TD_FAILED_PRECONDITION, "is in the served directory");
}

/* shows: security.md digest-foreign-directory */
static void a_log_that_others_can_write_to_is_refused(void **state)
{
    struct place *place = *state;
    struct td_digest_log *log;
    struct td_error err = TD_ERROR_INIT;
    fill(place, 2);
    assert_int_equal(chmod(place->file, 0620), 0);
    refused(place->state, NULL, TD_PERMISSION_DENIED, "nobody else can write; remove it");
    assert_false(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_READ, &log, &err));
    assert_int_equal(chmod(place->file, 0644), 0);
    td_digest_log_close(open_log(place, TD_RECORD_LOG_READ));
    if (geteuid() == 0) {
        assert_int_equal(chown(place->file, 1, 0), 0);
        refused(place->state, NULL, TD_PERMISSION_DENIED, "must be a file that belongs to the user");
    }
}

/* shows: security.md digest-foreign-directory */
static void what_is_no_file_is_refused(void **state)
{
    struct place *place = *state;
    tree_directory(&place->tree, "state/digests");
    refused(place->state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place->tree, "state/digests");
    tree_fifo(&place->tree, "state/digests");
    refused(place->state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place->tree, "state/digests");
    tree_text(&place->tree, "elsewhere", "precious");
    tree_symlink(&place->tree, "state/digests", "../elsewhere");
    refused(place->state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place->tree, "state/digests");
    tree_symlink(&place->tree, "state/digests", "/dev/full");
    refused(place->state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place->tree, "state/digests");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(strlen(place->file) < sizeof address.sun_path);
    memcpy(address.sun_path, place->file, strlen(place->file));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    refused(place->state, NULL, TD_PERMISSION_DENIED, "must be a file");
    (void)close(fd);
    tree_remove(&place->tree, "state");
    tree_text(&place->tree, "state", "no directory");
    refused(place->state, NULL, TD_IO, "cannot open");
    tree_remove(&place->tree, "state");
    tree_at(&place->tree, "missing/state", place->state);
    refused(place->state, NULL, TD_IO, "cannot create");
}

/* A log whose lock cannot be taken is still read. */
static void a_lock_that_cannot_be_had(void **state)
{
    struct place *place = *state;
    fill(place, 2);
    tree_remove(&place->tree, "state/lock");
    tree_directory(&place->tree, "state/lock");
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 2, 3);
    td_digest_log_close(log);
}

/* shows: security.md digest-inside-root */
static void a_directory_in_the_root_is_refused(void **state)
{
    static const char *const inside[] = {"root", "root/state",  "root/a/b",      "link/state",
                                         "to_a", "to_a/b/../b", "root/../root/a"};
    static const char *const outside[] = {"rootx", "state", "root/out", "."};
    struct place *place = *state;
    char root[TREE_PATH_BYTES];
    char path[TREE_PATH_BYTES];
    tree_directory(&place->tree, "root/a/b");
    tree_symlink(&place->tree, "link", "root");
    tree_symlink(&place->tree, "to_a", "root/a");
    tree_symlink(&place->tree, "root/out", "../other");
    tree_directory(&place->tree, "other");
    for (size_t k = 0; k < 2; k++) {
        tree_at(&place->tree, k == 0 ? "root" : "link", root);
        for (size_t i = 0; i < COUNT_OF(inside); i++) {
            tree_at(&place->tree, inside[i], path);
            refused(path, root, TD_FAILED_PRECONDITION, "is in the served directory");
        }
        tree_at(&place->tree, "root/state", path);
        assert_int_equal(access(path, F_OK), -1); /* the refusal leaves nothing behind */
        for (size_t i = 0; i < COUNT_OF(outside); i++) {
            struct td_digest_log *log;
            struct td_error err = TD_ERROR_INIT;
            tree_at(&place->tree, outside[i], path);
            CHECK(td_digest_log_open(path, root, TD_RECORD_LOG_WRITE, &log, &err), "%s", err.message);
            td_digest_log_close(log);
        }
    }
    tree_at(&place->tree, "state", path);
    refused(path, "/", TD_FAILED_PRECONDITION, "is in the served directory");
    tree_at(&place->tree, "no root", root);
    refused(path, root, TD_IO, "cannot access");
}

static void a_second_one_only_reads(void **state)
{
    struct place *place = *state;
    fill(place, 3);
    struct td_digest_log *first = open_log(place, TD_RECORD_LOG_WRITE);
    struct td_digest_log *second = open_log(place, TD_RECORD_LOG_WRITE);
    assert_true(td_digest_log_is_stored(first));
    assert_false(td_digest_log_is_stored(second));
    knows_the_first(second, 3, 5);
    add(second, 4);
    td_digest_log_flush(second);
    add(first, 3);
    td_digest_log_flush(first);
    struct td_digest_log *reader = open_log(place, TD_RECORD_LOG_READ); /* reads while both are open */
    knows_the_first(reader, 4, 5);
    td_digest_log_close(reader);
    td_digest_log_close(second);
    td_digest_log_close(first);
    first = open_log(place, TD_RECORD_LOG_WRITE);
    assert_true(td_digest_log_is_stored(first));
    knows_the_first(first, 4, 5);
    td_digest_log_close(first);
}

static void reading_makes_nothing(void **state)
{
    struct place *place = *state;
    struct td_digest_log *log;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_READ, &log, &err));
    assert_int_equal(access(place->state, F_OK), -1);
    tree_directory(&place->tree, "state");
    log = open_log(place, TD_RECORD_LOG_READ);
    assert_int_equal(td_digest_log_count(log), 0);
    td_digest_log_close(log);
    assert_int_equal(access(place->file, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_others_can_write_to_gets_a_sub_directory),
        TEST_IN(place, a_directory_of_ones_own_is_used_itself),
        TEST_IN(place, what_others_put_there_is_refused),
        TEST_IN(place, a_sub_directory_that_is_exchanged),
        TEST_IN(place, many_make_it_at_once),
        TEST_IN(place, a_sub_directory_in_the_root_is_refused),
        TEST_IN(place, a_log_that_others_can_write_to_is_refused),
        TEST_IN(place, what_is_no_file_is_refused),
        TEST_IN(place, a_lock_that_cannot_be_had),
        TEST_IN(place, a_directory_in_the_root_is_refused),
        TEST_IN(place, a_second_one_only_reads),
        TEST_IN(place, reading_makes_nothing),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
