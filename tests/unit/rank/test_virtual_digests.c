/* The table of digests of virtual files: its entries, and what holds of every log (log_scenes.h). */
#include "rank/virtual_digests.h"

#include "core/log.h"
#include "tests/kit/tree.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/catalog/disk_hooks.h"
#include "tests/unit/catalog/log_scenes.h"
#include "tests/unit/unit.h"

#include <sys/stat.h>

/* Sizes in the file, from record_log.h and virtual_digests.h. */
enum { HEADER_BYTES = 16, RECORD_BYTES = 112 };

struct place {
    struct tree tree;
    char state[TREE_PATH_BYTES], file[TREE_PATH_BYTES];
};

static void place_open(struct place *place)
{
    disarm();
    tree_open(&place->tree);
    tree_at(&place->tree, "state", place->state);
    tree_at(&place->tree, "state/virtual-digests", place->file);
    tree_directory(&place->tree, "state");
}

static void place_close(struct place *place)
{
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static bool open_table(const char *state_dir, struct td_virtual_digests **out, struct td_error *err)
{
    if (!td_virtual_digests_create(out, err))
        return false;
    if (td_virtual_digests_keep(*out, state_dir, NULL, err))
        return true;
    td_virtual_digests_destroy(*out);
    return false;
}

static struct td_virtual_digests *opened(const struct place *place)
{
    struct td_virtual_digests *digests = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(open_table(place->state, &digests, &err), "%s", err.message);
    return digests;
}

static struct td_virtual_key key_of(uint64_t i)
{
    struct td_virtual_key key;
    for (size_t k = 0; k < sizeof key.bytes; k++)
        key.bytes[k] = (uint8_t)(i * 29 + (i >> 8) * 3 + (i >> 16) + k * 5 + 2);
    i *= UINT64_C(0x9e3779b97f4a7c15); /* spreads, as a SHA-256 does */
    memcpy(key.bytes, &i, sizeof i);
    return key;
}

static struct td_virtual_digest digest_of(uint64_t i)
{
    struct td_virtual_digest digest = {
        .size_bytes = i * 1000003 + 1,
        .origin = {.kind = TD_REVISION_RANK, .engine = (unsigned)(i % 2), .tp_size = 512, .rank = i % 512}};
    for (size_t k = 0; k < sizeof digest.sum; k++)
        digest.sum[k] = (uint8_t)(i * 31 + k * 7 + 1);
    i *= UINT64_C(0x9e3779b97f4a7c15);
    memcpy(digest.sum, &i, sizeof i);
    return digest;
}

static void add(struct td_virtual_digests *digests, uint64_t i)
{
    struct td_virtual_key key = key_of(i);
    struct td_virtual_digest digest = digest_of(i);
    td_virtual_digests_add(digests, &key, &digest);
}

static bool is_equal(const struct td_virtual_digest *a, const struct td_virtual_digest *b)
{
    return memcmp(a->sum, b->sum, sizeof a->sum) == 0 && a->size_bytes == b->size_bytes &&
           a->origin.kind == b->origin.kind && a->origin.engine == b->origin.engine &&
           a->origin.tp_size == b->origin.tp_size && a->origin.rank == b->origin.rank;
}

/* Returns whether the table has the i-th entry, by its key and by its SHA-256. Fails if it is wrong. */
static bool has(struct td_virtual_digests *digests, uint64_t i)
{
    struct td_virtual_key key = key_of(i);
    struct td_virtual_digest wanted = digest_of(i);
    struct td_virtual_digest found;
    struct td_virtual_revision origins[2];
    bool is_known = td_virtual_digests_find(digests, &key, &found);
    assert_true(!is_known || is_equal(&found, &wanted));
    size_t count = td_virtual_digests_origins(digests, false, wanted.sum, origins, COUNT_OF(origins));
    assert_int_equal(count, is_known ? 1 : 0);
    assert_true(!is_known || (origins[0].rank == i % 512 && origins[0].tp_size == 512));
    return is_known;
}

static void knows_the_first(struct td_virtual_digests *digests, size_t known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(has(digests, i) == (i < known), "%zu of %zu, where the first %zu are right", i, count, known);
    assert_int_equal(td_virtual_digests_count(digests), known);
}

/* The origins of one content under several keys, as two ranks have it whose files are equal. */
static void one_content_may_have_several_origins(void **state)
{
    (void)state;
    struct td_virtual_digests *digests;
    struct td_virtual_digest digest = digest_of(1);
    struct td_virtual_revision origins[8];
    assert_true(td_virtual_digests_create(&digests, NULL));
    for (uint64_t i = 0; i < 6; i++) {
        struct td_virtual_key key = key_of(i);
        digest.origin.rank = i / 2;
        td_virtual_digests_add(digests, &key, &digest);
    }
    struct td_virtual_key key = key_of(100);
    digest.origin = (struct td_virtual_revision){.kind = TD_REVISION_FILES}; /* a layer of an image is in none */
    td_virtual_digests_add(digests, &key, &digest);
    assert_int_equal(td_virtual_digests_origins(digests, false, digest.sum, origins, COUNT_OF(origins)), 3);
    assert_true(origins[0].rank == 2 && origins[1].rank == 1 && origins[2].rank == 0);
    assert_int_equal(td_virtual_digests_origins(digests, false, digest.sum, origins, 2), 2);
    key = key_of(101);
    digest.is_document = true;
    digest.origin = (struct td_virtual_revision){.kind = TD_REVISION_RANK, .engine = 2, .tp_size = 9, .rank = 8};
    td_virtual_digests_add(digests, &key, &digest);
    assert_int_equal(td_virtual_digests_origins(digests, false, digest.sum, origins, COUNT_OF(origins)), 3);
    assert_int_equal(td_virtual_digests_origins(digests, true, digest.sum, origins, COUNT_OF(origins)), 1);
    assert_int_equal(origins[0].rank, 8);
    digest.sum[31] ^= 1;
    assert_int_equal(td_virtual_digests_origins(digests, false, digest.sum, origins, COUNT_OF(origins)), 0);
    td_virtual_digests_destroy(digests);
}

/* A record with an impossible origin, for instance of a later version: its digest is used, its origin is not. */
/* shows: security.md oci-damaged-log */
static void an_impossible_origin_is_none(void **state)
{
    static const struct td_virtual_revision impossible[] = {
        {.kind = (enum td_revision_kind)99, .tp_size = 1},        {.kind = TD_REVISION_RANKS, .tp_size = 1},
        {.kind = TD_REVISION_RANK, .engine = 9999, .tp_size = 1}, {.kind = TD_REVISION_RANK, .tp_size = 0},
        {.kind = TD_REVISION_RANK, .tp_size = 8, .rank = 8},      {.kind = TD_REVISION_SAFETENSORS, .tp_size = 2},
    };
    struct place *place = *state;
    struct td_virtual_digests *digests = opened(place);
    for (size_t i = 0; i < COUNT_OF(impossible); i++) {
        struct td_virtual_key key = key_of(i);
        struct td_virtual_digest digest = digest_of(i);
        digest.origin = impossible[i];
        td_virtual_digests_add(digests, &key, &digest);
    }
    td_virtual_digests_destroy(digests);
    digests = opened(place);
    for (size_t i = 0; i < COUNT_OF(impossible); i++) {
        struct td_virtual_key key = key_of(i);
        struct td_virtual_digest found;
        struct td_virtual_revision origin;
        assert_true(td_virtual_digests_find(digests, &key, &found));
        CHECK(td_virtual_digests_origins(digests, false, found.sum, &origin, 1) == 0, "%zu", i);
    }
    td_virtual_digests_destroy(digests);
}

static void the_last_digest_of_a_key_counts(void **state)
{
    struct place *place = *state;
    struct td_virtual_digests *digests = opened(place);
    struct td_virtual_key key = key_of(1);
    struct td_virtual_digest other = digest_of(2);
    struct td_virtual_digest found;
    add(digests, 1);
    td_virtual_digests_add(digests, &key, &other);
    td_virtual_digests_destroy(digests);
    digests = opened(place);
    assert_true(td_virtual_digests_find(digests, &key, &found) && is_equal(&found, &other));
    td_virtual_digests_destroy(digests);
}

/* Returns the i-th entry as one of a share. */
static struct td_virtual_digest digest_in(size_t i, bool is_layer, bool is_document, uint64_t size_bytes)
{
    struct td_virtual_digest digest = digest_of(i);
    digest.size_bytes = size_bytes;
    digest.is_document = is_document;
    if (is_layer)
        digest.origin = (struct td_virtual_revision){.kind = TD_REVISION_FILES};
    return digest;
}

/* Adds `count` entries from number `first` on. */
static void add_many(struct td_virtual_digests *digests, size_t first, size_t count, bool is_layer, bool is_document)
{
    for (size_t i = first; i < first + count; i++) {
        struct td_virtual_key key = key_of(i);
        struct td_virtual_digest digest = digest_in(i, is_layer, is_document, 1000);
        td_virtual_digests_add(digests, &key, &digest);
    }
}

static bool knows(struct td_virtual_digests *digests, size_t i)
{
    struct td_virtual_key key = key_of(i);
    struct td_virtual_digest found;
    return td_virtual_digests_find(digests, &key, &found);
}

/* A full share loses the half that was not used for longest, also on the disk; large contents stay. */
/* shows: security.md oci-many-ranks */
static void a_share_is_bounded(void **state)
{
    enum { MOST = TD_VIRTUAL_RANKS_MAX };
    struct place *place = *state;
    struct stat st;
    struct td_virtual_digests *digests = opened(place);
    struct td_virtual_key key = key_of(1);
    struct td_virtual_digest large = digest_in(1, false, false, TD_VIRTUAL_LARGE_BYTES);
    td_virtual_digests_add(digests, &key, &large);
    add_many(digests, 2, MOST - 1, false, false);
    assert_int_equal(td_virtual_digests_count(digests), MOST);
    assert_true(knows(digests, 5)); /* is used */
    add_many(digests, MOST + 1, 1, false, false);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(td_virtual_digests_count(digests), MOST / 2 + 1);
        assert_true(td_virtual_digests_find(digests, &key, &large));
        assert_true(knows(digests, 5) && knows(digests, MOST + 1) && knows(digests, MOST));
        for (size_t i = 6; i < MOST; i += 97)
            CHECK(knows(digests, i) == (i >= MOST / 2 + 4), "%zu", i);
        td_virtual_digests_destroy(digests);
        digests = opened(place);
    }
    td_virtual_digests_destroy(digests);
    assert_int_equal(stat(place->file, &st), 0);
    assert_int_equal(st.st_size, HEADER_BYTES + (MOST / 2 + 1) * RECORD_BYTES);
}

/* A client that has just got a manifest asks for what it names: that is not dropped, however small it is. */
static void what_was_just_used_stays(void **state)
{
    (void)state;
    enum { MOST = TD_VIRTUAL_RANKS_MAX };
    struct td_virtual_digests *digests;
    assert_true(td_virtual_digests_create(&digests, NULL));
    add_many(digests, 1, 2, false, false); /* two small ones */
    for (size_t i = 3; i <= MOST; i++) {
        struct td_virtual_key key = key_of(i);
        struct td_virtual_digest large = digest_in(i, false, false, TD_VIRTUAL_LARGE_BYTES);
        td_virtual_digests_add(digests, &key, &large);
    }
    assert_true(knows(digests, 2));
    add_many(digests, MOST + 1, 1, false, false);
    assert_int_equal(td_virtual_digests_count(digests), MOST / 2 + 1);
    assert_false(knows(digests, 1));
    assert_true(knows(digests, 2));
    assert_false(knows(digests, 3)); /* large, but not used for longest */
    assert_true(knows(digests, MOST));
    td_virtual_digests_destroy(digests);
}

/* However many rank files and documents come, they push out no layer; nor documents rank files. Also on the disk. */
/* shows: security.md oci-many-ranks */
static void no_share_pushes_out_another(void **state)
{
    enum { MANY = 40000, LAYERS = 100 };
    struct place *place = *state;
    struct td_virtual_digests *digests = opened(place);
    add_many(digests, 1000000, LAYERS, true, false);
    add_many(digests, 2000000, LAYERS, false, false);
    add_many(digests, 3000000, MANY, false, true);
    for (size_t i = 0; i < LAYERS; i++)
        assert_true(knows(digests, 1000000 + i) && knows(digests, 2000000 + i));
    add_many(digests, 4000000, MANY, false, false);
    td_virtual_digests_destroy(digests);
    digests = opened(place);
    for (size_t i = 0; i < LAYERS; i++)
        assert_true(knows(digests, 1000000 + i));
    assert_true(td_virtual_digests_count(digests) <= LAYERS + TD_VIRTUAL_RANKS_MAX + TD_VIRTUAL_DOCUMENTS_MAX);
    td_virtual_digests_destroy(digests);
}

/* However many digests of tensors come, the table has a bounded number of them, and they push out no others, which do
 * not count as older either. They come back from the disk as what they were. */
static void tensors_have_a_share_of_their_own(void **state)
{
    enum { MOST = TD_VIRTUAL_TENSORS_MAX, OTHERS = 100 };
    struct place *place = *state;
    struct td_virtual_digests *digests = opened(place);
    struct td_virtual_digest tensor = digest_in(1, true, false, 1000);
    tensor.is_tensor = true;
    add_many(digests, 1, OTHERS, true, false);
    add_many(digests, 1 + OTHERS, OTHERS, false, false);
    for (size_t i = 0; i <= MOST; i++) {
        struct td_virtual_key key = key_of(1000000 + i);
        memcpy(tensor.sum, &i, sizeof i);
        td_virtual_digests_add(digests, &key, &tensor);
    }
    for (int round = 0; round < 2; round++) {
        struct td_virtual_digest found;
        struct td_virtual_key key = key_of(1000000 + MOST);
        assert_int_equal(td_virtual_digests_count(digests), MOST / 2 + 1 + 2 * OTHERS);
        assert_true(td_virtual_digests_find(digests, &key, &found));
        assert_true(found.is_tensor && !found.is_document && found.size_bytes == 1000);
        assert_memory_equal(found.sum, tensor.sum, sizeof found.sum);
        for (size_t i = 1; i <= 2 * OTHERS; i++)
            assert_true(knows(digests, i));
        assert_false(knows(digests, 1000000));
        td_virtual_digests_destroy(digests);
        digests = opened(place);
    }
    td_virtual_digests_destroy(digests);
}

/* ---- what holds of every log ---------------------------------------------------------------------------- */

static void *log_open(const char *state_dir, struct td_error *err)
{
    struct td_virtual_digests *digests = NULL;
    return open_table(state_dir, &digests, err) ? digests : NULL;
}

static void log_close(void *log)
{
    td_virtual_digests_destroy(log);
}

static void log_flush(void *log)
{
    td_virtual_digests_flush(log);
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
    struct td_virtual_key key = key_of(i);
    struct td_virtual_digest digest = digest_of(i);
    memcpy(at, key.bytes, sizeof key.bytes);
    at += sizeof key.bytes;
    memcpy(at, digest.sum, sizeof digest.sum);
    at += sizeof digest.sum;
    put(&at, digest.size_bytes, 8);
    put(&at, (uint64_t)digest.origin.kind, 4);
    put(&at, digest.origin.engine, 4);
    put(&at, digest.origin.tp_size, 8);
    put(&at, digest.origin.rank, 8);
    return at;
}

static struct scene_log scene = {.name = "virtual-digests",
                                 .magic = "tvirtual",
                                 .payload_bytes = RECORD_BYTES - 16,
                                 .open = log_open,
                                 .close = log_close,
                                 .flush = log_flush,
                                 .add = log_add,
                                 .check = log_check,
                                 .write_payload = write_payload};

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Opens the table and adds entries past its growths. Returns false when it could not be opened. */
static bool exercise(const struct place *place, size_t *known)
{
    struct td_virtual_digests *digests;
    struct td_error err = TD_ERROR_INIT;
    *known = 0;
    if (!open_table(place->state, &digests, &err)) {
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        return false;
    }
    for (size_t i = 0; i < 400; i++)
        add(digests, i);
    for (size_t i = 0; i < 400; i++)
        *known += has(digests, i) ? 1 : 0;
    td_virtual_digests_destroy(digests);
    return true;
}

static void every_allocation_may_fail(void **state)
{
    struct place *place = *state;
    uint8_t bytes[64 * 1024];
    size_t known;
    size_t len = by_hand(&scene, bytes, 200); /* the table grows while the log is read */
    tree_write(&place->tree, "state/virtual-digests", bytes, len);
    alloc_count_start();
    assert_true(exercise(place, &known));
    assert_int_equal(known, 400);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    size_t calls = alloc_count_get().calls;
    assert_true(calls >= 10);
    for (size_t k = 1; k <= calls; k++) {
        tree_write(&place->tree, "state/virtual-digests", bytes, len);
        alloc_count_start();
        alloc_fail_at(k);
        if (exercise(place, &known))
            CHECK(known >= 399, "%zu", known); /* the one that memory was short for */
        alloc_fail_at(0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_content_may_have_several_origins),
        TEST_IN(place, an_impossible_origin_is_none),
        TEST_IN(place, the_last_digest_of_a_key_counts),
        TEST_IN(place, a_share_is_bounded),
        cmocka_unit_test(what_was_just_used_stays),
        TEST_IN(place, no_share_pushes_out_another),
        TEST_IN(place, tensors_have_a_share_of_their_own),
        TEST_IN(place, every_allocation_may_fail),
        LOG_SCENES(&scene),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
