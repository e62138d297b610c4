/* The digests of rank files: what decides the content key, and that the digest is that of the bytes which are answered.
 * The oracle is the SHA-256 of the whole body. */
#include "rank/rank_digest.h"

#include "core/clock.h"
#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
    struct td_arena arena;
};

static void take_snapshot(struct place *place)
{
    td_snapshot_unref(place->snapshot);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
}

static void open_place(struct place *place)
{
    static const struct tree_tensor tensors[] = {{"w", "F32", "[16,2]", 128}, {"b", "F32", "[2]", 8}};
    tree_open(&place->tree);
    (void)tree_tensors(&place->tree, "ns/m/model.safetensors", tensors, COUNT_OF(tensors), NULL, 0);
    (void)tree_tensors(&place->tree, "ns/copy/model.safetensors", tensors, COUNT_OF(tensors), NULL, 0);
    loopback_open(&place->loop, &place->tree);
    place->snapshot = NULL;
    td_arena_init(&place->arena, 0);
    take_snapshot(place);
}

static void close_place(struct place *place)
{
    td_arena_fini(&place->arena);
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* A rank file of a view. */
struct wanted {
    struct td_repo_view view;
    struct td_repo_item item;
};

static struct wanted find(struct place *place, const char *id, const char *revision)
{
    struct wanted wanted;
    struct td_error err = TD_ERROR_INIT;
    const struct td_repo *repo = td_repo_find(place->snapshot, false, td_text_of(id));
    assert_non_null(repo);
    CHECK(td_repo_view_open(place->snapshot, repo, td_text_of(revision), &wanted.view, &err) &&
              td_repo_view_find(&wanted.view, TD_TEXT("model.safetensors"), &place->arena, &wanted.item, &err),
          "%s", err.message);
    assert_null(wanted.item.entry);
    return wanted;
}

static struct td_virtual_key key_of(struct place *place, const char *id, const char *revision)
{
    struct td_virtual_key key;
    struct wanted wanted = find(place, id, revision);
    assert_true(td_rank_digest_key(&wanted.view, &wanted.item, &key, NULL));
    return key;
}

static bool is_known(struct place *place, const struct wanted *wanted, struct td_virtual_digest *out)
{
    bool known;
    struct td_virtual_key key;
    assert_true(td_rank_digest_key(&wanted->view, &wanted->item, &key, NULL));
    assert_true(
        td_rank_digest_find(place->loop.api.virtual_hasher, &wanted->view, &wanted->item, &key, &known, out, NULL));
    return known;
}

/* Everything that decides the bytes decides the key. */
static void keys_differ_where_bytes_may(void **state)
{
    static const char *const files[][2] = {
        {"ns/m", "tp2-rank0-fsdp"}, {"ns/m", "tp2-rank1-fsdp"},    {"ns/m", "tp4-rank0-fsdp"},
        {"ns/m", "tp1-rank0-none"}, {"ns/copy", "tp2-rank0-fsdp"}, /* the header names the model */
    };
    struct td_virtual_key keys[COUNT_OF(files) + 1];
    struct place *place = *state;
    for (size_t i = 0; i < place->snapshot->entry_count; i++) { /* both models have the same file */
        static const uint8_t sum[TD_SHA256_BYTES] = {1};
        assert_true(td_file_set_sha256(place->snapshot->entries[i].file, sum));
    }
    loopback_rescan(&place->loop);
    take_snapshot(place);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        keys[i] = key_of(place, files[i][0], files[i][1]);
        for (size_t k = 0; k < i; k++)
            CHECK(memcmp(keys[i].bytes, keys[k].bytes, sizeof keys[i].bytes) != 0, "%zu and %zu", i, k);
    }
    loopback_rescan(&place->loop);
    take_snapshot(place);
    keys[COUNT_OF(files)] = key_of(place, files[0][0], files[0][1]);
    assert_memory_equal(keys[0].bytes, keys[COUNT_OF(files)].bytes, sizeof keys[0].bytes);
    tree_poke(&place->tree, "ns/m/model.safetensors", 200, "x", 1);
    loopback_rescan(&place->loop);
    take_snapshot(place);
    keys[COUNT_OF(files)] = key_of(place, files[0][0], files[0][1]);
    assert_memory_not_equal(keys[0].bytes, keys[COUNT_OF(files)].bytes, sizeof keys[0].bytes);
}

/* Writes the SHA-256 of the whole answer. */
static uint64_t sum_of_answer(struct place *place, const struct wanted *wanted, uint8_t sum[TD_SHA256_BYTES])
{
    struct td_response response;
    struct td_body_cursor cursor = {0};
    struct td_error err = TD_ERROR_INIT;
    td_response_init(&response);
    assert_true(td_repo_item_answer(&place->loop.api.ranks, &wanted->view, &wanted->item, &response, &err));
    uint64_t len = response.body.total_bytes;
    char *bytes = malloc((size_t)len);
    assert_non_null(bytes);
    assert_true(td_body_read(&response.body, &cursor, bytes, (size_t)len, &err));
    td_sha256(bytes, (size_t)len, sum);
    free(bytes);
    td_response_fini(&response);
    return len;
}

static void digests_are_those_of_the_answers(void **state)
{
    static const char *const revisions[] = {"tp2-rank0-fsdp", "tp2-rank1-fsdp", "tp1-rank0-none"};
    struct place *place = *state;
    struct td_virtual_hasher *hasher = place->loop.api.virtual_hasher;
    for (size_t i = 0; i < COUNT_OF(revisions); i++) {
        struct wanted wanted = find(place, "ns/m", revisions[i]);
        struct td_virtual_key key = key_of(place, "ns/m", revisions[i]);
        struct td_virtual_digest digest;
        struct td_virtual_digest found;
        struct td_virtual_progress progress;
        struct td_error err = TD_ERROR_INIT;
        uint8_t sum[TD_SHA256_BYTES];
        assert_false(is_known(place, &wanted, &found));
        for (int twice = 0; twice < 2; twice++) /* the second time there is nothing to do */
            assert_true(
                td_rank_digest_begin(hasher, &place->loop.api.ranks, &wanted.view, &wanted.item, &key, 0, &err));
        assert_int_equal(
            td_virtual_hasher_wait(hasher, &key, td_clock_ns() + UINT64_C(60000000000), NULL, &digest, &progress, &err),
            TD_VIRTUAL_KNOWN);
        assert_int_equal(digest.size_bytes, sum_of_answer(place, &wanted, sum));
        assert_memory_equal(digest.sum, sum, sizeof sum);
        assert_true(is_known(place, &wanted, &found));
        assert_memory_equal(found.sum, sum, sizeof sum);
        char commit[TD_COMMIT_BYTES]; /* the origin leads back to the revision */
        assert_true(td_virtual_revision_write_commit(
            &found.origin, td_repo_find(place->snapshot, false, TD_TEXT("ns/m"))->commit, commit));
        assert_string_equal(commit, wanted.view.commit);
    }
}

/* A digest from before the model's files were hashed is found after that, under the key that the file has now. */
static void digests_outlive_the_hashing_of_the_files(void **state)
{
    struct place *place = *state;
    struct td_virtual_digest digest = {.sum = "sum", .size_bytes = 3};
    struct td_virtual_digest found;
    struct td_virtual_digests *digests = td_virtual_hasher_digests(place->loop.api.virtual_hasher);
    struct wanted wanted = find(place, "ns/m", "tp2-rank0-fsdp");
    struct td_virtual_key before = key_of(place, "ns/m", "tp2-rank0-fsdp");
    td_rank_digest_origin(&wanted.view, &digest.origin);
    td_virtual_digests_add(digests, &before, &digest);
    for (size_t i = 0; i < place->snapshot->entry_count; i++) {
        uint8_t sum[TD_SHA256_BYTES] = {(uint8_t)i};
        assert_true(td_file_set_sha256(place->snapshot->entries[i].file, sum));
    }
    loopback_rescan(&place->loop);
    take_snapshot(place);
    struct td_virtual_key after = key_of(place, "ns/m", "tp2-rank0-fsdp");
    assert_memory_not_equal(before.bytes, after.bytes, sizeof before.bytes);
    assert_false(td_virtual_digests_find(digests, &after, &found));
    wanted = find(place, "ns/m", "tp2-rank0-fsdp");
    assert_true(is_known(place, &wanted, &found));
    assert_memory_equal(found.sum, digest.sum, sizeof found.sum);
    assert_true(td_virtual_digests_find(digests, &after, &found));
    wanted = find(place, "ns/m", "tp2-rank1-fsdp");
    assert_false(is_known(place, &wanted, &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, keys_differ_where_bytes_may),
        TEST_IN(place, digests_are_those_of_the_answers),
        TEST_IN(place, digests_outlive_the_hashing_of_the_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
