/* Logs of digests: their entries, and what holds of every log (log_scenes.h). */
#include "core/log.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/catalog/digest_log_place.h"
#include "tests/unit/catalog/log_scenes.h"

/* ---- entries ------------------------------------------------------------------------------------------- */

static void a_table_needs_no_directory(void **state)
{
    (void)state;
    struct td_digest_log *log;
    disarm();
    assert_true(td_digest_log_open(NULL, "/", TD_RECORD_LOG_WRITE, &log, NULL));
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

static void a_log_that_is_only_read(void **state)
{
    struct place *place = *state;
    struct stat st;
    fill(place, 100);
    assert_int_equal(stat(place->state, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_READ);
    assert_false(td_digest_log_is_stored(log));
    add(log, 100); /* kept in memory, not written */
    knows_the_first(log, 101, 110);
    td_digest_log_close(log);
    log = open_log(place, TD_RECORD_LOG_READ);
    knows_the_first(log, 100, 110);
    td_digest_log_close(log);
}

static void the_last_digest_of_an_identity_counts(void **state)
{
    struct place *place = *state;
    uint8_t sum[TD_SHA256_BYTES] = {1};
    struct td_file_id id = id_of(1);
    fill(place, 3);
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    td_digest_log_add(log, &id, sum);
    td_digest_log_close(log);
    log = open_log(place, TD_RECORD_LOG_WRITE);
    uint8_t found[TD_SHA256_BYTES];
    assert_true(td_digest_log_find(log, &id, found));
    assert_memory_equal(found, sum, sizeof sum);
    assert_int_equal(td_digest_log_count(log), 3);
    td_digest_log_close(log);
}

/* ---- what holds of every log ---------------------------------------------------------------------------- */

static void *log_open(const char *state_dir, struct td_error *err)
{
    struct td_digest_log *log = NULL;
    return td_digest_log_open(state_dir, NULL, TD_RECORD_LOG_WRITE, &log, err) ? log : NULL;
}

static void log_close(void *log)
{
    td_digest_log_close(log);
}

static void log_flush(void *log)
{
    td_digest_log_flush(log);
}

static void log_add(void *log, uint64_t i)
{
    add(log, i);
}

static void log_check(void *log, size_t known, size_t count)
{
    knows_the_first(log, known, count);
}

static uint8_t *write_payload(uint8_t *at, uint64_t i)
{
    struct td_file_id id = id_of(i);
    put(&at, id.device, 8);
    put(&at, id.inode, 8);
    put(&at, id.size_bytes, 8);
    put(&at, (uint64_t)id.mtime_ns, 8);
    put(&at, (uint64_t)id.ctime_ns, 8);
    sum_of(i, at);
    return at + TD_SHA256_BYTES;
}

static struct scene_log scene = {.name = "digests",
                                 .magic = "tdigests",
                                 .payload_bytes = RECORD_BYTES - 16,
                                 .open = log_open,
                                 .close = log_close,
                                 .flush = log_flush,
                                 .add = log_add,
                                 .check = log_check,
                                 .write_payload = write_payload};

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Opens the log, adds entries past a growth of the table, compacts. Returns false when the log could not be opened. */
static bool exercise(const struct place *place, size_t *known)
{
    struct td_digest_log *log;
    struct td_error err = TD_ERROR_INIT;
    struct keeper keeper = {.below = 20};
    if (!td_digest_log_open(place->state, NULL, TD_RECORD_LOG_WRITE, &log, &err)) {
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
    struct place *place = *state;
    size_t known = 0;
    fill(place, 900); /* the table grows while the log is read */
    uint8_t bytes[128 * 1024];
    size_t len = read_file(place->file, bytes, sizeof bytes);
    alloc_count_start();
    assert_true(exercise(place, &known));
    assert_int_equal(known, 1200);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    size_t calls = alloc_count_get().calls;
    assert_true(calls >= 4);
    for (size_t k = 1; k <= calls; k++) {
        tree_write(&place->tree, "state/digests", bytes, len);
        assert_int_equal(chmod(place->file, 0600), 0);
        alloc_count_start();
        alloc_fail_at(k);
        if (exercise(place, &known))
            assert_true(known >= 900);
        alloc_fail_at(0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
}

static void the_table_is_bounded(void **state)
{
    (void)state;
    struct td_digest_log *log;
    uint8_t sum[TD_SHA256_BYTES] = {1};
    disarm();
    assert_true(td_digest_log_open(NULL, NULL, TD_RECORD_LOG_READ, &log, NULL));
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
        TEST_IN(place, a_log_that_is_only_read),
        TEST_IN(place, the_last_digest_of_an_identity_counts),
        TEST_IN(place, every_allocation_may_fail),
        cmocka_unit_test(the_table_is_bounded),
        LOG_SCENES(&scene),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
