/* Tidying: what has expired goes within a minute, and a repository in which nothing expires is not looked at. */
#include "catalog/publish/publish.h"
#include "catalog/publish/publish_collect.h"
#include "catalog/publish/publish_commit.h"
#include "catalog/publish/publish_stream.h"
#include "catalog/publish/publish_upload.h"
#include "core/clock.h"
#include "core/digits.h"
#include "storage/fetch/fetch_target.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MINUTE INT64_C(60)
#define HOUR INT64_C(3600)
#define DAY INT64_C(86400)

static _Atomic int64_t clock_ahead_s;
static unsigned collections;

struct td_wall __wrap_td_wall_now(void);
struct td_wall __real_td_wall_now(void);
bool __wrap_td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                               struct td_collected *collected, struct td_error *err);
bool __real_td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                               struct td_collected *collected, struct td_error *err);

struct td_wall __wrap_td_wall_now(void)
{
    struct td_wall now = __real_td_wall_now();
    now.seconds += clock_ahead_s;
    return now;
}

bool __wrap_td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                               struct td_collected *collected, struct td_error *err)
{
    collections++;
    return __real_td_publish_collect(repo, rules, collected, err);
}

struct place {
    struct tree tree;
    struct td_publish *publish;
    struct td_publish_name name;
};

static void place_open(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    clock_ahead_s = 0;
    tree_open(&place->tree);
    const struct td_publish_config config = {.root = place->tree.path, .upload_expires_s = DAY, .keep_commits_s = HOUR};
    CHECK(td_publish_open(&config, &place->publish, &err), "%s", err.message);
    assert_true(td_publish_name("org/m", false, &place->name, NULL));
}

static void place_close(struct place *place)
{
    td_publish_close(place->publish);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static void send_blob(struct place *place, const char *content)
{
    struct td_publish_stream *stream;
    struct td_publish_sum sum;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_stream_begin(place->publish, &place->name, strlen(content), &stream, &err), "%s", err.message);
    CHECK(td_publish_stream_write(stream, content, strlen(content), &err), "%s", err.message);
    CHECK(td_publish_stream_end(stream, NULL, &sum, &err), "%s", err.message);
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

/* Returns whether the repository has a file at this path. */
static bool has(const struct place *place, bool is_new, const char *path)
{
    char whole[TREE_PATH_BYTES], name[400];
    struct stat st;
    (void)snprintf(name, sizeof name, "%smodels--org--m/%s", is_new ? ".tensord-publish/new/" : "", path);
    tree_at(&place->tree, name, whole);
    return lstat(whole, &st) == 0;
}

static void name_blob(const char *content, char path[128])
{
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(content, strlen(content), sum);
    (void)snprintf(path, 128, "blobs/");
    td_hex_write(sum, sizeof sum, path + strlen(path));
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
    char first[TD_COMMIT_BYTES], second[TD_COMMIT_BYTES], path[128], blob[128];
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
    enum { SIZE = 2 * TD_FETCH_PIECE_BYTES };
    const struct td_publish_span span = {.size_bytes = SIZE, .end = TD_FETCH_PIECE_BYTES};
    struct td_publish_part *part;
    char name[128];
    uint8_t *bytes = calloc(1, SIZE), sum[TD_SHA256_BYTES];
    assert_non_null(bytes);
    td_sha256(bytes, SIZE, sum);
    assert_true(td_publish_part_begin(place->publish, &place->name, sum, &span, &part, NULL));
    assert_true(td_publish_part_write(part, bytes, TD_FETCH_PIECE_BYTES, NULL));
    td_publish_part_abandon(part);
    free(bytes);
    td_publish_close_idle(place->publish, NULL, UINT64_MAX);
    (void)snprintf(name, sizeof name, "blobs/.");
    td_hex_write(sum, sizeof sum, name + strlen(name));
    (void)snprintf(name + strlen(name), sizeof name - strlen(name), TD_FETCH_PART_END);
    CHECK(tidy_from(place, 0, DAY - MINUTE) < 30, "%u", collections);
    assert_true(has(place, true, name));
    (void)tidy_from(place, DAY - MINUTE, DAY + 3 * MINUTE);
    assert_false(has(place, true, name));
    (void)tidy_from(place, 2 * DAY, 2 * DAY + 3 * MINUTE); /* then the empty repository */
    assert_false(has(place, true, "blobs"));
}

/* A client that asks for the blob each hour keeps it. */
static void a_blob_with_a_lease_goes_when_that_has_ended(void **state)
{
    struct place *place = *state;
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    char name[128];
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
        TEST_IN(place, a_blob_with_a_lease_goes_when_that_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
