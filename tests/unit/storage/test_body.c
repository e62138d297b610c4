/* Bodies, compared with the same extents written out byte by byte. */
#include "storage/body.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

enum { MOST_EXTENTS = 12, MOST_BYTES = 1 << 16, BLOBS = 3 };

struct pair {
    struct td_blob *blobs[BLOBS];
    struct td_body body;
    uint8_t *oracle;
    size_t oracle_len;
};

static struct td_blob *random_blob(uint64_t *seed)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob;
    size_t len = 1 + random_below(seed, 400);
    char *data = malloc(len);
    assert_non_null(data);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)random_next(seed);
    assert_true(td_blob_from_heap(data, len, &blob, &err));
    return blob;
}

/* Returns a random extent within its blob, with a stride below, at or above the length, or 0. */
static struct td_extent random_extent(struct td_blob *blob, uint64_t *seed)
{
    struct td_extent e = {.blob = blob};
    e.len = random_below(seed, (size_t)blob->len_bytes + 1);
    uint64_t room = blob->len_bytes - e.len;
    e.count = random_below(seed, 20);
    if (e.count > 1)
        e.stride = random_below(seed, (size_t)(room / (e.count - 1)) + 1);
    uint64_t span = e.count > 1 ? e.stride * (e.count - 1) : 0;
    e.off = random_below(seed, (size_t)(room - span) + 1);
    return e;
}

static void oracle_append(struct pair *pair, const struct td_extent *e)
{
    for (uint64_t run = 0; run < e->count; run++) {
        for (uint64_t i = 0; i < e->len; i++) {
            assert_true(pair->oracle_len < MOST_BYTES);
            pair->oracle[pair->oracle_len++] = e->blob->bytes[e->off + run * e->stride + i];
        }
    }
}

static void pair_make(struct pair *pair, uint64_t *seed)
{
    struct td_error err = TD_ERROR_INIT;
    td_body_init(&pair->body);
    pair->oracle = malloc(MOST_BYTES);
    pair->oracle_len = 0;
    assert_non_null(pair->oracle);
    for (size_t i = 0; i < BLOBS; i++)
        pair->blobs[i] = random_blob(seed);
    size_t count = random_below(seed, MOST_EXTENTS + 1);
    for (size_t i = 0; i < count; i++) {
        struct td_extent e = random_extent(pair->blobs[random_below(seed, BLOBS)], seed);
        if (pair->oracle_len + e.len * e.count > MOST_BYTES)
            break;
        assert_true(td_body_append_runs(&pair->body, e.blob, e.off, e.len, e.count, e.stride, &err));
        oracle_append(pair, &e);
    }
    assert_true(pair->body.total_bytes == pair->oracle_len);
}

/* Frees the pair and checks that the body released every reference. */
static void pair_free(struct pair *pair)
{
    td_body_fini(&pair->body);
    for (size_t i = 0; i < BLOBS; i++) {
        assert_int_equal(atomic_load(&pair->blobs[i]->refs), 1);
        td_blob_unref(pair->blobs[i]);
    }
    free(pair->oracle);
}

/* Reads the body in pieces of random sizes. */
static void check_read(const struct td_body *body, const uint8_t *wanted, size_t len, uint64_t *seed)
{
    struct td_body_cursor cursor = {0};
    struct td_error err = TD_ERROR_INIT;
    uint8_t out[1024];
    assert_true(body->total_bytes == len);
    for (size_t at = 0; at < len;) {
        size_t n = 1 + random_below(seed, sizeof out);
        if (n > len - at)
            n = len - at;
        assert_true(td_body_read(body, &cursor, out, n, &err));
        assert_memory_equal(out, wanted + at, n);
        at += n;
    }
    assert_true(td_body_read(body, &cursor, out, 0, &err));
    assert_false(td_body_read(body, &cursor, out, 1, &err));
    assert_int_equal(err.code, TD_INTERNAL);
}

/* Checks the pieces: each is contiguous, at most as long as requested, and within its blob. */
static void check_pieces(const struct td_body *body, const uint8_t *wanted, size_t len, uint64_t *seed)
{
    struct td_body_cursor cursor = {0};
    struct td_blob *blob = NULL;
    uint64_t off = 0;
    uint64_t piece;
    size_t at = 0;
    for (;;) {
        uint64_t most = random_below(seed, 4) == 0 ? UINT64_MAX : 1 + random_below(seed, 50);
        td_body_next(body, &cursor, most, &blob, &off, &piece);
        if (piece == 0)
            break;
        assert_true(piece <= most && off <= blob->len_bytes && piece <= blob->len_bytes - off);
        assert_true(piece <= len - at);
        assert_memory_equal(blob->bytes + off, wanted + at, (size_t)piece);
        at += (size_t)piece;
    }
    assert_int_equal(at, len);
    td_body_next(body, &cursor, 1, &blob, &off, &piece);
    assert_true(piece == 0);
}

static void reading_equals_the_oracle(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 5000; round++) {
        struct pair pair;
        pair_make(&pair, &seed);
        check_read(&pair.body, pair.oracle, pair.oracle_len, &seed);
        check_pieces(&pair.body, pair.oracle, pair.oracle_len, &seed);
        pair_free(&pair);
    }
}

/* Cuts, and cuts of cuts, equal slices of the bytes. A cut never needs more than three extents for one extent. */
static void cutting_equals_slicing(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int round = 0; round < 5000; round++) {
        struct pair pair;
        struct td_body cut, again;
        struct td_error err = TD_ERROR_INIT;
        pair_make(&pair, &seed);
        size_t off = random_below(&seed, pair.oracle_len + 1);
        size_t len = random_below(&seed, pair.oracle_len - off + 1);
        td_body_init(&cut);
        assert_true(td_body_cut(&pair.body, off, len, &cut, &err));
        assert_true(cut.extent_count <= 3 * pair.body.extent_count);
        check_read(&cut, pair.oracle + off, len, &seed);
        check_pieces(&cut, pair.oracle + off, len, &seed);
        size_t off2 = random_below(&seed, len + 1);
        size_t len2 = random_below(&seed, len - off2 + 1);
        td_body_init(&again);
        assert_true(td_body_cut(&cut, off2, len2, &again, &err));
        td_body_fini(&cut);
        check_read(&again, pair.oracle + off + off2, len2, &seed);
        td_body_fini(&again);
        pair_free(&pair);
    }
}

/* Takes a body apart from its beginning to its end, some of it skipped: the parts equal slices of the bytes. */
static void taking_goes_on_where_it_ended(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 2000; round++) {
        struct pair pair;
        struct td_error err = TD_ERROR_INIT;
        struct td_body_cursor cursor = {0};
        pair_make(&pair, &seed);
        for (size_t at = 0; at < pair.oracle_len;) {
            struct td_body part;
            size_t skipped = random_below(&seed, pair.oracle_len - at + 1);
            size_t len = random_below(&seed, pair.oracle_len - at - skipped + 1);
            td_body_init(&part);
            td_body_skip(&pair.body, &cursor, skipped);
            assert_true(td_body_take(&pair.body, &cursor, len, &part, &err));
            check_read(&part, pair.oracle + at + skipped, len, &seed);
            td_body_fini(&part);
            at += skipped + len;
        }
        td_body_skip(&pair.body, &cursor, UINT64_MAX);
        assert_int_equal(cursor.extent, pair.body.extent_count);
        pair_free(&pair);
    }
}

/* Makes every cut of one small strided body. */
static void every_cut_of_a_progression(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob;
    uint64_t seed = 3;
    char *data = malloc(40);
    uint8_t wanted[12];
    assert_non_null(data);
    for (int i = 0; i < 40; i++)
        data[i] = (char)i;
    assert_true(td_blob_from_heap(data, 40, &blob, &err));
    for (uint64_t stride = 0; stride <= 11; stride++) {
        struct td_body body;
        td_body_init(&body);
        assert_true(td_body_append_runs(&body, blob, 2, 3, 4, stride, &err));
        assert_true(td_body_run_count(&body) == 4);
        for (size_t i = 0; i < 12; i++)
            wanted[i] = (uint8_t)(2 + i / 3 * stride + i % 3);
        for (size_t off = 0; off <= 12; off++) {
            for (size_t len = 0; len <= 12 - off; len++) {
                struct td_body cut;
                td_body_init(&cut);
                assert_true(td_body_cut(&body, off, len, &cut, &err));
                check_read(&cut, wanted + off, len, &seed);
                td_body_fini(&cut);
            }
        }
        td_body_fini(&body);
    }
    td_blob_unref(blob);
}

static void cutting_appends(void **state)
{
    (void)state;
    struct pair pair;
    struct td_body out;
    struct td_error err = TD_ERROR_INIT;
    uint64_t seed = 4;
    pair_make(&pair, &seed);
    assert_true(pair.oracle_len > 10);
    td_body_init(&out);
    char *data = strdup("head");
    assert_true(td_body_append_heap(&out, data, 4, &err));
    assert_true(td_body_cut(&pair.body, 3, 7, &out, &err));
    assert_true(out.total_bytes == 11);
    struct td_body_cursor cursor = {0};
    char flat[11];
    assert_true(td_body_read(&out, &cursor, flat, 11, &err));
    assert_memory_equal(flat, "head", 4);
    assert_memory_equal(flat + 4, pair.oracle + 3, 7);
    td_body_fini(&out);
    pair_free(&pair);
}

static void nothing_appends_nothing(void **state)
{
    (void)state;
    struct td_body body;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob;
    td_body_init(&body);
    assert_true(td_blob_from_heap(strdup("x"), 1, &blob, &err));
    assert_true(td_body_append(&body, blob, 0, 0, &err));
    assert_true(td_body_append(&body, blob, 1, 0, &err));
    assert_true(td_body_append_runs(&body, blob, 0, 1, 0, 5, &err));
    assert_true(td_body_append_heap(&body, NULL, 0, &err));
    assert_true(body.extent_count == 0 && body.total_bytes == 0 && td_body_run_count(&body) == 0);
    assert_true(td_body_unchanged(&body) && td_body_is_pinned(&body));
    assert_int_equal(atomic_load(&blob->refs), 1);
    td_blob_unref(blob);
    td_body_fini(&body);
}

/* The number of destroyed blobs of vast_class, which have any length and no bytes. */
static int destroyed;

static void vast_destroy(struct td_blob *blob)
{
    (void)blob;
    destroyed++;
}

static const struct td_blob_class vast_class = {.destroy = vast_destroy};

static void extents_that_leave_the_blob_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t size, off, len, count, stride;
        bool ok;
    } cases[] = {
        {10, 0, 10, 1, 0, true},
        {10, 0, 11, 1, 0, false},
        {10, 1, 10, 1, 0, false},
        {10, 11, 1, 1, 0, false},
        {10, 0, 2, 5, 2, true},
        {10, 1, 2, 5, 2, false},
        {10, 0, 2, 6, 2, false},
        {10, 0, 2, 3, 4, true},
        {10, 0, 2, 3, 5, false},
        {10, 0, 10, 1, UINT64_MAX, true} /* the stride of a single run is ignored */,
        {10, 0, 10, 2, 0, true},
        {10, UINT64_MAX, 1, 1, 0, false},
        {10, UINT64_MAX, UINT64_MAX, 1, 0, false},
        {10, 0, 1, 2, UINT64_MAX, false},
        {10, 1, 1, 2, UINT64_MAX, false},
        {10, 2, 1, 2, UINT64_MAX, false} /* off + stride wraps to 1 */,
        {10, 0, 1, UINT64_MAX, 2, false} /* (count - 1) * stride wraps */,
        {10, 0, 1, 3, UINT64_C(1) << 63, false},
        {10, 0, 2, UINT64_C(1) << 63, 0, false} /* count * len wraps to 0 */,
        {UINT64_MAX, 0, UINT64_MAX, 1, 0, true},
        {UINT64_MAX, 1, UINT64_MAX, 1, 0, false},
        {UINT64_MAX, UINT64_MAX - 1, 1, 1, 0, true},
        {UINT64_MAX, 0, 1, UINT64_MAX, 0, true},
        {UINT64_MAX, 0, 1, UINT64_MAX, 1, true},
        {UINT64_MAX, 1, 1, UINT64_MAX, 1, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_blob blob = {.class = &vast_class, .refs = 1, .len_bytes = cases[i].size};
        struct td_body body;
        struct td_error err = TD_ERROR_INIT;
        td_body_init(&body);
        bool ok = td_body_append_runs(&body, &blob, cases[i].off, cases[i].len, cases[i].count, cases[i].stride, &err);
        CHECK(ok == cases[i].ok, "case %zu", i);
        CHECK(ok == (err.code == TD_OK) && (ok || err.code == TD_INTERNAL), "case %zu", i);
        CHECK(ok || (body.extent_count == 0 && body.total_bytes == 0), "case %zu", i);
        CHECK(!ok || body.total_bytes == cases[i].len * cases[i].count, "case %zu", i);
        CHECK(!ok || td_body_run_count(&body) == cases[i].count, "case %zu", i);
        td_body_fini(&body);
        assert_int_equal(atomic_load(&blob.refs), 1);
    }
}

static void total_must_fit_64_bits(void **state)
{
    (void)state;
    struct td_blob blob = {.class = &vast_class, .refs = 1, .len_bytes = UINT64_MAX};
    struct td_body body, cut;
    struct td_error err = TD_ERROR_INIT;
    td_body_init(&body);
    assert_true(td_body_append(&body, &blob, 0, UINT64_MAX - 5, &err));
    assert_false(td_body_append(&body, &blob, 0, 6, &err));
    assert_int_equal(err.code, TD_INTERNAL);
    td_error_init(&err);
    assert_true(td_body_append(&body, &blob, 7, 5, &err));
    assert_true(body.total_bytes == UINT64_MAX);
    td_body_init(&cut);
    assert_true(td_body_cut(&body, UINT64_MAX - 6, 3, &cut, &err));
    assert_int_equal(cut.extent_count, 2);
    assert_true(cut.extents[0].off == UINT64_MAX - 6 && cut.extents[0].len == 1);
    assert_true(cut.extents[1].off == 7 && cut.extents[1].len == 2);
    td_body_fini(&cut);
    td_body_fini(&body);
    assert_int_equal(atomic_load(&blob.refs), 1);
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    struct td_blob blob = {.class = &vast_class, .refs = 1, .len_bytes = 100};
    for (size_t k = 1; k <= 6; k++) {
        struct td_body body;
        struct td_error err = TD_ERROR_INIT;
        td_body_init(&body);
        alloc_count_start();
        alloc_fail_at(k);
        size_t appended = 0;
        while (appended < 40 && td_body_append(&body, &blob, appended, 1, &err))
            appended++;
        bool failed = err.code != TD_OK;
        CHECK(!failed || err.code == TD_RESOURCE_EXHAUSTED, "k %zu", k);
        alloc_fail_at(0);
        assert_true(body.extent_count == appended && body.total_bytes == appended);
        assert_int_equal(atomic_load(&blob.refs), 1 + appended);
        td_body_fini(&body);
        assert_int_equal(alloc_count_get().live_bytes, 0);
        assert_true(failed || k > 5);
    }
    struct td_body body;
    struct td_error err = TD_ERROR_INIT;
    td_body_init(&body);
    for (size_t k = 1; k <= 2; k++) { /* the function frees the data */
        alloc_count_start();
        char *data = malloc(3);
        alloc_fail_at(k);
        assert_false(td_body_append_heap(&body, data, 3, &err));
        alloc_fail_at(0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    td_body_fini(&body);
}

struct watched {
    struct td_blob blob;
    bool unchanged, pinned;
};

static bool watched_unchanged(struct td_blob *blob)
{
    return ((struct watched *)(void *)blob)->unchanged;
}

static bool watched_pinned(struct td_blob *blob)
{
    return ((struct watched *)(void *)blob)->pinned;
}

static const struct td_blob_class watched_class = {
    .destroy = vast_destroy, .unchanged = watched_unchanged, .pinned = watched_pinned};

/* A single blob decides for the body, whatever its place and however often it occurs. */
static void one_blob_decides(void **state)
{
    (void)state;
    enum { COUNT = 7 };
    static const uint8_t memory[COUNT] = {0};
    for (size_t bad = 0; bad <= COUNT; bad++) {
        for (size_t repeat = 1; repeat <= 3; repeat++) {
            struct watched blobs[COUNT];
            struct td_body body;
            struct td_error err = TD_ERROR_INIT;
            td_body_init(&body);
            for (size_t i = 0; i < COUNT; i++) {
                blobs[i].blob =
                    (struct td_blob){.class = &watched_class, .refs = 1, .bytes = memory, .len_bytes = COUNT};
                blobs[i].unchanged = blobs[i].pinned = i != bad;
            }
            for (size_t i = 0; i < COUNT * repeat; i++)
                assert_true(td_body_append(&body, &blobs[i % COUNT].blob, 0, 1, &err));
            assert_int_equal(td_body_unchanged(&body), bad == COUNT);
            assert_int_equal(td_body_is_pinned(&body), bad == COUNT);
            for (size_t i = 0; i < COUNT; i++)
                blobs[i].blob.bytes = i == bad ? NULL : memory;
            for (size_t i = 0; i < COUNT; i++)
                blobs[i].pinned = true; /* a blob without bytes is never pinned */
            assert_int_equal(td_body_is_pinned(&body), bad == COUNT);
            td_body_fini(&body);
        }
    }
}

/* Counters of the calls of counting_class. */
static int reads, gathers;
static uint64_t gathered, prefetched;

static bool counting_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)err;
    reads++;
    memcpy(out, blob->bytes + off, len);
    return true;
}

static bool counting_gather(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride,
                            void *out, struct td_error *err)
{
    (void)err;
    gathers++;
    gathered += count;
    for (uint64_t i = 0; i < count; i++)
        memcpy((char *)out + i * len, blob->bytes + off + i * stride, len);
    return true;
}

static void counting_prefetch(struct td_blob *blob, uint64_t off, uint64_t len)
{
    assert_true(off <= blob->len_bytes && len <= blob->len_bytes - off);
    reads++;
    prefetched += len;
}

static const struct td_blob_class counting_class = {
    .destroy = vast_destroy, .read = counting_read, .gather = counting_gather, .prefetch = counting_prefetch};

/* A window over short runs makes one gather call, and reads at most part of a run before and after it. */
static void whole_runs_are_gathered_at_once(void **state)
{
    (void)state;
    enum { RUNS = 100, LEN = 7, STRIDE = 16 };
    static uint8_t memory[RUNS * STRIDE];
    struct td_blob blob = {.class = &counting_class, .refs = 1, .bytes = memory, .len_bytes = sizeof memory};
    struct td_body body;
    struct td_body_cursor cursor = {0};
    uint8_t out[RUNS * LEN];
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)(i * 37 + (i >> 8));
    td_body_init(&body);
    assert_true(td_body_append_runs(&body, &blob, 3, LEN, RUNS, STRIDE, NULL));
    reads = gathers = 0;
    assert_true(td_body_read(&body, &cursor, out, sizeof out, NULL));
    assert_true(reads == 0 && gathers == 1);
    memset(&cursor, 0, sizeof cursor);
    reads = gathers = 0;
    gathered = 0;
    for (size_t at = 0; at < sizeof out; at += 50) {
        memset(out + at, 0, 50);
        assert_true(td_body_read(&body, &cursor, out + at, 50, NULL));
    }
    assert_true(gathers == 14 && reads <= 28 && gathered >= RUNS - 14);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], memory[3 + i / LEN * STRIDE + i % LEN]);
    td_body_fini(&body);
}

/* Runs close together are prefetched with the bytes between them, distant runs each by itself. */
static void close_runs_are_prefetched_together(void **state)
{
    (void)state;
    static const struct {
        uint64_t len, count, stride, wanted, calls, bytes;
    } cases[] = {
        {100, 1, 0, 1000, 1, 100},
        {100, 1, 0, 30, 1, 30},
        {100, 5, 200, 1000, 1, 900} /* up to the end of the last run */,
        {100, 5, 200, 300, 1, 300},
        {100, 5, 0, 1000, 1, 100} /* one run, repeated */,
        {100, 5, 100 + 65536, UINT64_MAX, 1, 4 * (100 + 65536) + 100},
        {100, 5, 101 + 65536, UINT64_MAX, 5, 500},
        {100, 5, 101 + 65536, 250, 3, 250},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_blob blob = {.class = &counting_class, .refs = 1, .len_bytes = 1 << 20};
        struct td_body body;
        td_body_init(&body);
        assert_true(td_body_append_runs(&body, &blob, 3, cases[i].len, cases[i].count, cases[i].stride, NULL));
        reads = 0;
        prefetched = 0;
        td_body_prefetch(&body, cases[i].wanted);
        CHECK((uint64_t)reads == cases[i].calls && prefetched == cases[i].bytes, "case %zu", i);
        td_body_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_runs_are_gathered_at_once),
        cmocka_unit_test(close_runs_are_prefetched_together),
        cmocka_unit_test(reading_equals_the_oracle),
        cmocka_unit_test(cutting_equals_slicing),
        cmocka_unit_test(taking_goes_on_where_it_ended),
        cmocka_unit_test(every_cut_of_a_progression),
        cmocka_unit_test(cutting_appends),
        cmocka_unit_test(nothing_appends_nothing),
        cmocka_unit_test(extents_that_leave_the_blob_are_refused),
        cmocka_unit_test(total_must_fit_64_bits),
        cmocka_unit_test(want_of_memory_is_an_error),
        cmocka_unit_test(one_blob_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
