/* Logs of digests: their entries, their file format, and the effects of damage. */
#include "core/log.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/catalog/digest_log_place.h"

#include <zlib.h>

/* ---- entries ------------------------------------------------------------------------------------------- */

static void a_table_needs_no_directory(void **state)
{
    (void)state;
    struct td_digest_log *log;
    disarm();
    assert_true(td_digest_log_open(NULL, "/", TD_DIGEST_LOG_WRITE, &log, NULL));
    assert_false(td_digest_log_is_stored(log));
    assert_false(has(log, 0));
    for (size_t i = 0; i < 3000; i++)
        add(log, i);
    knows_the_first(log, 3000, 3010);
    td_digest_log_flush(log);
    assert_int_equal(write_fault.calls, 0);
    td_digest_log_close(log);
    td_digest_log_close(NULL);
}

static void what_was_added_is_known_after_a_restart(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 1000);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + 1000 * RECORD_BYTES);
    struct stat st;
    assert_int_equal(stat(place.state, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(place.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(log));
    knows_the_first(log, 1000, 1100);
    add(log, 5); /* already in the log */
    td_digest_log_flush(log);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + 1000 * RECORD_BYTES);
    add(log, 1000);
    td_digest_log_close(log);
    log = open_log(&place, TD_DIGEST_LOG_READ);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 1001, 1100);
    add(log, 1001); /* kept in memory, not written */
    knows_the_first(log, 1002, 1100);
    td_digest_log_close(log);
    log = open_log(&place, TD_DIGEST_LOG_READ);
    knows_the_first(log, 1001, 1100);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

static void the_last_digest_of_an_identity_counts(void **state)
{
    (void)state;
    struct place place;
    uint8_t sum[TD_SHA256_BYTES] = {1};
    struct td_file_id id = id_of(1);
    place_open(&place);
    fill(&place, 3);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    td_digest_log_add(log, &id, sum);
    td_digest_log_close(log);
    log = open_log(&place, TD_DIGEST_LOG_WRITE);
    uint8_t found[TD_SHA256_BYTES];
    assert_true(td_digest_log_find(log, &id, found));
    assert_memory_equal(found, sum, sizeof sum);
    assert_int_equal(td_digest_log_count(log), 3);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

/* A full batch is written without a flush. */
static void batches_are_written_by_themselves(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    for (size_t i = 0; i < TD_DIGEST_LOG_BATCH; i++) {
        assert_int_equal(file_bytes(place.file), HEADER_BYTES);
        add(log, i);
    }
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + TD_DIGEST_LOG_BATCH * RECORD_BYTES);
    assert_int_equal(fdatasync_fault.calls, 1);
    add(log, TD_DIGEST_LOG_BATCH);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + TD_DIGEST_LOG_BATCH * RECORD_BYTES);
    td_digest_log_flush(log);
    td_digest_log_flush(log);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + (TD_DIGEST_LOG_BATCH + 1) * RECORD_BYTES);
    assert_int_equal(fdatasync_fault.calls, 2);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

static void put(uint8_t **at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * i);
}

/* Writes a file as digest_log.h describes it, independently of the program. */
static size_t by_hand(uint8_t *bytes, size_t count)
{
    uint8_t *at = bytes;
    memcpy(at, "tdigests", 8);
    at += 8;
    put(&at, 1, 4);
    put(&at, 0x01020304, 4);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = at;
        struct td_file_id id = id_of(i);
        put(&at, RECORD_BYTES, 4);
        put(&at, 1, 4);
        put(&at, id.device, 8);
        put(&at, id.inode, 8);
        put(&at, id.size_bytes, 8);
        put(&at, (uint64_t)id.mtime_ns, 8);
        put(&at, (uint64_t)id.ctime_ns, 8);
        sum_of(i, at);
        at += TD_SHA256_BYTES;
        put(&at, crc32(0, record, (uInt)(at - record)), 4);
        put(&at, 0, 4);
    }
    return (size_t)(at - bytes);
}

static void the_file_is_as_described(void **state)
{
    (void)state;
    struct place place;
    uint8_t wanted[1024];
    uint8_t written[1024];
    place_open(&place);
    fill(&place, 5);
    size_t len = by_hand(wanted, 5);
    assert_int_equal(read_file(place.file, written, sizeof written), len);
    assert_memory_equal(written, wanted, len);
    tree_close(&place.tree);
}

/* ---- damage -------------------------------------------------------------------------------------------- */

static void every_prefix_is_used_as_far_as_it_goes(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct place place;
    uint8_t bytes[1024];
    place_open(&place);
    tree_directory(&place.tree, "state");
    size_t len = by_hand(bytes, COUNT);
    for (size_t n = 0; n <= len; n++) {
        tree_write(&place.tree, "state/digests", bytes, n);
        check_recovery(&place, n < HEADER_BYTES ? 0 : (n - HEADER_BYTES) / RECORD_BYTES, COUNT + 2);
    }
    tree_close(&place.tree);
}

static void no_changed_byte_is_believed(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    struct place place;
    uint8_t bytes[1024];
    place_open(&place);
    tree_directory(&place.tree, "state");
    size_t len = by_hand(bytes, COUNT);
    for (size_t n = 0; n < len; n++) {
        for (size_t k = 0; k < COUNT_OF(changes); k++) {
            bytes[n] ^= changes[k];
            tree_write(&place.tree, "state/digests", bytes, len);
            check_recovery(&place, n < HEADER_BYTES ? 0 : (n - HEADER_BYTES) / RECORD_BYTES, COUNT + 1);
            bytes[n] ^= changes[k];
        }
    }
    tree_close(&place.tree);
}

static void garbage_is_an_empty_log(void **state)
{
    (void)state;
    static const char zeros[4096];
    static const struct {
        const void *bytes;
        size_t len;
    } cases[] = {{"x", 1}, {zeros, sizeof zeros}, {"tdigests", 8}, {"SQLite format 3", 16}};
    struct place place;
    place_open(&place);
    tree_directory(&place.tree, "state");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tree_write(&place.tree, "state/digests", cases[i].bytes, cases[i].len);
        check_recovery(&place, 0, 3);
    }
    tree_close(&place.tree);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Opens the log, adds entries past a growth of the table, compacts. Returns false when the log could not be opened. */
static bool exercise(const struct place *place, size_t *known)
{
    struct td_digest_log *log;
    struct td_error err = TD_ERROR_INIT;
    struct keeper keeper = {.below = 20};
    if (!td_digest_log_open(place->state, NULL, TD_DIGEST_LOG_WRITE, &log, &err)) {
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        return false;
    }
    for (size_t i = 0; i < 1200; i++)
        add(log, i);
    *known = 0;
    for (size_t i = 0; i < 1200; i++)
        *known += has(log, i) ? 1 : 0;
    td_digest_log_compact(log, is_below, &keeper);
    td_digest_log_close(log);
    return true;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct place place;
    size_t known = 0;
    place_open(&place);
    fill(&place, 900); /* the table grows while the log is read */
    uint8_t bytes[128 * 1024];
    size_t len = read_file(place.file, bytes, sizeof bytes);
    alloc_count_start();
    assert_true(exercise(&place, &known));
    assert_int_equal(known, 1200);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    size_t calls = alloc_count_get().calls;
    assert_true(calls >= 4);
    for (size_t k = 1; k <= calls; k++) {
        tree_write(&place.tree, "state/digests", bytes, len);
        assert_int_equal(chmod(place.file, 0600), 0);
        alloc_count_start();
        alloc_fail_at(k);
        if (exercise(&place, &known))
            assert_true(known >= 900);
        alloc_fail_at(0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    tree_close(&place.tree);
}

static void the_table_is_bounded(void **state)
{
    (void)state;
    struct td_digest_log *log;
    uint8_t sum[TD_SHA256_BYTES] = {1};
    disarm();
    assert_true(td_digest_log_open(NULL, NULL, TD_DIGEST_LOG_READ, &log, NULL));
    alloc_count_start();
    for (uint64_t i = 0; i < TD_DIGEST_LOG_MAX_RECORDS + 10; i++) {
        const struct td_file_id id = {.inode = i};
        td_digest_log_add(log, &id, sum);
    }
    assert_int_equal(td_digest_log_count(log), TD_DIGEST_LOG_MAX_RECORDS);
    assert_true(alloc_count_get().peak_bytes <= UINT64_C(1024) * 1024 * 1024);
    const struct td_file_id last = {.inode = TD_DIGEST_LOG_MAX_RECORDS - 1};
    const struct td_file_id beyond = {.inode = TD_DIGEST_LOG_MAX_RECORDS};
    assert_true(td_digest_log_find(log, &last, sum));
    assert_false(td_digest_log_find(log, &beyond, sum));
    sum[0] = 2; /* a full log still takes corrections */
    td_digest_log_add(log, &last, sum);
    sum[0] = 0;
    assert_true(td_digest_log_find(log, &last, sum) && sum[0] == 2);
    td_digest_log_close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_needs_no_directory),
        cmocka_unit_test(what_was_added_is_known_after_a_restart),
        cmocka_unit_test(the_last_digest_of_an_identity_counts),
        cmocka_unit_test(batches_are_written_by_themselves),
        cmocka_unit_test(the_file_is_as_described),
        cmocka_unit_test(every_prefix_is_used_as_far_as_it_goes),
        cmocka_unit_test(no_changed_byte_is_believed),
        cmocka_unit_test(garbage_is_an_empty_log),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_table_is_bounded),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
