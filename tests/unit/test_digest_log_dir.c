/* In which directories a log of digests may lie, and who may write to it. */
#include "core/log.h"
#include "tests/unit/digest_log_place.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void refused(const char *state, const char *root, enum td_code code, const char *says)
{
    struct td_digest_log *log = NULL;
    struct td_error err;
    td_error_init(&err);
    CHECK(!td_digest_log_open(state, root, TD_DIGEST_LOG_WRITE, &log, &err), "%s is accepted", state);
    CHECK(err.code == code, "%d: %s", err.code, err.message);
    check_says(&err, says, state);
    check_says(&err, "--state-dir", state);
}

static void a_directory_that_others_can_write_to_is_refused(void **state)
{
    (void)state;
    static const mode_t bad[] = {0777, 0770, 0720, 0702, 01777};
    static const mode_t good[] = {0700, 0755, 0750};
    struct place place;
    place_open(&place);
    fill(&place, 2);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(chmod(place.state, bad[i]), 0);
        refused(place.state, NULL, TD_PERMISSION_DENIED, "writable by nobody else");
    }
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(chmod(place.state, good[i]), 0);
        td_digest_log_close(open_log(&place, TD_DIGEST_LOG_WRITE));
    }
    if (geteuid() == 0)
        assert_int_equal(chown(place.state, 1, 0), 0);
    refused(geteuid() == 0 ? place.state : "/", NULL, TD_PERMISSION_DENIED, "must belong to the user");
    tree_close(&place.tree);
}

static void a_log_that_others_can_write_to_is_refused(void **state)
{
    (void)state;
    struct place place;
    struct td_digest_log *log;
    struct td_error err;
    place_open(&place);
    fill(&place, 2);
    assert_int_equal(chmod(place.file, 0620), 0);
    refused(place.state, NULL, TD_PERMISSION_DENIED, "nobody else can write; remove it");
    td_error_init(&err);
    assert_false(td_digest_log_open(place.state, NULL, TD_DIGEST_LOG_READ, &log, &err));
    assert_int_equal(chmod(place.file, 0644), 0);
    td_digest_log_close(open_log(&place, TD_DIGEST_LOG_READ));
    if (geteuid() == 0) {
        assert_int_equal(chown(place.file, 1, 0), 0);
        refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file that belongs to the user");
    }
    tree_close(&place.tree);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    tree_directory(&place.tree, "state/digests");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    tree_fifo(&place.tree, "state/digests");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    tree_text(&place.tree, "elsewhere", "precious");
    tree_symlink(&place.tree, "state/digests", "../elsewhere");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    tree_symlink(&place.tree, "state/digests", "/dev/full");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(strlen(place.file) < sizeof address.sun_path);
    memcpy(address.sun_path, place.file, strlen(place.file));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    (void)close(fd);
    tree_remove(&place.tree, "state");
    tree_text(&place.tree, "state", "no directory");
    refused(place.state, NULL, TD_IO, "cannot open");
    tree_remove(&place.tree, "state");
    tree_at(&place.tree, "missing/state", place.state);
    refused(place.state, NULL, TD_IO, "cannot create");
    tree_close(&place.tree);
}

/* An odd lock keeps nobody from reading. */
static void a_lock_that_cannot_be_had(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 2);
    tree_remove(&place.tree, "state/lock");
    tree_directory(&place.tree, "state/lock");
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 2, 3);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

static void a_directory_in_the_root_is_refused(void **state)
{
    (void)state;
    static const char *const inside[] = {"root", "root/state",  "root/a/b",      "link/state",
                                         "to_a", "to_a/b/../b", "root/../root/a"};
    static const char *const outside[] = {"rootx", "state", "root/out", "."};
    struct place place;
    char root[TREE_PATH_BYTES];
    char path[TREE_PATH_BYTES];
    place_open(&place);
    tree_directory(&place.tree, "root/a/b");
    tree_symlink(&place.tree, "link", "root");
    tree_symlink(&place.tree, "to_a", "root/a");
    tree_symlink(&place.tree, "root/out", "../other");
    tree_directory(&place.tree, "other");
    for (size_t k = 0; k < 2; k++) {
        tree_at(&place.tree, k == 0 ? "root" : "link", root);
        for (size_t i = 0; i < COUNT_OF(inside); i++) {
            tree_at(&place.tree, inside[i], path);
            refused(path, root, TD_FAILED_PRECONDITION, "lies in the served directory");
        }
        tree_at(&place.tree, "root/state", path);
        assert_int_equal(access(path, F_OK), -1); /* nothing is left in there */
        for (size_t i = 0; i < COUNT_OF(outside); i++) {
            struct td_digest_log *log;
            struct td_error err;
            tree_at(&place.tree, outside[i], path);
            td_error_init(&err);
            CHECK(td_digest_log_open(path, root, TD_DIGEST_LOG_WRITE, &log, &err), "%s", err.message);
            td_digest_log_close(log);
        }
    }
    tree_at(&place.tree, "state", path);
    refused(path, "/", TD_FAILED_PRECONDITION, "lies in the served directory");
    tree_at(&place.tree, "no root", root);
    refused(path, root, TD_IO, "cannot look at");
    tree_close(&place.tree);
}

static void a_second_one_only_reads(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 3);
    struct td_digest_log *first = open_log(&place, TD_DIGEST_LOG_WRITE);
    struct td_digest_log *second = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(first));
    assert_false(td_digest_log_is_stored(second));
    knows_the_first(second, 3, 5);
    add(second, 4);
    td_digest_log_flush(second);
    add(first, 3);
    td_digest_log_flush(first);
    struct td_digest_log *reader = open_log(&place, TD_DIGEST_LOG_READ); /* beside them */
    knows_the_first(reader, 4, 5);
    td_digest_log_close(reader);
    td_digest_log_close(second);
    td_digest_log_close(first);
    first = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(first));
    knows_the_first(first, 4, 5);
    td_digest_log_close(first);
    tree_close(&place.tree);
}

static void reading_makes_nothing(void **state)
{
    (void)state;
    struct place place;
    struct td_digest_log *log;
    struct td_error err;
    place_open(&place);
    td_error_init(&err);
    assert_false(td_digest_log_open(place.state, NULL, TD_DIGEST_LOG_READ, &log, &err));
    assert_int_equal(access(place.state, F_OK), -1);
    tree_directory(&place.tree, "state");
    log = open_log(&place, TD_DIGEST_LOG_READ);
    assert_int_equal(td_digest_log_count(log), 0);
    td_digest_log_close(log);
    assert_int_equal(access(place.file, F_OK), -1);
    tree_close(&place.tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_others_can_write_to_is_refused),
        cmocka_unit_test(a_log_that_others_can_write_to_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(a_lock_that_cannot_be_had),
        cmocka_unit_test(a_directory_in_the_root_is_refused),
        cmocka_unit_test(a_second_one_only_reads),
        cmocka_unit_test(reading_makes_nothing),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
