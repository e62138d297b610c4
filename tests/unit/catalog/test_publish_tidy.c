/* Tidying: what has expired goes within a minute, and a repository in which nothing expires is not looked at. */
#include "catalog/publish/publish_collect.h"
#include "catalog/publish/publish_commit.h"
#include "tests/unit/catalog/expiry_place.h"

static unsigned collections;

bool __wrap_td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                               struct td_collected *collected, struct td_error *err);
bool __real_td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                               struct td_collected *collected, struct td_error *err);

bool __wrap_td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                               struct td_collected *collected, struct td_error *err)
{
    collections++;
    return __real_td_publish_collect(repo, rules, collected, err);
}

static void commit(struct place *place, const char *content, char id[TD_COMMIT_BYTES])
{
    struct td_commit_file file = {.path = "a"};
    const struct td_commit_order order = {.revision = "main", .files = &file, .file_count = 1, .message = ""};
    struct td_publish_repo repo;
    struct td_commit_result result;
    struct td_error err = TD_ERROR_INIT;
    send_blob(place, content);
    td_sha256(content, strlen(content), file.sha256);
    CHECK(td_publish_repo_open(&place->publish->disk, &place->name, true, &repo, &err), "%s", err.message);
    CHECK(td_publish_commit(&repo, &order, &result, &err), "%s", err.message);
    assert_int_equal(result.verdict, TD_COMMIT_MOVED);
    memcpy(id, result.commit, TD_COMMIT_BYTES);
    td_commit_result_fini(&result);
    td_publish_repo_close(&repo);
}

/* Tidies as the server does, once a minute, from one time to another. Returns how often the repository was collected.
 */
static unsigned tidy_from(struct place *place, int64_t from_s, int64_t to_s)
{
    const _Atomic bool stop = false;
    unsigned before = collections;
    for (int64_t at_s = from_s; at_s <= to_s; at_s += MINUTE) {
        clock_ahead_s = at_s;
        td_publish_tidy(place->publish, &stop);
    }
    return collections - before;
}

static void a_repository_that_does_not_change_is_left_alone(void **state)
{
    struct place *place = *state;
    char id[TD_COMMIT_BYTES];
    commit(place, "one", id);
    assert_int_equal(tidy_from(place, 0, 0), 1);
    assert_int_equal(tidy_from(place, MINUTE, 50 * MINUTE), 0);
    unsigned in_a_day = tidy_from(place, HOUR, DAY); /* now and then, since another program may change it */
    CHECK(in_a_day >= 22 && in_a_day <= 25, "%u", in_a_day);
    commit(place, "two", id);
    assert_true(tidy_from(place, DAY, DAY) == 1);
}

static void what_expires_goes_within_a_minute(void **state)
{
    struct place *place = *state;
    char first[TD_COMMIT_BYTES], second[TD_COMMIT_BYTES], path[BLOB_PATH_BYTES], blob[BLOB_PATH_BYTES];
    commit(place, "one", first);
    commit(place, "two", second);
    send_blob(place, "three");
    name_blob("three", blob);
    (void)snprintf(path, sizeof path, "snapshots/%s", first);
    CHECK(tidy_from(place, 0, HOUR - MINUTE) <= 2, "%u", collections);
    assert_true(has(place, false, path));
    assert_true(tidy_from(place, HOUR - MINUTE, HOUR + 2 * MINUTE) >= 1);
    assert_false(has(place, false, path));
    CHECK(tidy_from(place, HOUR + 3 * MINUTE, DAY - MINUTE) < 30, "%u", collections);
    assert_true(has(place, false, blob));
    (void)tidy_from(place, DAY - MINUTE, DAY + 2 * MINUTE);
    assert_false(has(place, false, blob));
    (void)snprintf(path, sizeof path, "snapshots/%s", second);
    assert_true(has(place, false, path));
}

static void what_was_begun_goes_within_a_minute(void **state)
{
    struct place *place = *state;
    uint8_t sum[TD_SHA256_BYTES];
    char name[BLOB_PATH_BYTES];
    send_first_piece(place, sum, name);
    CHECK(tidy_from(place, 0, DAY - MINUTE) < 30, "%u", collections);
    assert_true(has(place, true, name));
    (void)tidy_from(place, DAY - MINUTE, DAY + 3 * MINUTE);
    assert_false(has(place, true, name));
    (void)tidy_from(place, 2 * DAY, 2 * DAY + 3 * MINUTE); /* then the empty repository */
    assert_false(has(place, true, "blobs"));
}

/* Makes the repository as a process leaves it that is killed while it makes its folders. */
static void begin_repository(struct place *place)
{
    char path[TREE_PATH_BYTES];
    path_in(place, true, "", path);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void a_repository_that_was_half_made_is_completed(void **state)
{
    struct place *place = *state;
    char id[TD_COMMIT_BYTES];
    begin_repository(place);
    commit(place, "one", id);
    assert_true(has(place, false, "commits"));
}

static void a_repository_that_was_half_made_goes(void **state)
{
    struct place *place = *state;
    begin_repository(place);
    (void)tidy_from(place, 0, DAY - MINUTE);
    assert_true(has(place, true, ""));
    (void)tidy_from(place, DAY - MINUTE, DAY + 3 * MINUTE);
    assert_false(has(place, true, ""));
}

/* A client that asks for the blob each hour keeps it. */
static void a_blob_with_a_lease_goes_when_that_has_ended(void **state)
{
    struct place *place = *state;
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    char name[BLOB_PATH_BYTES];
    send_blob(place, "asked");
    td_sha256("asked", 5, sum);
    name_blob("asked", name);
    (void)tidy_from(place, 0, DAY - MINUTE);
    assert_true(td_publish_find_blob(place->publish, &place->name, sum, &blob, NULL));
    td_publish_blob_fini(&blob);
    (void)tidy_from(place, DAY, 2 * DAY - 2 * MINUTE);
    assert_true(has(place, true, name));
    (void)tidy_from(place, 2 * DAY - MINUTE, 2 * DAY + MINUTE);
    assert_false(has(place, true, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_repository_that_does_not_change_is_left_alone),
        TEST_IN(place, what_expires_goes_within_a_minute),
        TEST_IN(place, what_was_begun_goes_within_a_minute),
        TEST_IN(place, a_repository_that_was_half_made_is_completed),
        TEST_IN(place, a_repository_that_was_half_made_goes),
        TEST_IN(place, a_blob_with_a_lease_goes_when_that_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
