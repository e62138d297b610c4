/* Blobs that an answer says are here: they stay for the commit that comes later, however long ago they arrived. */
#include "catalog/publish/publish_leases.h"

#include "catalog/publish/publish_commit.h"
#include "tests/unit/catalog/expiry_place.h"

/* The blob that arrives first. */
static const char old[] = "old";

static void old_sum(uint8_t sum[TD_SHA256_BYTES])
{
    td_sha256(old, strlen(old), sum);
}

/* Returns whether the blob is here, and asks nobody who would keep it. */
static bool has_old(const struct place *place)
{
    char path[BLOB_PATH_BYTES];
    name_blob(old, path);
    return has(place, true, path);
}

static void tidy_at(struct place *place, int64_t ahead_s)
{
    clock_ahead_s = ahead_s;
    td_publish_tidy_one(place->publish, &place->name);
}

/* ---- what says that a blob is here ---------------------------------------------------------------------- */

static void ask(struct place *place)
{
    struct td_publish_blob blob;
    struct td_error err = TD_ERROR_INIT;
    uint8_t sum[TD_SHA256_BYTES];
    old_sum(sum);
    CHECK(td_publish_find_blob(place->publish, &place->name, sum, &blob, &err), "%s", err.message);
    assert_true(blob.is_complete);
    td_publish_blob_fini(&blob);
}

static void put_again(struct place *place)
{
    const struct td_publish_span span = {.size_bytes = 3, .end = 3};
    struct td_publish_part *part;
    struct td_error err = TD_ERROR_INIT;
    uint8_t sum[TD_SHA256_BYTES];
    old_sum(sum);
    CHECK(td_publish_part_begin(place->publish, &place->name, sum, &span, &part, &err), "%s", err.message);
    assert_null(part);
}

static void post_again(struct place *place)
{
    send_blob(place, old);
}

/* Orders a commit that lacks another blob, so that the answer names that one alone. */
static void order_commit(struct place *place)
{
    struct td_commit_file files[2] = {{.path = "a"}, {.path = "b"}};
    const struct td_commit_order order = {.revision = "main", .files = files, .file_count = 2, .message = ""};
    struct td_publish_repo repo;
    struct td_commit_result result;
    struct td_error err = TD_ERROR_INIT;
    old_sum(files[0].sha256);
    td_sha256("missing", 7, files[1].sha256);
    CHECK(td_publish_repo_open(&place->publish->disk, &place->name, true, &repo, &err), "%s", err.message);
    CHECK(td_publish_commit(&repo, &order, &result, &err), "%s", err.message);
    assert_int_equal(result.verdict, TD_COMMIT_LACKS_BLOBS);
    assert_int_equal(result.missing_count, 1);
    td_commit_result_fini(&result);
    td_publish_repo_close(&repo);
}

static void a_blob_stays_after_an_answer_says_that_it_is_here(void **state)
{
    static void (*const sayings[])(struct place * place) = {ask, put_again, post_again, order_commit};
    struct place *place = *state;
    send_blob(place, old);
    for (size_t i = 0; i < COUNT_OF(sayings); i++) {
        tidy_at(place, DAY - 60);
        CHECK(has_old(place), "%zu", i);
        sayings[i](place);
        tidy_at(place, 2 * DAY - 120);
        CHECK(has_old(place), "%zu: goes before the commit", i);
        tidy_at(place, 2 * DAY);
        CHECK(!has_old(place), "%zu: stays for ever", i);
        clock_ahead_s = 0;
        send_blob(place, old);
    }
}

/* A question to another repository, or for another blob, keeps nothing. */
static void nothing_else_keeps_a_blob(void **state)
{
    struct place *place = *state;
    struct td_publish_name other;
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    send_blob(place, old);
    old_sum(sum);
    assert_true(td_publish_name("org/other", false, &other, NULL));
    tidy_at(place, DAY - 60);
    assert_false(td_publish_find_blob(place->publish, &other, sum, &blob, NULL));
    sum[0] ^= 1;
    assert_false(td_publish_find_blob(place->publish, &place->name, sum, &blob, NULL));
    assert_int_equal(place->publish->disk.leases.count, 0); /* no request for what is not here takes memory */
    tidy_at(place, DAY + 60);
    assert_false(has_old(place));
}

/* The first piece of a blob is here, and stays after an answer says so. */
static void an_unfinished_blob_stays_likewise(void **state)
{
    struct place *place = *state;
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    char name[BLOB_PATH_BYTES], path[TREE_PATH_BYTES];
    send_first_piece(place, sum, name);
    path_in(place, true, name, path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0); /* long ago */
    assert_true(td_publish_find_blob(place->publish, &place->name, sum, &blob, NULL));
    assert_int_equal(blob.missing_count, 1);
    td_publish_blob_fini(&blob);
    td_publish_close_idle(place->publish, NULL, UINT64_MAX);
    td_publish_tidy_one(place->publish, &place->name);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    td_publish_quiet_end(&place->publish->disk.quiet, place->name.folder);
    td_publish_tidy_one(place->publish, &place->name);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- the table ------------------------------------------------------------------------------------------ */

static void number_sum(uint32_t number, uint8_t sum[TD_SHA256_BYTES])
{
    memset(sum, 0, TD_SHA256_BYTES);
    memcpy(sum + 4, &number, sizeof number);
}

static bool is_leased(struct td_publish_leases *leases, const char *folder, const uint8_t *sum, int64_t since_s)
{
    return td_publish_lease_renewed_s(leases, folder, sum) >= since_s;
}

static void many_leases(void **state)
{
    enum { COUNT = 10000 };
    struct td_publish_leases leases;
    uint8_t sum[TD_SHA256_BYTES];
    (void)state;
    td_publish_leases_init(&leases);
    clock_ahead_s = 0;
    int64_t begun_s = td_wall_now().seconds;
    for (uint32_t i = 0; i < COUNT; i++) {
        clock_ahead_s = i % 2 == 0 ? 0 : HOUR;
        number_sum(i, sum);
        assert_true(td_publish_lease(&leases, "models--m", sum));
        assert_true(td_publish_lease(&leases, "models--m", sum));
    }
    assert_int_equal(leases.count, COUNT);
    td_publish_leases_expire(&leases, begun_s + HOUR);
    assert_int_equal(leases.count, COUNT / 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        number_sum(i, sum);
        assert_int_equal(is_leased(&leases, "models--m", sum, begun_s), i % 2 != 0);
        assert_false(is_leased(&leases, "models--n", sum, begun_s));
    }
    td_publish_leases_expire(&leases, begun_s + DAY);
    assert_int_equal(leases.count, 0);
    assert_true(leases.slot_count < 1000);
    td_publish_leases_fini(&leases);
}

/* When there is no room for the lease of one blob, no blob goes. */
static void more_leases_than_fit(void **state)
{
    struct td_publish_leases leases;
    uint8_t sum[TD_SHA256_BYTES];
    (void)state;
    clock_ahead_s = 0;
    int64_t begun_s = td_wall_now().seconds;
    td_publish_leases_init(&leases);
    for (uint32_t i = 0; i <= TD_PUBLISH_LEASES_MOST; i++) {
        number_sum(i, sum);
        assert_true(td_publish_lease(&leases, "models--m", sum));
    }
    assert_int_equal(leases.count, TD_PUBLISH_LEASES_MOST);
    assert_true(is_leased(&leases, "models--m", sum, begun_s));
    number_sum(UINT32_MAX, sum);
    assert_true(is_leased(&leases, "models--m", sum, begun_s));
    assert_false(is_leased(&leases, "models--m", sum, begun_s + DAY));
    td_publish_leases_fini(&leases);
}

static void a_blob_that_is_being_removed_gets_no_lease(void **state)
{
    struct td_publish_leases leases;
    uint8_t sum[TD_SHA256_BYTES], other[TD_SHA256_BYTES];
    int64_t renewed_s;
    (void)state;
    clock_ahead_s = 0;
    int64_t begun_s = td_wall_now().seconds;
    td_publish_leases_init(&leases);
    number_sum(1, sum);
    number_sum(2, other);
    assert_true(td_publish_lease_begin_end(&leases, "models--m", sum, begun_s, &renewed_s));
    assert_false(td_publish_lease(&leases, "models--m", sum));
    assert_true(td_publish_lease(&leases, "models--m", other));
    td_publish_lease_end(&leases);
    assert_true(td_publish_lease(&leases, "models--m", sum));
    assert_false(td_publish_lease_begin_end(&leases, "models--m", sum, begun_s, &renewed_s));
    assert_true(renewed_s >= begun_s);
    assert_true(td_publish_lease(&leases, "models--m", sum));
    td_publish_leases_fini(&leases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_blob_stays_after_an_answer_says_that_it_is_here),
        TEST_IN(place, nothing_else_keeps_a_blob),
        TEST_IN(place, an_unfinished_blob_stays_likewise),
        cmocka_unit_test(many_leases),
        cmocka_unit_test(more_leases_than_fit),
        cmocka_unit_test(a_blob_that_is_being_removed_gets_no_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
