#include "storage/tiled.h"

#include "tests/unit/alloc_trials.h"

enum { MAX_RANK = 4, MAX_TILES = 64, MAX_BYTES = 16384 };

struct lines {
    size_t count;
    uint64_t at[5]; /* the starts of the cells; the first is 0 */
};

struct layout {
    uint32_t elem, rank;
    uint64_t shape[MAX_RANK];
    struct lines lines[MAX_RANK];
};

static const struct layout layouts[] = {
    {4, 0, {0}, {{0, {0}}}},
    {1, 1, {10}, {{1, {0}}}},
    {2, 1, {10}, {{3, {0, 4, 9}}}},
    {4, 2, {6, 5}, {{2, {0, 3}}, {1, {0}}}} /* rows, as FSDP shards */,
    {4, 2, {6, 5}, {{1, {0}}, {2, {0, 2}}}} /* columns */,
    {4, 2, {6, 5}, {{3, {0, 1, 5}}, {2, {0, 4}}}},
    {3, 3, {4, 3, 5}, {{2, {0, 2}}, {3, {0, 1, 2}}, {2, {0, 3}}}},
    {8, 3, {4, 3, 5}, {{2, {0, 1}}, {1, {0}}, {1, {0}}}},
    {2, 4, {2, 3, 2, 4}, {{2, {0, 1}}, {1, {0}}, {2, {0, 1}}, {2, {0, 2}}}},
};

/* The tiles of a layout, last cell first, each in a source of its own at an offset of its own. The numbers of the parts
 * have gaps and fall. */
struct tiling {
    struct td_tile tiles[MAX_TILES];
    struct td_blob *sources[MAX_TILES]; /* by part */
    uint64_t starts[MAX_TILES][MAX_RANK], sizes[MAX_TILES][MAX_RANK];
    size_t count;
    uint8_t wanted[MAX_BYTES];
    size_t len;
};

static uint8_t byte_of(uint64_t elem, uint32_t k)
{
    return (uint8_t)(elem * 37 + k * 101 + (elem >> 5));
}

static void fill_source(const struct layout *l, struct tiling *t, size_t tile)
{
    uint64_t count = 1;
    uint64_t index[MAX_RANK] = {0};
    for (uint32_t i = 0; i < l->rank; i++)
        count *= t->sizes[tile][i];
    uint64_t off = 3 + tile;
    uint8_t *data = calloc(1, off + count * l->elem);
    assert_non_null(data);
    for (uint64_t n = 0; n < count; n++) {
        uint64_t elem = 0;
        for (uint32_t i = 0; i < l->rank; i++)
            elem = elem * l->shape[i] + t->starts[tile][i] + index[i];
        for (uint32_t k = 0; k < l->elem; k++)
            data[off + n * l->elem + k] = byte_of(elem, k);
        for (uint32_t i = l->rank; i-- > 0 && ++index[i] == t->sizes[tile][i];)
            index[i] = 0;
    }
    struct td_blob *blob = NULL;
    assert_true(td_blob_from_heap((char *)data, off + count * l->elem, &blob, NULL));
    size_t part = t->count - 1 - tile;
    t->sources[part] = blob;
    t->tiles[tile] = (struct td_tile){
        .part = (uint32_t)part * 3 + 1, .off = off, .starts = t->starts[tile], .sizes = t->sizes[tile]};
}

static void tiling_open(const struct layout *l, struct tiling *t)
{
    memset(t, 0, sizeof *t);
    t->count = 1;
    t->len = l->elem;
    for (uint32_t i = 0; i < l->rank; i++) {
        t->count *= l->lines[i].count;
        t->len *= l->shape[i];
    }
    for (size_t k = 0; k < t->len; k++)
        t->wanted[k] = byte_of(k / l->elem, (uint32_t)(k % l->elem));
    for (size_t tile = 0; tile < t->count; tile++) {
        size_t cell = t->count - 1 - tile;
        for (uint32_t i = l->rank; i-- > 0;) {
            size_t line = cell % l->lines[i].count;
            cell /= l->lines[i].count;
            uint64_t end = line + 1 < l->lines[i].count ? l->lines[i].at[line + 1] : l->shape[i];
            t->starts[tile][i] = l->lines[i].at[line];
            t->sizes[tile][i] = end - l->lines[i].at[line];
        }
        fill_source(l, t, tile);
    }
}

static void tiling_close(struct tiling *t)
{
    for (size_t i = 0; i < t->count; i++) {
        assert_int_equal(t->sources[i]->refs, 1);
        td_blob_unref(t->sources[i]);
    }
}

static bool make_grid(const struct layout *l, const struct tiling *t, size_t count, struct td_grid **grid,
                      struct td_error *err)
{
    return td_grid_create(t->tiles, count, l->elem, l->rank, l->shape, grid, err);
}

static void pieces_are_put_together(void **state)
{
    (void)state;
    static struct tiling t;
    uint8_t got[MAX_BYTES];
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        const struct layout *l = &layouts[i];
        struct td_grid *grid;
        struct td_blob *blob;
        size_t part_count;
        tiling_open(l, &t);
        CHECK(make_grid(l, &t, t.count, &grid, NULL), "layout %zu", i);
        const uint32_t *parts = td_grid_parts(grid, &part_count);
        assert_int_equal(part_count, t.count);
        for (size_t k = 0; k < part_count; k++)
            assert_int_equal(parts[k], k * 3 + 1);
        memset(t.starts, 0x55, sizeof t.starts); /* the grid has its own copies */
        memset(t.sizes, 0x55, sizeof t.sizes);
        CHECK(td_blob_tiled(grid, t.sources, &blob, NULL), "layout %zu", i);
        td_grid_unref(grid); /* the blob has its own reference */
        assert_int_equal(blob->len_bytes, t.len);
        assert_true(td_blob_unchanged(blob) && blob->bytes == NULL);
        for (size_t off = 0; off <= t.len; off++) {
            for (size_t n = 0; n <= t.len - off; n += 1 + n / 5) {
                memset(got, 0x5a, sizeof got);
                assert_true(td_blob_read(blob, off, got, n, NULL));
                CHECK(memcmp(got, t.wanted + off, n) == 0 && got[n] == 0x5a, "layout %zu at %zu, %zu bytes", i, off, n);
            }
        }
        td_blob_unref(blob);
        tiling_close(&t);
    }
}

/* Changes one box in each way that makes a gap, an overlap or a box outside the array. */
static void gaps_and_overlaps_are_refused(void **state)
{
    (void)state;
    static struct tiling t;
    for (size_t i = 1; i < COUNT_OF(layouts); i++) {
        const struct layout *l = &layouts[i];
        tiling_open(l, &t);
        for (size_t tile = 0; tile < t.count; tile++) {
            for (uint32_t d = 0; d < l->rank; d++) {
                uint64_t *const numbers[] = {&t.starts[tile][d], &t.sizes[tile][d]};
                for (size_t k = 0; k < 2; k++) {
                    uint64_t was = *numbers[k];
                    const uint64_t others[] = {was + 1, was - 1, 0, l->shape[d], UINT64_MAX, UINT64_C(1) << 63};
                    for (size_t o = 0; o < COUNT_OF(others); o++) {
                        struct td_grid *grid;
                        struct td_error err = TD_ERROR_INIT;
                        if (others[o] == was)
                            continue;
                        *numbers[k] = others[o];
                        CHECK(!make_grid(l, &t, t.count, &grid, &err), "layout %zu tile %zu dimension %u", i, tile, d);
                        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
                        *numbers[k] = was;
                    }
                }
            }
        }
        struct td_grid *grid;
        assert_false(make_grid(l, &t, t.count - 1, &grid, NULL)); /* one tile missing, or none left */
        t.tiles[t.count] = t.tiles[0];
        assert_false(make_grid(l, &t, t.count + 1, &grid, NULL)); /* one tile twice */
        tiling_close(&t);
    }
}

static void pieces_stay_within_their_sources(void **state)
{
    (void)state;
    static struct tiling t;
    const struct layout *l = &layouts[5];
    tiling_open(l, &t);
    for (size_t i = 0; i < t.count; i++) {
        const uint64_t was = t.tiles[i].off;
        const uint64_t others[] = {was + 1, UINT64_MAX - 1};
        for (size_t k = 0; k < COUNT_OF(others); k++) {
            struct td_grid *grid = NULL;
            struct td_blob *blob = NULL;
            struct td_error err = TD_ERROR_INIT;
            t.tiles[i].off = others[k];
            bool ok = make_grid(l, &t, t.count, &grid, &err);
            assert_int_equal(ok, k == 0); /* the second offset ends past 2^64 */
            assert_false(ok && td_blob_tiled(grid, t.sources, &blob, &err));
            assert_int_equal(err.code, ok ? TD_INTERNAL : TD_INVALID_ARGUMENT);
            td_grid_unref(grid);
        }
        t.tiles[i].off = was;
    }
    tiling_close(&t);
}

static void sizes_stay_below_2_64(void **state)
{
    (void)state;
    static const uint64_t zero[2] = {0, 0};
    static const uint64_t shape[2] = {UINT64_C(1) << 61, 2};
    const struct td_tile tile = {.starts = zero, .sizes = shape};
    for (uint32_t elem = 1; elem <= 8; elem *= 2) {
        struct td_grid *grid = NULL;
        assert_int_equal(td_grid_create(&tile, 1, elem, 2, shape, &grid, NULL), elem <= 2);
        td_grid_unref(grid);
    }
}

/* Makes a grid of one row of single elements in two files. */
static struct td_grid *row_of(size_t count, struct alloc_count *made)
{
    struct td_tile *tiles = calloc(count, sizeof *tiles);
    uint64_t *starts = calloc(count, sizeof *starts);
    uint64_t one = 1;
    uint64_t shape = count;
    struct td_grid *grid = NULL;
    assert_true(tiles != NULL && starts != NULL);
    for (size_t i = 0; i < count; i++) {
        starts[i] = i;
        tiles[i] =
            (struct td_tile){.part = (uint32_t)(i % 2), .off = (i / 2) % 16, .starts = &starts[i], .sizes = &one};
    }
    alloc_count_start();
    assert_true(td_grid_create(tiles, count, 1, 1, &shape, &grid, NULL));
    *made = alloc_count_get();
    free(tiles);
    free(starts);
    return grid;
}

static size_t asked;

static bool note_asked(struct td_blob *blob)
{
    (void)blob;
    asked++;
    return true;
}

/* A request costs the same with a million pieces as with two: it maps each part once, and its blob checks each part for
 * changes once. The grid's memory is within td_grid_memory_bytes. */
/* shows: security.md content-dcp-pieces */
static void a_request_does_not_pay_for_pieces(void **state)
{
    (void)state;
    static const size_t counts[] = {2, 1000, SANITIZED ? 100000 : 1000000};
    static const struct td_blob_class class = {.unchanged = note_asked};
    struct td_blob source = {.class = &class, .refs = 1, .len_bytes = 16};
    struct td_blob *const sources[] = {&source, &source};
    size_t first_bytes = 0;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct td_blob *blob = NULL;
        struct alloc_count made;
        size_t part_count;
        struct td_grid *grid = row_of(counts[i], &made);
        enum { BLOCKS = 5, ROUNDED = 4096 }; /* for malloc's rounding up */
        assert_true(made.live_bytes <= td_grid_memory_bytes((uint32_t)counts[i], 1) + BLOCKS * ROUNDED);
        (void)td_grid_parts(grid, &part_count);
        assert_int_equal(part_count, 2);
        alloc_count_start();
        assert_true(td_blob_tiled(grid, sources, &blob, NULL));
        struct alloc_count now = alloc_count_get();
        assert_int_equal(now.calls, 1);
        if (i == 0)
            first_bytes = now.peak_bytes;
        assert_int_equal(now.peak_bytes, first_bytes);
        asked = 0;
        assert_true(td_blob_unchanged(blob));
        assert_int_equal(asked, 2);
        td_blob_unref(blob);
        td_grid_unref(grid);
    }
    assert_int_equal(source.refs, 1);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    static struct tiling t;
    const struct layout *l = &layouts[6];
    tiling_open(l, &t);
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_grid *grid = NULL;
        struct td_blob *blob = NULL;
        struct td_error err = TD_ERROR_INIT;
        bool ok = make_grid(l, &t, t.count, &grid, &err) && td_blob_tiled(grid, t.sources, &blob, &err);
        alloc_tried(&trials, ok, &err);
        td_grid_unref(grid);
        td_blob_unref(blob);
    }
    assert_true(trials.k > 6);
    tiling_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_put_together),           cmocka_unit_test(gaps_and_overlaps_are_refused),
        cmocka_unit_test(pieces_stay_within_their_sources),  cmocka_unit_test(sizes_stay_below_2_64),
        cmocka_unit_test(a_request_does_not_pay_for_pieces), cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
