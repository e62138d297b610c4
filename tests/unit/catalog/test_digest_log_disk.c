/* A log of digests on a disk that is full, read-only, or fails; and compaction, with a failure at each step. */
#include "core/log.h"
#include "tests/unit/catalog/digest_log_place.h"

#include <errno.h>
#include <unistd.h>

static void a_disk_that_is_full_from_the_start(void **state)
{
    struct place *place = *state;
    arm(&write_fault, 1, ENOSPC); /* the write of the header fails */
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    add(log, 0);
    knows_the_first(log, 1, 2);
    td_digest_log_close(log);
    for (int i = 1; i <= 2; i++) { /* first the lock cannot be opened, then the log */
        disarm();
        arm(&read_only, i, ENOSPC);
        log = open_log(place, TD_RECORD_LOG_WRITE);
        assert_false(td_digest_log_is_stored(log));
        td_digest_log_close(log);
    }
    disarm();
    check_recovery(place, 0, 2);
}

static void a_read_only_disk_is_read(void **state)
{
    struct place *place = *state;
    fill(place, 3);
    arm(&read_only, 1, EROFS);
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 3, 4);
    td_digest_log_close(log);
    disarm();
}

/* ---- compacting ---------------------------------------------------------------------------------------- */

static void compacting_drops_what_is_not_kept(void **state)
{
    struct place *place = *state;
    struct keeper keeper = {.below = 300};
    fill(place, 1000);
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    add(log, 1000); /* waits in memory, and is not kept */
    td_digest_log_compact(log, is_below, &keeper);
    assert_true(td_digest_log_is_stored(log));
    knows_the_first(log, 300, 1010);
    assert_int_equal(file_bytes(place->file), HEADER_BYTES + 300 * RECORD_BYTES);
    struct stat st;
    assert_int_equal(stat(place->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    add(log, 300); /* goes to the new file */
    td_digest_log_close(log);
    assert_int_equal(file_bytes(place->file), HEADER_BYTES + 301 * RECORD_BYTES);
    log = open_log(place, TD_RECORD_LOG_WRITE);
    knows_the_first(log, 301, 1010);
    keeper.below = 0;
    td_digest_log_compact(log, is_below, &keeper);
    td_digest_log_close(log);
    check_recovery(place, 0, 10);
}

static void compacting_a_table_alone(void **state)
{
    (void)state;
    struct td_digest_log *log;
    struct keeper keeper = {.below = 10};
    disarm();
    assert_true(td_digest_log_open(NULL, NULL, TD_RECORD_LOG_READ, &log, NULL));
    for (size_t i = 0; i < 40; i++)
        add(log, i);
    td_digest_log_compact(log, is_below, &keeper);
    knows_the_first(log, 10, 50);
    td_digest_log_close(log);
}

/* Whichever step fails, the file is the old or the new one, the log stops writing, and no other file is left behind. */
/* shows: security.md digest-compaction */
static void compacting_may_fail_anywhere(void **state)
{
    (void)state;
    static const struct {
        struct fault *fault;
        int countdown;
    } cases[] = {{&read_only, 1},   {&write_fault, 1},  {&write_fault, 2},
                 {&fsync_fault, 1}, {&rename_fault, 1}, {&fsync_fault, 2}};
    struct place place;
    struct keeper keeper = {.below = 5};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        place_open(&place);
        fill(&place, 9);
        struct td_digest_log *log = open_log(&place, TD_RECORD_LOG_WRITE);
        arm(cases[i].fault, cases[i].countdown, EIO);
        td_digest_log_compact(log, is_below, &keeper);
        disarm();
        assert_false(td_digest_log_is_stored(log));
        knows_the_first(log, 5, 10);
        td_digest_log_close(log);
        char left[TREE_PATH_BYTES];
        tree_at(&place.tree, "state/digests.new", left);
        assert_int_equal(access(left, F_OK), -1);
        check_recovery(&place, i + 1 == COUNT_OF(cases) ? 5 : 9, 12);
        tree_close(&place.tree);
    }
}

/* A crash in the middle of compacting leaves a half-written new log. */
static void a_half_written_new_log_is_ignored(void **state)
{
    struct place *place = *state;
    struct keeper keeper = {.below = 2};
    fill(place, 4);
    tree_text(&place->tree, "state/digests.new", "tdige");
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    knows_the_first(log, 4, 5);
    td_digest_log_compact(log, is_below, &keeper);
    assert_true(td_digest_log_is_stored(log));
    td_digest_log_close(log);
    check_recovery(place, 2, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_disk_that_is_full_from_the_start), TEST_IN(place, a_read_only_disk_is_read),
        TEST_IN(place, compacting_drops_what_is_not_kept),  cmocka_unit_test(compacting_a_table_alone),
        cmocka_unit_test(compacting_may_fail_anywhere),     TEST_IN(place, a_half_written_new_log_is_ignored),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
