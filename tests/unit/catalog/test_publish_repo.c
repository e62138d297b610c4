/* Repositories that clients publish: their names, models of the operator in their way, what expires in them, and how
 * they move and go while blobs arrive. */
#include "tests/unit/catalog/upload_place.h"

#include <sys/file.h>

static void names_are_checked(void **state)
{
    static const char *const wrong[] = {
        "",   "/",      "a/",     "/a",   "a/b/c",   ".a",    "a/.b",      "a--b",           "a/b-",
        "-a", "a..b",   "a/b\n",  "a\\b", "\xff",    "..",    "a/..",      "a//b",           "a\x7f",
        "-",  "org/--", "a/b--c", "a@b",  "a/files", "blobs", "a/commits", "a/tensors:read", "datasets/x"};
    static const char *const good[] = {"a", "org/m", "Org_1/m.v2-x", "a-b/c-d", "\xc3\xa4/b"};
    char id[300];
    struct td_publish_name name;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_publish_name(wrong[i], false, &name, &err) && err.code == TD_INVALID_ARGUMENT, "\"%s\"", wrong[i]);
    }
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_publish_name(good[i], i % 2 == 1, &name, NULL), "\"%s\"", good[i]);
    memset(id, 'x', sizeof id);
    id[100] = '/';
    id[200] = '\0';
    assert_true(td_publish_name(id, true, &name, NULL));
    id[200] = 'x';
    id[201] = '\0';
    assert_false(td_publish_name(id, true, &name, NULL));
    assert_true(td_publish_name("org/m", true, &name, NULL));
    assert_string_equal(name.folder, "datasets--org--m");
    assert_string_equal(name.path, "datasets/org/m");
}

static void models_of_the_operator_stay_as_they_are(void **state)
{
    struct place *place = *state;
    struct td_error err;
    uint8_t sum[TD_SHA256_BYTES] = {0};
    tree_text(&place->tree, "org/m/config.json", "{}");
    tree_text(&place->tree, "models--org--cached/refs/main", "0123456789012345678901234567890123456789");
    tree_text(&place->tree, "models--org--file", "");
    assert_int_equal(begin_fails(place, "org/m", sum, 1, 0, 1, &err), TD_CONFLICT);
    assert_non_null(strstr(err.message, "was not published and stays as it is"));
    assert_null(strstr(err.message, place->tree.path));
    assert_int_equal(begin_fails(place, "org/cached", sum, 1, 0, 1, &err), TD_CONFLICT);
    assert_non_null(strstr(err.message, "was downloaded by another program"));
    assert_null(strstr(err.message, place->tree.path));
    assert_int_equal(begin_fails(place, "org/file", sum, 1, 0, 1, &err), TD_CONFLICT);
    /* the caller may not see the model that is in the way */
    assert_int_equal(begin_fails(place, "org", sum, 1, 0, 1, &err), TD_CONFLICT);
    CHECK(strstr(err.message, "cached") == NULL && strstr(err.message, "file") == NULL, "%s", err.message);
    tree_directory(&place->tree, "models--top");
    assert_int_equal(begin_fails(place, "top/x", sum, 1, 0, 1, &err), TD_CONFLICT);
    CHECK(strstr(err.message, "top") == NULL, "%s", err.message);
    assert_int_equal(used_bytes(place), 0);
}

static void one_process_publishes(void **state)
{
    struct place *place = *state;
    struct td_publish *second = NULL;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_publish_open(&place->config, &second, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "another tensord with --publish serves"));
}

static void unfinished_blobs_expire(void **state)
{
    struct place *place = *state;
    const struct td_publish_name name = name_of("org/m");
    const _Atomic bool stop = false;
    struct td_publish_blob blob;
    uint8_t sums[2][TD_SHA256_BYTES];
    char path[TREE_PATH_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    td_sha256(place->bytes, 2 * PIECE, sums[0]);
    td_sha256(place->bytes, 3 * PIECE, sums[1]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(send_span(place, "org/m", sums[i], (uint64_t)(2 + i) * PIECE, 0, PIECE),
                         TD_PUBLISH_INCOMPLETE);
    reopen(place);
    td_hex_write(sums[0], TD_SHA256_BYTES, hex);
    (void)snprintf(path, sizeof path, ".tensord-publish/new/models--org--m/blobs/.%s" TD_FETCH_PART_END, hex);
    tree_set_age(&place->tree, path, INT64_C(3601) * 1000000000);
    td_publish_tidy(place->publish, &stop);
    assert_int_equal(used_bytes(place), 3 * PIECE);
    assert_false(td_publish_find_blob(place->publish, &name, sums[0], &blob, NULL));
    assert_true(td_publish_find_blob(place->publish, &name, sums[1], &blob, NULL));
    td_publish_blob_fini(&blob);
    /* one that a client sends is not removed */
    td_hex_write(sums[1], TD_SHA256_BYTES, hex);
    (void)snprintf(path, sizeof path, ".tensord-publish/new/models--org--m/blobs/.%s" TD_FETCH_PART_END, hex);
    tree_set_age(&place->tree, path, INT64_C(3601) * 1000000000);
    td_publish_tidy(place->publish, &stop);
    assert_int_equal(send_span(place, "org/m", sums[1], 3 * PIECE, PIECE, 3 * PIECE), TD_PUBLISH_COMPLETE);
}

static void a_model_that_is_removed_ends_its_uploads(void **state)
{
    struct place *place = *state;
    const struct td_publish_name name = name_of("org/m");
    struct td_publish_blob blob;
    struct td_error err = TD_ERROR_INIT;
    enum td_publish_end end;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, PIECE + 1, sum);
    struct td_publish_part *part = begin(place, "org/m", sum, PIECE + 1, 0, PIECE + 1);
    write_part(part, place->bytes, PIECE, PIECE);
    CHECK(td_publish_remove(place->publish, &name, &err), "%s", err.message);
    assert_int_equal(used_bytes(place), 0);
    assert_false(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
    assert_int_equal(send_span(place, "org/m", sum, PIECE + 1, 0, PIECE + 1), TD_PUBLISH_COMPLETE);
    assert_false(td_publish_part_write(part, place->bytes + PIECE, 1, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    td_error_init(&err);
    assert_false(td_publish_part_end(part, &end, &blob, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    assert_int_equal(used_bytes(place), PIECE + 1);
}

static void a_model_moves_when_nothing_arrives(void **state)
{
    struct place *place = *state;
    const struct td_publish_name from = name_of("org/m");
    const struct td_publish_name to = name_of("org/n");
    struct td_error err = TD_ERROR_INIT;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, PIECE + 1, sum);
    struct td_publish_part *part = begin(place, "org/m", sum, PIECE + 1, 0, PIECE + 1);
    write_part(part, place->bytes, PIECE, PIECE);
    assert_false(td_publish_move(place->publish, &from, &to, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    td_publish_part_abandon(part);
    td_error_init(&err);
    CHECK(td_publish_move(place->publish, &from, &to, &err), "%s", err.message);
    assert_int_equal(send_span(place, "org/n", sum, PIECE + 1, PIECE, PIECE + 1), TD_PUBLISH_COMPLETE);
}

static void a_model_does_not_move_below_another(void **state)
{
    static const struct {
        const char *to;
        bool fits;
    } moves[] = {{"there", false}, {"alone/y", false}, {"free", true}, {"free/y", true}, {"free", true}};
    struct place *place = *state;
    struct td_publish_name from = name_of("org/m");
    struct td_publish_repo repo;
    tree_directory(&place->tree, "models--there--x");
    tree_directory(&place->tree, "models--alone");
    assert_true(td_publish_repo_open(&place->publish->disk, &from, true, &repo, NULL));
    assert_true(td_publish_repo_show(&repo, NULL));
    td_publish_repo_close(&repo);
    for (size_t i = 0; i < COUNT_OF(moves); i++) {
        const struct td_publish_name to = name_of(moves[i].to);
        struct td_error err = TD_ERROR_INIT;
        CHECK(td_publish_move(place->publish, &from, &to, &err) == moves[i].fits, "%s: %s", moves[i].to, err.message);
        CHECK(moves[i].fits || err.code == TD_CONFLICT, "%s: %s", moves[i].to, err.message);
        if (moves[i].fits)
            from = to;
    }
}

static void a_blob_that_another_process_writes_is_not_waited_for(void **state)
{
    struct place *place = *state;
    char name[TREE_PATH_BYTES];
    char path[TREE_PATH_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    struct td_error err;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, 2 * PIECE, sum);
    td_hex_write(sum, sizeof sum, hex);
    assert_int_equal(send_span(place, "org/m", sum, 2 * PIECE, 0, PIECE), TD_PUBLISH_INCOMPLETE);
    reopen(place);
    (void)snprintf(name, sizeof name, ".tensord-publish/new/models--org--m/blobs/.%s.tensord-part", hex);
    tree_at(&place->tree, name, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    assert_int_equal(begin_fails(place, "org/m", sum, 2 * PIECE, PIECE, 2 * PIECE, &err), TD_UNAVAILABLE);
    (void)close(fd);
    assert_int_equal(send_span(place, "org/m", sum, 2 * PIECE, PIECE, 2 * PIECE), TD_PUBLISH_COMPLETE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_checked),
        TEST_IN(place, models_of_the_operator_stay_as_they_are),
        TEST_IN(place, one_process_publishes),
        TEST_IN(place, unfinished_blobs_expire),
        TEST_IN(place, a_model_that_is_removed_ends_its_uploads),
        TEST_IN(place, a_model_moves_when_nothing_arrives),
        TEST_IN(place, a_model_does_not_move_below_another),
        TEST_IN(place, a_blob_that_another_process_writes_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
