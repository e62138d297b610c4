/* Composed blobs, compared with the same runs written out byte by byte. */
#include "storage/composed.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <pthread.h>

enum { SOURCES = 4, SOURCE_BYTES = 600, MOST_BYTES = 1 << 15, MOST_BLOCKS = 8, MOST_RUNS = 4 };

/* The sources, and the calls of their opener. */
struct library {
    struct td_blob *blobs[SOURCES];
    uint64_t bases[SOURCES];
    int opened[SOURCES], closed;
    uint32_t missing; /* the source that cannot be opened */
};

static bool library_open(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    struct library *library = context;
    if (source >= SOURCES) /* no assertion: threads open sources, too */
        return td_error_set(err, TD_INTERNAL, "there is no such source");
    if (source == library->missing)
        return td_error_set(err, TD_UNAVAILABLE, "it is gone");
    library->opened[source]++;
    *blob = td_blob_ref(library->blobs[source]);
    *base = library->bases[source];
    return true;
}

static void library_close(void *context)
{
    ((struct library *)context)->closed++;
}

static struct td_source_opener opener_of(struct library *library)
{
    return (struct td_source_opener){library, library_open, library_close};
}

static void library_make(struct library *library)
{
    *library = (struct library){.missing = SOURCES};
    for (uint32_t i = 0; i < SOURCES; i++) {
        char *data = malloc(SOURCE_BYTES);
        assert_non_null(data);
        for (size_t k = 0; k < SOURCE_BYTES; k++)
            data[k] = (char)(k * 37 + i * 101 + (k >> 5) + 1);
        assert_true(td_blob_from_heap(data, SOURCE_BYTES, &library->blobs[i], NULL));
        library->bases[i] = 7 * i;
    }
}

/* Frees the sources and checks that every reference was released and no source was opened twice. */
static void library_free(struct library *library)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        assert_int_equal(atomic_load(&library->blobs[i]->refs), 1);
        td_blob_unref(library->blobs[i]);
    }
}

FIXTURE(library, struct library, library_make, library_free)

struct naive {
    uint8_t bytes[MOST_BYTES];
    size_t len;
};

static void naive_append(struct naive *naive, const struct library *library, uint64_t rounds, const struct td_run *runs,
                         size_t run_count)
{
    for (uint64_t round = 0; round < rounds; round++)
        for (size_t r = 0; r < run_count; r++)
            for (uint64_t i = 0; i < runs[r].count; i++)
                for (uint64_t k = 0; k < runs[r].len; k++) {
                    const struct td_run *run = &runs[r];
                    assert_true(naive->len < MOST_BYTES);
                    naive->bytes[naive->len++] =
                        run->source == TD_RUN_ZEROS
                            ? 0
                            : library->blobs[run->source]->bytes[library->bases[run->source] + run->off +
                                                                 round * run->step + i * run->stride + k];
                }
}

/* Returns a random run within its source in every round; some are empty, and some have pieces that touch. */
static struct td_run random_run(uint64_t rounds, uint64_t *seed)
{
    struct td_run run = {.source = (uint32_t)random_below(seed, SOURCES + 1)};
    uint64_t room = SOURCE_BYTES - 7 * SOURCES;
    run.len = random_below(seed, 20);
    run.count = random_below(seed, 3) == 0 ? 1 + random_below(seed, 5) : 1;
    if (random_below(seed, 30) == 0)
        run.count = 0;
    if (run.source == SOURCES) {
        run.source = TD_RUN_ZEROS;
        return run;
    }
    room -= run.len;
    if (run.count > 1) {
        uint64_t most = room / (run.count - 1) < 40 ? room / (run.count - 1) : 40;
        run.stride = random_below(seed, 3) == 0 ? run.len : random_below(seed, most);
        room -= run.stride * (run.count - 1);
    }
    if (rounds > 1) {
        uint64_t most = room / (rounds - 1);
        uint64_t all = run.count > 1 ? run.count * run.stride : run.len;
        run.step = random_below(seed, 2) == 0 && all <= most ? all : random_below(seed, most + 1);
        room -= run.step * (rounds - 1);
    }
    run.off = random_below(seed, room + 1);
    return run;
}

static void random_layout(struct td_layout *layout, struct naive *naive, const struct library *library, uint64_t *seed)
{
    size_t blocks = random_below(seed, MOST_BLOCKS + 1);
    uint64_t end = 0; /* end of the last run, where the next may begin */
    uint32_t source = 0;
    for (size_t i = 0; i < blocks; i++) {
        struct td_run runs[MOST_RUNS];
        uint64_t rounds = random_below(seed, 2) == 0 ? 1 : random_below(seed, 6);
        size_t count = 1 + (random_below(seed, 3) == 0 ? random_below(seed, MOST_RUNS) : 0);
        for (size_t r = 0; r < count; r++)
            runs[r] = random_run(rounds, seed);
        if (random_below(seed, 3) == 0 && end < 400) {
            rounds = count = 1;
            runs[0] = (struct td_run){.source = source, .off = end, .len = 5, .count = 1};
        }
        source = runs[0].source == TD_RUN_ZEROS ? 0 : runs[0].source;
        end = runs[0].off + runs[0].len;
        assert_true(td_layout_append(layout, rounds, runs, count, NULL));
        naive_append(naive, library, rounds, runs, count);
    }
    assert_true(layout->total_bytes == naive->len);
}

/* Reads the body in pieces of random sizes and compares. */
static void check_body(const struct td_body *body, const uint8_t *wanted, size_t len, uint64_t *seed)
{
    struct td_body_cursor cursor = {0};
    uint8_t out[512];
    assert_true(body->total_bytes == len);
    for (size_t at = 0; at < len;) {
        size_t n = 1 + random_below(seed, sizeof out);
        n = n < len - at ? n : len - at;
        assert_true(td_body_read(body, &cursor, out, n, NULL));
        assert_memory_equal(out, wanted + at, n);
        at += n;
    }
}

static void body_over(struct td_body *body, struct td_blob *blob, size_t off, size_t len)
{
    td_body_init(body);
    assert_true(td_body_append(body, blob, off, len, NULL));
}

/* Checks that a range has the same bytes read through the blob, resolved and then cut, and cut and then resolved. */
static void check_range(struct td_blob *blob, const struct naive *naive, uint64_t *seed)
{
    uint8_t out[MOST_BYTES];
    struct td_body body;
    struct td_body cut;
    size_t off = random_below(seed, naive->len + 1);
    size_t len = random_below(seed, naive->len - off + 1);
    assert_true(td_blob_read(blob, off, out, len, NULL));
    assert_memory_equal(out, naive->bytes + off, len);
    body_over(&body, blob, 0, naive->len);
    assert_true(td_body_resolve(&body, NULL));
    check_body(&body, naive->bytes, naive->len, seed);
    td_body_init(&cut);
    assert_true(td_body_cut(&body, off, len, &cut, NULL));
    td_body_fini(&body);
    check_body(&cut, naive->bytes + off, len, seed);
    td_body_fini(&cut);
    body_over(&body, blob, off, len);
    assert_true(td_body_resolve(&body, NULL));
    check_body(&body, naive->bytes + off, len, seed);
    td_body_fini(&body);
}

static void composed_equals_the_naive_one(void **state)
{
    (void)state;
    uint64_t seed = 1;
    static struct naive naive;
    for (int round = 0; round < 3000; round++) {
        struct library library;
        struct td_blob *blob;
        struct td_layout *layout = td_layout_create(NULL, NULL);
        struct td_source_opener opener = opener_of(&library);
        library_make(&library);
        naive.len = 0;
        assert_non_null(layout);
        random_layout(layout, &naive, &library, &seed);
        assert_true(td_blob_composed(layout, &opener, &blob, NULL));
        td_layout_unref(layout);
        assert_true(blob->len_bytes == naive.len && blob->bytes == NULL);
        for (int i = 0; i < 5; i++)
            check_range(blob, &naive, &seed);
        assert_int_equal(library.closed, 0);
        td_blob_unref(blob);
        assert_int_equal(library.closed, 1);
        for (size_t i = 0; i < SOURCES; i++)
            assert_true(library.opened[i] <= 1);
        library_free(&library);
    }
}

/* Each row: an appended block, and the rounds, runs and first run that it becomes. */
static void blocks_take_their_simplest_form(void **state)
{
    (void)state;
    static const struct {
        uint64_t rounds;
        size_t count;
        struct td_run runs[3];
        size_t blocks;
        uint64_t rounds_left;
        size_t runs_left;
        struct td_run first;
    } cases[] = {
        {0, 1, {{0, 5, 3, 1, 0, 0}}, 0, 0, 0, {0}},
        {3, 0, {{0}}, 0, 0, 0, {0}},
        {3, 2, {{0, 5, 0, 9, 1, 1}, {0, 5, 9, 0, 1, 1}}, 0, 0, 0, {0}},
        {1, 1, {{0, 5, 3, 1, 77, 88}}, 1, 1, 1, {0, 5, 3, 1, 0, 0}},
        {1, 1, {{0, 5, 3, 4, 3, 0}}, 1, 1, 1, {0, 5, 12, 1, 0, 0}} /* pieces touch */,
        {1, 1, {{0, 5, 3, 4, 9, 88}}, 1, 1, 1, {0, 5, 3, 4, 9, 0}},
        {6, 1, {{0, 5, 3, 1, 0, 9}}, 1, 1, 1, {0, 5, 3, 6, 9, 0}} /* rows of a slice */,
        {6, 1, {{0, 5, 3, 1, 0, 3}}, 1, 1, 1, {0, 5, 18, 1, 0, 0}} /* rounds touch */,
        {6, 1, {{0, 5, 3, 2, 9, 18}}, 1, 1, 1, {0, 5, 3, 12, 9, 0}},
        {6, 1, {{0, 5, 3, 2, 3, 6}}, 1, 1, 1, {0, 5, 36, 1, 0, 0}},
        {6, 1, {{0, 5, 3, 2, 3, 8}}, 1, 1, 1, {0, 5, 6, 6, 8, 0}},
        {6, 1, {{0, 5, 3, 2, 9, 19}}, 1, 6, 1, {0, 5, 3, 2, 9, 19}} /* two levels stay */,
        {6, 1, {{0, 5, 3, 2, 9, 17}}, 1, 6, 1, {0, 5, 3, 2, 9, 17}},
        {6, 1, {{0, 5, 3, 2, 0, 0}}, 1, 1, 1, {0, 5, 3, 12, 0, 0}} /* the same bytes repeated */,
        {6, 2, {{0, 5, 3, 1, 0, 9}, {1, 0, 3, 1, 0, 9}}, 1, 6, 2, {0, 5, 3, 1, 0, 9}},
        {6, 2, {{0, 5, 0, 1, 0, 9}, {1, 0, 3, 1, 0, 9}}, 1, 1, 1, {1, 0, 3, 6, 9, 0}},
        {6, 1, {{TD_RUN_ZEROS, 0, 3, 4, 0, 0}}, 1, 1, 1, {TD_RUN_ZEROS, 0, 72, 1, 0, 0}},
        {6, 2, {{TD_RUN_ZEROS, 1, 3, 4, 2, 3}, {0, 1, 1, 1, 5, 5}}, 1, 6, 2, {TD_RUN_ZEROS, 0, 12, 1, 0, 0}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_layout *layout = td_layout_create(NULL, NULL);
        assert_non_null(layout);
        assert_true(td_layout_append(layout, cases[i].rounds, cases[i].runs, cases[i].count, NULL));
        CHECK(layout->block_count == cases[i].blocks, "case %zu", i);
        if (layout->block_count > 0) {
            const struct td_run *run = &layout->runs[0];
            const struct td_run *wanted = &cases[i].first;
            CHECK(layout->blocks[0].rounds == cases[i].rounds_left && layout->blocks[0].run_count == cases[i].runs_left,
                  "case %zu", i);
            CHECK(run->source == wanted->source && run->off == wanted->off && run->len == wanted->len &&
                      run->count == wanted->count && run->stride == wanted->stride && run->step == wanted->step,
                  "case %zu", i);
        }
        td_layout_unref(layout);
    }
}

static void append_piece(struct td_layout *layout, uint32_t source, uint64_t off, uint64_t len)
{
    const struct td_run run = {.source = source, .off = off, .len = len, .count = 1};
    assert_true(td_layout_append(layout, 1, &run, 1, NULL));
}

static void what_goes_on_is_one_block(void **state)
{
    (void)state;
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    append_piece(layout, 3, 10, 5);
    append_piece(layout, 3, 15, 6);
    assert_int_equal(layout->block_count, 1);
    append_piece(layout, 3, 20, 1); /* overlaps */
    append_piece(layout, 2, 21, 1); /* another source */
    append_piece(layout, 2, 23, 1); /* a gap */
    assert_int_equal(layout->block_count, 4);
    append_piece(layout, TD_RUN_ZEROS, 0, 4);
    append_piece(layout, TD_RUN_ZEROS, 9, 4);
    assert_int_equal(layout->block_count, 5);
    const struct td_run rows = {.source = 2, .off = 24, .len = 1, .count = 2, .stride = 3};
    assert_true(td_layout_append(layout, 1, &rows, 1, NULL));
    append_piece(layout, 2, 28, 1);
    assert_int_equal(layout->block_count, 7);
    assert_true(layout->total_bytes == 25 && layout->ends[6] == 25 && layout->ends[0] == 11);
    assert_int_equal(layout->source_count, 4);
    assert_true(td_layout_memory_bytes(layout) > sizeof *layout + 7 * sizeof *layout->runs);
    assert_ptr_equal(td_layout_ref(layout), layout);
    td_layout_unref(layout);
    td_layout_unref(layout);
    td_layout_unref(NULL);
}

static void numbers_past_64_bits_are_refused(void **state)
{
    (void)state;
    const uint64_t half = UINT64_C(1) << 63;
    const struct {
        uint64_t rounds;
        struct td_run run;
        bool ok;
    } cases[] = {
        {1, {0, 0, UINT64_MAX, 1, 0, 0}, true},
        {1, {0, 1, UINT64_MAX, 1, 0, 0}, false},
        {1, {0, UINT64_MAX, 1, 1, 0, 0}, false},
        {1, {0, UINT64_MAX - 1, 1, 1, 0, 0}, true},
        {1, {0, 0, half, 2, 0, 0}, false} /* len x count */,
        {2, {0, 0, half, 1, 0, 0}, false} /* rounds x len */,
        {half, {0, 0, 1, 2, 0, 0}, false},
        {1, {0, 0, 1, 2, UINT64_MAX, 0}, false},
        {1, {0, 0, 1, 2, UINT64_MAX - 1, 0}, true},
        {1, {0, 1, 1, 2, UINT64_MAX - 1, 0}, false},
        {1, {0, 0, 1, 3, half, 0}, false} /* count x stride wraps to 0 */,
        {3, {0, 0, 1, 1, 0, half}, false} /* rounds x step too */,
        {2, {0, 0, 1, 2, half, half}, false},
        {2, {0, 0, 1, 1, 0, UINT64_MAX - 1}, true},
        {1, {0, 0, 1, 1, UINT64_MAX, UINT64_MAX}, true} /* stride and step of one piece are ignored */,
        {UINT64_MAX, {0, 0, 1, 1, 0, 0}, true},
        {UINT64_MAX, {0, 0, 1, 1, 0, 1}, true},
        {UINT64_MAX, {0, 1, 1, 1, 0, 1}, false},
        {UINT64_MAX, {TD_RUN_ZEROS, UINT64_MAX, 1, 1, UINT64_MAX, UINT64_MAX}, true},
        {UINT64_MAX, {TD_RUN_ZEROS, 0, 2, 1, 0, 0}, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_layout *layout = td_layout_create(NULL, NULL);
        struct td_error err = TD_ERROR_INIT;
        assert_non_null(layout);
        bool ok = td_layout_append(layout, cases[i].rounds, &cases[i].run, 1, &err);
        CHECK(ok == cases[i].ok, "case %zu", i);
        CHECK(ok || (err.code == TD_INVALID_ARGUMENT && layout->block_count == 0 && layout->run_count == 0 &&
                     layout->total_bytes == 0 && layout->source_count == 0),
              "case %zu", i);
        td_layout_unref(layout);
    }
    struct td_layout *layout = td_layout_create(NULL, NULL);
    struct td_error err = TD_ERROR_INIT;
    const struct td_run two[] = {{0, 0, half, 1, 0, 0}, {1, 0, half, 1, 0, 0}};
    assert_non_null(layout);
    assert_false(td_layout_append(layout, 1, two, 2, &err));
    assert_true(td_layout_append(layout, 1, two, 1, NULL));
    assert_false(td_layout_append(layout, 1, two + 1, 1, NULL)); /* the total overflows */
    assert_true(layout->total_bytes == half && layout->block_count == 1 && layout->source_count == 1);
    td_layout_unref(layout);
}

/* Returns a layout of ten bytes of source 0, rows of source 1, zeros, and a column each of sources 2 and 3. */
static struct td_layout *mixed_layout(void)
{
    static const struct td_run rows = {.source = 1, .off = 3, .len = 4, .count = 5, .stride = 11};
    static const struct td_run columns[] = {{.source = 2, .len = 3, .count = 1, .step = 9},
                                            {.source = 3, .len = 2, .count = 1, .step = 9}};
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    append_piece(layout, 0, 0, 10);
    assert_true(td_layout_append(layout, 1, &rows, 1, NULL));
    append_piece(layout, TD_RUN_ZEROS, 0, 70000);
    assert_true(td_layout_append(layout, 4, columns, 2, NULL));
    assert_int_equal(layout->total_bytes, 70050);
    return layout;
}

static struct td_blob *mixed_blob(struct library *library)
{
    struct td_blob *blob;
    struct td_layout *layout = mixed_layout();
    struct td_source_opener opener = opener_of(library);
    library_make(library);
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    td_layout_unref(layout);
    return blob;
}

static void simple_blocks_become_extents(void **state)
{
    (void)state;
    struct library library;
    struct td_body body;
    struct td_blob *blob = mixed_blob(&library);
    body_over(&body, blob, 2, 70046);
    assert_true(td_body_resolve(&body, NULL));
    assert_int_equal(body.extent_count, 5);
    assert_ptr_equal(body.extents[0].blob, library.blobs[0]);
    assert_true(body.extents[0].off == 2 && body.extents[0].len == 8 && body.extents[0].count == 1);
    assert_ptr_equal(body.extents[1].blob, library.blobs[1]);
    assert_true(body.extents[1].off == 10 && body.extents[1].len == 4 && body.extents[1].count == 5 &&
                body.extents[1].stride == 11);
    assert_true(body.extents[2].len == 65536 && body.extents[2].stride == 0);
    assert_true(body.extents[3].len == 70000 - 65536);
    assert_ptr_equal(body.extents[4].blob, blob);
    assert_true(body.extents[4].off == 70030 && body.extents[4].len == 18);
    assert_true(body.total_bytes == 70046);
    assert_false(td_body_is_pinned(&body)); /* columns are joined in a window */
    td_body_fini(&body);
    body_over(&body, blob, 2, 70028);
    assert_false(td_body_is_pinned(&body));
    assert_true(td_body_resolve(&body, NULL));
    assert_true(td_body_is_pinned(&body) && td_body_run_count(&body) == 8); /* all in the process's memory */
    td_body_fini(&body);
    td_blob_unref(blob);
    library_free(&library);
}

static void many_zeros_take_little_memory(void **state)
{
    enum { ZEROS = 200000 };
    static char out[ZEROS];
    struct library *library = *state;
    struct td_blob *blob;
    struct td_body body;
    struct td_body_cursor cursor = {0};
    struct td_source_opener opener = opener_of(library);
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    append_piece(layout, TD_RUN_ZEROS, 0, ZEROS);
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    body_over(&body, blob, 0, ZEROS);
    assert_true(td_body_resolve(&body, NULL));
    assert_true(body.extent_count == 2 && body.extents[0].blob->len_bytes <= 65536);
    assert_true(td_body_is_pinned(&body) && td_body_run_count(&body) == 4);
    memset(out, 1, ZEROS);
    assert_true(td_body_read(&body, &cursor, out, ZEROS, NULL));
    for (size_t i = 0; i < ZEROS; i++)
        assert_int_equal(out[i], 0);
    td_body_fini(&body);
    td_blob_unref(blob);
    td_layout_unref(layout);
}

/* Two sources are parts of one blob, one after the other. */
static void extents_that_touch_are_joined(void **state)
{
    struct library *library = *state;
    struct td_blob *blob;
    struct td_body body;
    struct td_source_opener opener = opener_of(library);
    struct td_layout *layout = td_layout_create(NULL, NULL);
    td_blob_unref(library->blobs[1]);
    library->blobs[1] = td_blob_ref(library->blobs[0]);
    library->bases[0] = 5;
    library->bases[1] = 25;
    assert_non_null(layout);
    append_piece(layout, 0, 0, 20);
    append_piece(layout, 1, 0, 30);
    append_piece(layout, 0, 50, 10);
    append_piece(layout, 0, 70, 10); /* a gap before it */
    append_piece(layout, 2, 66, 10); /* another blob */
    assert_int_equal(layout->block_count, 5);
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    body_over(&body, blob, 1, 79);
    assert_true(td_body_resolve(&body, NULL));
    assert_int_equal(body.extent_count, 3);
    assert_true(body.extents[0].off == 6 && body.extents[0].len == 59 && body.total_bytes == 79);
    td_body_fini(&body);
    td_blob_unref(blob);
    td_layout_unref(layout);
    td_blob_unref(library->blobs[1]);
    assert_true(td_blob_from_heap(NULL, 0, &library->blobs[1], NULL));
}

static void only_what_is_needed_is_opened(void **state)
{
    (void)state;
    struct library library;
    struct td_body body;
    char out[8];
    struct td_blob *blob = mixed_blob(&library);
    body_over(&body, blob, 10, 20);
    assert_true(td_body_resolve(&body, NULL));
    td_body_fini(&body);
    assert_true(library.opened[0] == 0 && library.opened[1] == 1 && library.opened[2] == 0);
    assert_true(td_blob_read(blob, 70031, out, 2, NULL));
    assert_true(library.opened[2] == 1 && library.opened[3] == 0);
    assert_true(td_blob_read(blob, 70031, out, 3, NULL));
    assert_true(library.opened[0] == 0 && library.opened[1] == 1 && library.opened[2] == 1 && library.opened[3] == 1);
    td_blob_unref(blob);
    library_free(&library);
}

static void other_bodies_are_left_alone(void **state)
{
    (void)state;
    struct library library;
    struct td_body body;
    struct td_blob *blob = mixed_blob(&library);
    body_over(&body, library.blobs[0], 0, 10);
    assert_true(td_body_append(&body, library.blobs[0], 10, 10, NULL));
    const struct td_extent *extents = body.extents;
    assert_true(td_body_resolve(&body, NULL));
    assert_true(body.extents == extents && body.extent_count == 2);
    /* plain extents stay in place beside a composed blob; an extent of several runs of a composed blob stays as it
     * is */
    assert_true(td_body_append(&body, blob, 3, 2, NULL));
    assert_true(td_body_append_runs(&body, blob, 0, 2, 3, 4, NULL));
    assert_true(td_body_resolve(&body, NULL));
    assert_int_equal(body.extent_count, 3);
    assert_true(body.extents[0].len == 20 && body.extents[1].off == 3 && body.extents[1].len == 2);
    assert_ptr_equal(body.extents[2].blob, blob);
    assert_true(body.extents[2].count == 3 && body.total_bytes == 28);
    td_body_fini(&body);
    td_body_init(&body);
    assert_true(td_body_resolve(&body, NULL));
    td_blob_unref(blob);
    library_free(&library);
}

/* A body of more than TD_RESOLVE_BLOCKS blocks is read through the composed blob, so that its memory does not grow with
 * a plan. */
static void very_many_blocks_stay(void **state)
{
    struct library *library = *state;
    struct td_blob *blob;
    struct td_body body;
    uint64_t seed = 5;
    static struct naive naive;
    struct td_source_opener opener = opener_of(library);
    struct td_layout *layout = td_layout_create(NULL, NULL);
    naive.len = 0;
    assert_non_null(layout);
    for (uint32_t i = 0; i < TD_RESOLVE_BLOCKS + 2; i++) {
        const struct td_run run = {.source = i % SOURCES, .off = i % 500, .len = 2, .count = 1};
        append_piece(layout, run.source, run.off, run.len);
        naive_append(&naive, library, 1, &run, 1);
    }
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    td_layout_unref(layout);
    body_over(&body, blob, 0, naive.len);
    assert_true(td_body_resolve(&body, NULL));
    assert_int_equal(body.extent_count, 1);
    check_body(&body, naive.bytes, naive.len, &seed);
    td_body_fini(&body);
    body_over(&body, blob, 1, 2 * TD_RESOLVE_BLOCKS - 1);
    assert_true(td_body_resolve(&body, NULL));
    assert_int_equal(body.extent_count, TD_RESOLVE_BLOCKS);
    check_body(&body, naive.bytes + 1, 2 * TD_RESOLVE_BLOCKS - 1, &seed);
    td_body_fini(&body);
    td_blob_unref(blob);
}

/* The layout, its blob and the window of a reader take memory from one budget. Resolving to the sources gives the
 * blob's memory back. */
static void budgets_are_held_by_what_takes_memory(void **state)
{
    struct library *library = *state;
    struct td_blob *blob = NULL;
    struct td_body body;
    struct td_budget budget;
    struct td_error err = TD_ERROR_INIT;
    struct td_source_opener opener = opener_of(library);
    td_budget_init(&budget, 100000, "files");
    struct td_layout *layout = td_layout_create(&budget, NULL);
    assert_non_null(layout);
    append_piece(layout, 1, 0, 100);
    append_piece(layout, 0, 0, 10);
    td_layout_fit(layout);
    size_t layout_bytes = td_layout_memory_bytes(layout);
    assert_int_equal(td_budget_used(&budget), layout_bytes);
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    assert_true(td_budget_used(&budget) > layout_bytes + 110);
    body_over(&body, blob, 0, 110);
    td_blob_unref(blob);
    assert_true(td_body_resolve(&body, NULL));
    assert_int_equal(td_budget_used(&budget), layout_bytes);
    td_body_fini(&body);
    budget.max_bytes = layout_bytes + 10;
    assert_false(td_blob_composed(layout, &opener, &blob, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    td_layout_unref(layout);
    assert_int_equal(td_budget_used(&budget), 0);
}

static void what_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    struct library library;
    struct td_body body;
    struct td_error err;
    char out[8];
    static const uint64_t places[SOURCES] = {0, 10, 70030, 70033};
    struct td_blob *blob = mixed_blob(&library);
    for (uint32_t missing = 0; missing < SOURCES; missing++) {
        library.missing = missing;
        td_error_init(&err);
        body_over(&body, blob, 0, 70050);
        bool read_by_windows = missing > 1;
        assert_true(td_body_resolve(&body, &err) == read_by_windows);
        if (!read_by_windows) {
            assert_true(body.extent_count == 1 && body.extents[0].blob == blob && err.code == TD_UNAVAILABLE);
        }
        td_body_fini(&body);
        td_error_init(&err);
        bool ok = td_blob_read(blob, places[missing], out, 2, &err);
        assert_true(!ok && err.code == TD_UNAVAILABLE);
        library.missing = SOURCES; /* the source is there again and is opened */
        assert_true(td_blob_read(blob, places[missing], out, 2, NULL));
    }
    td_blob_unref(blob);
    library_free(&library);
}

static void runs_stay_within_their_sources(void **state)
{
    (void)state;
    static const struct {
        uint64_t rounds;
        struct td_run run;
        uint64_t base;
        bool ok;
    } cases[] = {
        {1, {0, 0, 600, 1, 0, 0}, 0, true},
        {1, {0, 0, 600, 1, 0, 0}, 1, false},
        {1, {0, 0, 601, 1, 0, 0}, 0, false},
        {1, {0, 590, 2, 2, 8, 0}, 0, true},
        {1, {0, 590, 2, 2, 8, 0}, 1, false},
        {1, {0, 10, 1, 1, 0, 0}, UINT64_MAX - 9, false} /* base + off wraps to 0 */,
        {1, {0, 10, 1, 2, 5, 0}, UINT64_MAX - 12, false},
        {3, {0, 0, 2, 2, 5, 100}, 393, true},
        {3, {0, 0, 2, 2, 5, 100}, 394, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct library library;
        struct td_blob *blob;
        struct td_body body;
        struct td_error err = TD_ERROR_INIT;
        char out[1024];
        struct td_source_opener opener = opener_of(&library);
        struct td_layout *layout = td_layout_create(NULL, NULL);
        library_make(&library);
        library.bases[0] = cases[i].base;
        assert_non_null(layout);
        assert_true(td_layout_append(layout, cases[i].rounds, &cases[i].run, 1, NULL));
        assert_true(td_blob_composed(layout, &opener, &blob, NULL));
        CHECK(td_blob_read(blob, 0, out, layout->total_bytes, &err) == cases[i].ok, "case %zu", i);
        CHECK(err.code == (cases[i].ok ? TD_OK : TD_INTERNAL), "case %zu", i);
        body_over(&body, blob, 0, layout->total_bytes);
        CHECK(td_body_resolve(&body, NULL) == (cases[i].ok || cases[i].rounds > 1), "case %zu", i);
        td_body_fini(&body);
        td_blob_unref(blob);
        td_layout_unref(layout);
        library_free(&library);
    }
}

struct watched {
    struct td_blob blob;
    bool unchanged;
};

static void watched_destroy(struct td_blob *blob)
{
    (void)blob;
}

static bool watched_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)blob;
    (void)off;
    (void)err;
    memset(out, 1, len);
    return true;
}

static bool watched_unchanged(struct td_blob *blob)
{
    return ((struct watched *)(void *)blob)->unchanged;
}

static const struct td_blob_class watched_class = {
    .destroy = watched_destroy, .read = watched_read, .unchanged = watched_unchanged};

static bool watched_open(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    struct watched *watched = context;
    (void)err;
    *base = 0;
    *blob = td_blob_ref(&watched[source].blob);
    return true;
}

static void watched_close(void *context)
{
    (void)context;
}

/* The composed blob is unchanged if all sources that were opened are; other sources do not count. */
static void changes_of_opened_sources_count(void **state)
{
    (void)state;
    struct watched watched[SOURCES];
    struct td_blob *blob;
    struct td_body body;
    char out[20];
    struct td_layout *layout = mixed_layout();
    const struct td_source_opener opener = {watched, watched_open, watched_close};
    for (size_t i = 0; i < SOURCES; i++)
        watched[i] =
            (struct watched){{.class = &watched_class, .refs = 1, .len_bytes = SOURCE_BYTES}, .unchanged = true};
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    td_layout_unref(layout);
    watched[0].unchanged = watched[2].unchanged = false;
    assert_true(td_blob_read(blob, 10, out, 20, NULL));
    assert_true(td_blob_unchanged(blob));
    watched[1].unchanged = false;
    assert_false(td_blob_unchanged(blob));
    watched[1].unchanged = true;
    body_over(&body, blob, 15, 70030);
    assert_true(td_body_resolve(&body, NULL));
    assert_true(td_body_unchanged(&body)); /* sources 2 and 3 are not open yet */
    watched[1].unchanged = false;
    assert_false(td_body_unchanged(&body));
    watched[1].unchanged = watched[2].unchanged = true;
    assert_true(td_blob_read(blob, 70030, out, 20, NULL));
    assert_true(td_body_unchanged(&body));
    for (size_t i = 1; i < SOURCES; i++) {
        watched[i].unchanged = false;
        assert_false(td_body_unchanged(&body));
        watched[i].unchanged = true;
    }
    td_body_fini(&body);
    td_blob_unref(blob);
    for (size_t i = 0; i < SOURCES; i++)
        assert_int_equal(atomic_load(&watched[i].blob.refs), 1);
}

static uint64_t prepared_at; /* UINT64_MAX: no call */

static bool damaged_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    (void)blob;
    (void)len;
    (void)for_head;
    prepared_at = off;
    return td_error_set(err, TD_FAILED_PRECONDITION, "damaged");
}

/* Only the source at the beginning of a range is prepared, not those before or far behind. */
static void damage_is_met_before_reading(void **state)
{
    (void)state;
    static const struct td_blob_class damaged_class = {
        .destroy = watched_destroy, .read = watched_read, .prepare = damaged_prepare};
    static const struct {
        size_t damaged;
        uint64_t off, len, prepared;
    } cases[] = {
        {0, 0, 70050, 0},           {0, 1, 70049, UINT64_MAX},  {1, 0, 70050, 3}, {1, 10, 1, 3},
        {1, 0, 10, UINT64_MAX},     {1, 11, 70039, UINT64_MAX}, {2, 0, 70050, 0}, {2, 70030, 20, 0},
        {2, 70033, 17, UINT64_MAX}, {3, 0, 70050, UINT64_MAX},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        struct watched watched[SOURCES];
        struct td_blob *blob;
        struct td_error err = TD_ERROR_INIT;
        struct td_layout *layout = mixed_layout();
        const struct td_source_opener opener = {watched, watched_open, watched_close};
        for (size_t i = 0; i < SOURCES; i++)
            watched[i] = (struct watched){{.class = i == cases[k].damaged ? &damaged_class : &watched_class,
                                           .refs = 1,
                                           .len_bytes = SOURCE_BYTES},
                                          .unchanged = true};
        assert_true(td_blob_composed(layout, &opener, &blob, NULL));
        td_layout_unref(layout);
        prepared_at = UINT64_MAX;
        bool ok = td_blob_prepare(blob, cases[k].off, cases[k].len, k % 2 == 0, &err);
        CHECK(prepared_at == cases[k].prepared, "%zu: %llu", k, (unsigned long long)prepared_at);
        CHECK(ok == (cases[k].prepared == UINT64_MAX) && (ok || err.code == TD_FAILED_PRECONDITION), "%zu", k);
        td_blob_unref(blob);
    }
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    struct td_run runs[3];
    size_t appended = 0;
    for (size_t i = 0; i < COUNT_OF(runs); i++)
        runs[i] = (struct td_run){.source = (uint32_t)i, .len = 1, .count = 1, .step = 9};
    for (size_t k = 1; appended < 40; k++) { /* fails each allocation of forty blocks once */
        struct td_error err = TD_ERROR_INIT;
        alloc_count_start();
        alloc_fail_at(k);
        struct td_layout *layout = td_layout_create(NULL, NULL);
        assert_true(layout != NULL || k == 1);
        appended = 0;
        while (layout != NULL && appended < 40 && td_layout_append(layout, 2, runs, 3, &err))
            appended++;
        alloc_fail_at(0);
        if (layout != NULL && appended < 40) {
            assert_true(err.code == TD_RESOURCE_EXHAUSTED && layout->total_bytes == 6 * appended);
            assert_true(layout->block_count == appended && layout->run_count == 3 * appended);
            assert_true(td_layout_append(layout, 2, runs, 3, NULL));
        }
        td_layout_unref(layout);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
}

static void want_of_memory_while_resolving(void **state)
{
    struct library *library = *state;
    struct td_blob *blob = NULL;
    struct td_body body;
    struct td_error err = TD_ERROR_INIT;
    struct td_layout *layout = mixed_layout();
    struct td_source_opener opener = opener_of(library);
    alloc_fail_at(1);
    assert_false(td_blob_composed(layout, &opener, &blob, &err));
    alloc_fail_at(0);
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && library->closed == 1);
    assert_int_equal(atomic_load(&layout->refs), 1);
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    body_over(&body, blob, 0, 70050);
    size_t k = 1;
    for (;; k++) {
        td_error_init(&err);
        alloc_fail_at(k);
        bool ok = td_body_resolve(&body, &err);
        alloc_fail_at(0);
        if (ok)
            break;
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        assert_true(body.extent_count == 1 && body.extents[0].blob == blob && body.total_bytes == 70050);
    }
    assert_true(k > 4);
    td_body_fini(&body);
    td_blob_unref(blob);
    assert_int_equal(library->closed, 2);
    td_layout_unref(layout);
}

struct reader {
    pthread_t thread;
    struct td_blob *blob;
    char out[60];
    int failed; /* readings */
};

static void *read_often(void *context)
{
    struct reader *reader = context;
    for (int i = 0; i < 50; i++)
        reader->failed += !td_blob_read(reader->blob, 0, reader->out, 30, NULL) ||
                          !td_blob_read(reader->blob, 70030, reader->out + 30, 20, NULL) ||
                          !td_blob_unchanged(reader->blob);
    return NULL;
}

static void threads_share_a_blob(void **state)
{
    (void)state;
    struct library library;
    struct reader readers[4];
    struct td_blob *blob = mixed_blob(&library);
    for (size_t i = 0; i < COUNT_OF(readers); i++) {
        readers[i] = (struct reader){.blob = td_blob_ref(blob)};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_often, &readers[i]), 0);
    }
    td_blob_unref(blob);
    for (size_t i = 0; i < COUNT_OF(readers); i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(readers[i].failed, 0);
        assert_memory_equal(readers[i].out, readers[0].out, 50);
        td_blob_unref(readers[i].blob);
    }
    assert_int_equal(library.closed, 1);
    for (size_t i = 0; i < SOURCES; i++)
        assert_int_equal(library.opened[i], 1);
    library_free(&library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composed_equals_the_naive_one),     cmocka_unit_test(blocks_take_their_simplest_form),
        cmocka_unit_test(what_goes_on_is_one_block),         cmocka_unit_test(numbers_past_64_bits_are_refused),
        cmocka_unit_test(simple_blocks_become_extents),      TEST_IN(library, many_zeros_take_little_memory),
        TEST_IN(library, extents_that_touch_are_joined),     cmocka_unit_test(only_what_is_needed_is_opened),
        cmocka_unit_test(other_bodies_are_left_alone),       TEST_IN(library, very_many_blocks_stay),
        cmocka_unit_test(what_cannot_be_opened_is_an_error), TEST_IN(library, budgets_are_held_by_what_takes_memory),
        cmocka_unit_test(runs_stay_within_their_sources),    cmocka_unit_test(changes_of_opened_sources_count),
        cmocka_unit_test(damage_is_met_before_reading),      cmocka_unit_test(want_of_memory_is_an_error),
        TEST_IN(library, want_of_memory_while_resolving),    cmocka_unit_test(threads_share_a_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
