/* Layouts of selections and of plans, compared with the results of NumPy and torch: tests/data/slices.txt,
 * joins.txt. */
#include "slicing/runs.h"

#include "tests/unit/alloc_trials.h"
#include "tests/unit/slicing/shape_text.h"
#include "tests/unit/slicing/tensor_library.h"

#include <zlib.h>

enum { LINE_BYTES = 1024, LARGEST = 1 << 16, MOST_PIECES = 16 };

static uint64_t product(const struct shape *shape)
{
    uint64_t all = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        all *= shape->sizes[i];
    return all;
}

/* Adds a tensor of the numbers from `first` on. */
static void add_range(struct tensor_library *library, const struct shape *shape, uint32_t first)
{
    uint8_t *bytes = library_add(library, "t", "I32", shape->rank, shape->sizes);
    for (uint64_t i = 0; i < product(shape); i++, first++)
        for (size_t k = 0; k < 4; k++)
            *bytes++ = (uint8_t)(first >> 8 * k);
}

static unsigned long layout_crc(struct tensor_library *library, struct td_layout *layout)
{
    uint8_t *bytes = library_read(library, layout);
    unsigned long crc = crc32(crc32(0, NULL, 0), bytes, (unsigned)layout->total_bytes);
    free(bytes);
    return crc;
}

static bool select_line(char *line)
{
    char kept[LINE_BYTES];
    char *rest = NULL;
    memcpy(kept, line, LINE_BYTES);
    bool slice = strcmp(strtok_r(line, " ", &rest), "slice") == 0;
    const char *text = strtok_r(NULL, " ", &rest);
    struct shape shape = shape_of(strtok_r(NULL, " ", &rest));
    bool refused = strcmp(strtok_r(NULL, " ", &rest), "error") == 0;
    if (refused || product(&shape) >= LARGEST)
        return false;
    struct td_selection selection;
    struct tensor_library library = {0};
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    assert_true((slice ? td_slice_parse : td_shard_parse)(td_text_of(text), shape.rank, shape.sizes, &selection, NULL));
    add_range(&library, &shape, 0);
    CHECK(td_layout_append_selection(layout, 1, &library.tensors[0], &selection, NULL), "%s", kept);
    CHECK(layout->block_count <= (shape.rank > 3 ? 6 : 1), "%s", kept);
    CHECK(layout_crc(&library, layout) == strtoul(strtok_r(NULL, " ", &rest), NULL, 16), "%s", kept);
    td_layout_unref(layout);
    library_free(&library);
    return true;
}

static size_t each_line(const char *path, bool (*check)(char *line))
{
    char line[LINE_BYTES];
    size_t count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        count += check(line);
    }
    (void)fclose(file);
    return count;
}

static void selections_are_numpys(void **state)
{
    (void)state;
    assert_true(each_line(TD_TEST_DATA "/slices.txt", select_line) > 700);
}

/* Parses a piece: "z3" (zeros) or "0:1:2:3:4". */
static struct td_plan_piece piece_of(const char *text)
{
    struct td_plan_piece piece = {.tensor = TD_PIECE_ZEROS, .count = 1};
    if (text[0] == 'z') {
        piece.size = strtoull(text + 1, NULL, 10);
        return piece;
    }
    char *rest;
    piece.tensor = (uint32_t)strtoul(text, &rest, 10);
    piece.start = strtoull(rest + 1, &rest, 10);
    piece.size = strtoull(rest + 1, &rest, 10);
    piece.count = strtoull(rest + 1, &rest, 10);
    piece.stride = strtoull(rest + 1, &rest, 10);
    return piece;
}

static bool join_line(char *line)
{
    char kept[LINE_BYTES];
    char *rest = NULL;
    char *inner = NULL;
    struct shape shapes[LIBRARY_TENSORS];
    struct td_plan_piece pieces[MOST_PIECES];
    struct tensor_library library = {0};
    memcpy(kept, line, LINE_BYTES);
    struct td_plan_output output = {.name = "joined", .dtype = td_dtype_find(TD_TEXT("I32"))};
    output.axis = (uint32_t)strtoul(strtok_r(line, " ", &rest), NULL, 10);
    output.cell_count = strtoull(strtok_r(NULL, " ", &rest), NULL, 10);
    char *shapes_text = strtok_r(NULL, " ", &rest);
    char *pieces_text = strtok_r(NULL, " ", &rest);
    struct shape result = shape_of(strtok_r(NULL, " ", &rest));
    for (char *at = strtok_r(shapes_text, ",", &inner); at != NULL; at = strtok_r(NULL, ",", &inner)) {
        shapes[library.count] = shape_of(at);
        add_range(&library, &shapes[library.count], (uint32_t)library.count * 1000);
    }
    for (char *at = strtok_r(pieces_text, ",", &inner); at != NULL; at = strtok_r(NULL, ",", &inner))
        pieces[output.piece_count++] = piece_of(at);
    output.rank = result.rank;
    output.shape = result.sizes;
    output.nbytes = product(&result) * 4;
    struct td_plan plan = {.outputs = &output, .output_count = 1, .pieces = pieces};
    struct td_tensor_list list = library_list(&library);
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    CHECK(td_layout_append_output(layout, 1, &plan, &output, &list, NULL), "%s", kept);
    CHECK(layout->total_bytes == output.nbytes, "%s", kept);
    CHECK(layout_crc(&library, layout) == strtoul(strtok_r(NULL, " ", &rest), NULL, 16), "%s", kept);
    td_layout_unref(layout);
    library_free(&library);
    return true;
}

static void joins_are_torchs(void **state)
{
    (void)state;
    assert_true(each_line(TD_TEST_DATA "/joins.txt", join_line) > 500);
}

/* The worked example of slicing.md: Qwen3-0.6B in BF16, the second of two ranks. Compares numbers, no bytes. */
static void qwen3_on_two_ranks(void **state)
{
    (void)state;
    static const uint64_t q[] = {2048, 1024}, kv[] = {1024, 1024}, o[] = {1024, 2048}, down[] = {1024, 3072};
    static const uint64_t qkv[] = {2048, 1024}, half_o[] = {1024, 1024}, half_down[] = {1024, 1536};
    const struct td_dtype *bf16 = td_dtype_find(TD_TEXT("BF16"));
    struct tensor_library library = {.count = 5};
    const uint64_t *shapes[] = {q, kv, kv, o, down};
    for (size_t i = 0; i < 5; i++)
        library.tensors[i] = (struct td_tensor){.name = "t", .rank = 2, .dtype = bf16, .shape = shapes[i]};
    struct td_plan_piece pieces[] = {{0, 1024, 1024, 1, 0, NULL},
                                     {1, 512, 512, 1, 0, NULL},
                                     {2, 512, 512, 1, 0, NULL},
                                     {3, 1024, 1024, 1, 0, NULL},
                                     {4, 1536, 1536, 1, 0, NULL}};
    const struct td_plan_output outputs[] = {{"qkv_proj", bf16, 2, qkv, 4194304, 0, 1, 0, 3, false, 0},
                                             {"o_proj", bf16, 2, half_o, 2097152, 1, 1, 3, 1, false, 0},
                                             {"down_proj", bf16, 2, half_down, 3145728, 1, 1, 4, 1, false, 0}};
    static const struct td_run wanted[] = {{1, 2097152, 2097152, 1, 0, 0},
                                           {2, 1048576, 1048576, 1, 0, 0},
                                           {3, 1048576, 1048576, 1, 0, 0},
                                           {4, 2048, 2048, 1024, 4096, 0},
                                           {5, 3072, 3072, 1024, 6144, 0}};
    struct td_plan plan = {.pieces = pieces, .piece_count = 5};
    struct td_tensor_list list = library_list(&library);
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
        assert_true(td_layout_append_output(layout, 1, &plan, &outputs[i], &list, NULL));
    assert_true(layout->block_count == COUNT_OF(wanted) && layout->run_count == COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        CHECK(layout->runs[i].source == wanted[i].source && layout->runs[i].off == wanted[i].off &&
                  layout->runs[i].len == wanted[i].len && layout->runs[i].count == wanted[i].count &&
                  layout->runs[i].stride == wanted[i].stride && layout->blocks[i].rounds == 1,
              "run %zu", i);
    }
    td_layout_unref(layout);
}

/* Q8_0: 32 elements in 34 bytes. Plans take whole blocks; otherwise the error names the tensor. */
static void blocks_are_not_split(void **state)
{
    (void)state;
    static const uint64_t shape[] = {4, 96};
    static const struct {
        struct td_plan_piece piece;
        uint32_t axis;
        uint64_t result[2];
        enum td_code code;
        uint64_t off, len; /* the first run's */
    } cases[] = {
        {{0, 1, 2, 1, 0, NULL}, 0, {2, 96}, TD_OK, 102, 204},
        {{0, 32, 64, 1, 0, NULL}, 1, {4, 64}, TD_OK, 34, 68},
        {{0, 0, 32, 2, 64, NULL}, 1, {4, 64}, TD_OK, 0, 34},
        {{0, 0, 48, 1, 0, NULL}, 1, {4, 48}, TD_FAILED_PRECONDITION, 0, 0},
        {{0, 16, 32, 1, 0, NULL}, 1, {4, 32}, TD_FAILED_PRECONDITION, 0, 0},
        {{0, 0, 32, 2, 48, NULL}, 1, {4, 64}, TD_FAILED_PRECONDITION, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tensor_library library = {0};
        struct td_error err = TD_ERROR_INIT;
        (void)library_add(&library, "blk.0.w", "Q8_0", 2, shape);
        struct td_plan_piece piece = cases[i].piece;
        struct td_plan plan = {.pieces = &piece, .piece_count = 1};
        struct td_plan_output output = {
            "out", library.tensors[0].dtype, 2, cases[i].result, 0, cases[i].axis, 1, 0, 1, false, 0};
        output.nbytes = cases[i].result[0] * cases[i].result[1] / 32 * 34;
        struct td_tensor_list list = library_list(&library);
        struct td_layout *layout = td_layout_create(NULL, NULL);
        assert_non_null(layout);
        bool ok = td_layout_append_output(layout, 1, &plan, &output, &list, &err);
        CHECK(ok == (cases[i].code == TD_OK) && err.code == cases[i].code, "case %zu: %s", i, err.message);
        CHECK(!ok || (layout->runs[0].off == cases[i].off && layout->runs[0].len == cases[i].len &&
                      layout->total_bytes == output.nbytes),
              "case %zu", i);
        CHECK(ok || strstr(err.message, "blk.0.w") != NULL, "case %zu: %s", i, err.message);
        td_layout_unref(layout);
        library_free(&library);
    }
}

/* F4 has two elements in a byte. Of four rows of three elements, one row is not whole bytes; two rows are, and so is
 * the whole. */
static void odd_rows_below_a_byte(void **state)
{
    (void)state;
    static const uint64_t shape[] = {4, 3};
    static const struct {
        struct td_plan_piece piece;
        uint32_t axis;
        uint64_t nbytes; /* 0: refused */
    } cases[] = {
        {{0, 0, 4, 1, 0, NULL}, 0, 6}, {{0, 0, 3, 1, 0, NULL}, 1, 6}, {{0, 2, 2, 1, 0, NULL}, 0, 3},
        {{0, 1, 2, 1, 0, NULL}, 0, 0}, {{0, 0, 2, 1, 0, NULL}, 1, 0}, {{0, 0, 1, 2, 2, NULL}, 0, 0},
        {{0, 0, 2, 2, 2, NULL}, 0, 6},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tensor_library library = {0};
        struct td_error err = TD_ERROR_INIT;
        (void)library_add(&library, "odd", "F4", 2, shape);
        struct td_plan_piece piece = cases[i].piece;
        struct td_plan plan = {.pieces = &piece, .piece_count = 1};
        const struct td_plan_output output = {"out",
                                              library.tensors[0].dtype,
                                              2,
                                              shape,
                                              cases[i].nbytes > 0 ? cases[i].nbytes : 3,
                                              cases[i].axis,
                                              1,
                                              0,
                                              1,
                                              false,
                                              0};
        struct td_tensor_list list = library_list(&library);
        struct td_layout *layout = td_layout_create(NULL, NULL);
        assert_non_null(layout);
        bool ok = td_layout_append_output(layout, 1, &plan, &output, &list, &err);
        CHECK(ok == (cases[i].nbytes > 0), "case %zu: %s", i, err.message);
        CHECK(err.code == (ok ? TD_OK : TD_FAILED_PRECONDITION), "case %zu: %s", i, err.message);
        td_layout_unref(layout);
        library_free(&library);
    }
}

/* Plans that do not fit their sources are an internal error and never read other bytes. */
static void wrong_plans_are_refused(void **state)
{
    (void)state;
    static const uint64_t shape[] = {4, 6}, other[] = {5, 6}, flat[] = {24};
    static const struct td_selection box = {2, {1, 2}, {2, 3}, 0}, far_box = {2, {3, 2}, {2, 3}, 0},
                                     wrap_box = {2, {UINT64_MAX, 2}, {2, 3}, 0}, flat_box = {1, {0}, {6}, 0};
    const struct {
        struct td_plan_piece pieces[2];
        size_t count;
        uint32_t axis;
        uint64_t cells, nbytes;
        bool ok;
    } cases[] = {
        {{{0, 0, 4, 1, 0, NULL}}, 1, 0, 1, 96, true},
        {{{0, 0, 4, 1, 0, NULL}}, 1, 0, 1, 92, false},
        {{{0, 0, 4, 1, 0, NULL}}, 1, 0, 0, 96, false},
        {{{0, 0, 4, 1, 0, NULL}}, 0, 0, 1, 96, false},
        {{{0, 0, 4, 1, 0, NULL}}, 1, 2, 1, 96, false},
        {{{0, 1, 4, 1, 0, NULL}}, 1, 0, 1, 96, false},
        {{{0, UINT64_MAX, 2, 1, 0, NULL}}, 1, 0, 1, 48, false},
        {{{0, 0, 1, 4, 1, NULL}}, 1, 0, 1, 96, true},
        {{{0, 0, 1, 4, 2, NULL}}, 1, 0, 1, 96, false},
        {{{0, 0, 1, 3, UINT64_C(1) << 63, NULL}}, 1, 0, 1, 72, false},
        {{{0, 0, 2, 1, 0, NULL}, {0, 2, 2, 1, 0, NULL}}, 2, 0, 1, 96, true},
        {{{0, 0, 2, 1, 0, NULL}, {0, 2, 2, 1, 0, NULL}}, 2, 0, 3, 96, false},
        {{{0, 0, 2, 1, 0, NULL}, {1, 2, 2, 1, 0, NULL}}, 2, 0, 1, 96, true},
        {{{0, 0, 3, 1, 0, NULL}, {1, 0, 3, 1, 0, NULL}}, 2, 1, 1, 96, false} /* different rows */,
        {{{0, 0, 2, 1, 0, NULL}, {2, 0, 12, 1, 0, NULL}}, 2, 0, 1, 96, false} /* different ranks */,
        {{{9, 0, 2, 1, 0, NULL}}, 1, 0, 1, 48, false},
        {{{0, 0, 2, 1, 0, NULL}, {9, 0, 2, 1, 0, NULL}}, 2, 0, 1, 96, false},
        {{{0, 0, 0, 0, 0, &box}}, 1, 0, 1, 24, true},
        {{{9, 0, 0, 0, 0, &box}}, 1, 0, 1, 24, false},
        {{{0, 0, 0, 0, 0, &far_box}}, 1, 0, 1, 24, false},
        {{{0, 0, 0, 0, 0, &wrap_box}}, 1, 0, 1, 24, false},
        {{{0, 0, 0, 0, 0, &flat_box}}, 1, 0, 1, 24, false},
        {{{0, 0, 2, 1, 0, NULL}, {0, 1, 2, 1, 0, &box}}, 2, 0, 1, 96, false} /* a selection beside another piece */,
        {{{TD_PIECE_ZEROS, 0, UINT64_MAX, 1, 0, NULL}, {0, 0, 2, 1, 0, NULL}}, 2, 0, 1, 96, false},
        {{{TD_PIECE_ZEROS, 0, 2, 1, 0, NULL}, {0, 0, 2, 1, 0, NULL}}, 2, 0, 1, 96, true},
        {{{TD_PIECE_ZEROS, 0, 3, 1, 0, NULL}, {0, 0, 2, 1, 0, NULL}}, 2, 0, 1, 96, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tensor_library library = {0};
        struct td_error err = TD_ERROR_INIT;
        (void)library_add(&library, "a", "F32", 2, shape);
        (void)library_add(&library, "b", "F32", 2, other);
        (void)library_add(&library, "c", "F32", 1, flat);
        struct td_plan_piece pieces[2];
        memcpy(pieces, cases[i].pieces, sizeof pieces);
        struct td_plan plan = {.pieces = pieces, .piece_count = 2};
        const struct td_plan_output output = {
            "out", library.tensors[0].dtype, 2,     shape, cases[i].nbytes, cases[i].axis, cases[i].cells,
            0,     cases[i].count,           false, 0};
        struct td_tensor_list list = library_list(&library);
        struct td_layout *layout = td_layout_create(NULL, NULL);
        assert_non_null(layout);
        bool ok = td_layout_append_output(layout, 1, &plan, &output, &list, &err);
        CHECK(ok == cases[i].ok, "case %zu: %s", i, err.message);
        CHECK(err.code == (ok ? TD_OK : TD_INTERNAL), "case %zu: %s", i, err.message);
        td_layout_unref(layout);
        library_free(&library);
    }
}

/* Tensors without dimensions, and results of no bytes and of zeros alone. */
static void scalars_zeros_and_nothing(void **state)
{
    (void)state;
    static const uint64_t pair[] = {2}, none[] = {0};
    struct tensor_library library = {0};
    uint8_t *one = library_add(&library, "one", "F32", 0, NULL);
    uint8_t *two = library_add(&library, "two", "F32", 0, NULL);
    (void)library_add(&library, "none", "F32", 1, none);
    const struct td_dtype *f32 = library.tensors[0].dtype;
    struct td_plan_piece pieces[] = {{0, 0, 1, 1, 0, NULL},
                                     {1, 0, 1, 1, 0, NULL},
                                     {TD_PIECE_ZEROS, 0, 1, 1, 0, NULL},
                                     {TD_PIECE_ZEROS, 0, 1, 1, 0, NULL},
                                     {2, 0, 0, 1, 0, NULL}};
    struct td_plan plan = {.pieces = pieces, .piece_count = COUNT_OF(pieces)};
    const struct td_plan_output outputs[] = {
        {"one", f32, 0, NULL, 4, 0, 1, 0, 1, false, 0},    {"stack", f32, 1, pair, 8, 0, 2, 0, 2, false, 0},
        {"zeros", f32, 1, pair, 8, 0, 1, 2, 2, false, 0},  {"none", f32, 1, none, 0, 0, 1, 4, 1, false, 0},
        {"beside", f32, 1, pair, 8, 0, 1, 3, 2, false, 0}, /* the empty source adds no bytes */
    };
    struct td_tensor_list list = library_list(&library);
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    for (size_t i = 0; i < 4; i++)
        assert_true(td_layout_append_output(layout, 1, &plan, &outputs[i], &list, NULL));
    assert_int_equal(layout->total_bytes, 20);
    uint8_t *bytes = library_read(&library, layout);
    assert_memory_equal(bytes, one, 4);
    assert_memory_equal(bytes + 4, one, 4);
    assert_memory_equal(bytes + 8, two, 4);
    assert_memory_equal(bytes + 12, "\0\0\0\0\0\0\0\0", 8);
    free(bytes);
    assert_false(td_layout_append_output(layout, 1, &plan, &outputs[4], &list, NULL)); /* gives 4 bytes, not 8 */
    td_layout_unref(layout);
    library_free(&library);
}

/* A box in the middle of many dimensions: each level beyond the second needs more blocks, and the blocks are limited to
 * 4,096. */
static void deep_boxes_are_bounded(void **state)
{
    (void)state;
    uint64_t shape[24];
    struct td_selection selection = {.rank = 24};
    struct td_error err = TD_ERROR_INIT;
    const struct td_dtype *u8 = td_dtype_find(TD_TEXT("U8"));
    for (uint32_t i = 0; i < 24; i++) {
        shape[i] = 3;
        selection.starts[i] = 1;
        selection.sizes[i] = i < 9 ? 1 : 2;
    }
    struct td_tensor tensor = {.name = "deep", .rank = 24, .dtype = u8, .shape = shape};
    struct td_layout *layout = td_layout_create(NULL, NULL);
    assert_non_null(layout);
    assert_true(td_layout_append_selection(layout, 0, &tensor, &selection, NULL));
    assert_true(layout->block_count == 4096 && layout->total_bytes == 1 << 15);
    assert_true(layout->blocks[0].rounds == 2 && layout->runs[0].count == 2 && layout->runs[0].len == 2);
    selection.sizes[8] = 2;
    assert_false(td_layout_append_selection(layout, 0, &tensor, &selection, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_int_equal(layout->block_count, 4096);
    for (uint32_t i = 0; i < 24; i++)
        selection.sizes[i] = i == 23 ? 0 : 2; /* an empty selection needs no blocks */
    assert_true(td_layout_append_selection(layout, 0, &tensor, &selection, NULL));
    td_layout_unref(layout);
}

/* Shapes too large for any manifest. */
static void vast_shapes_are_refused(void **state)
{
    (void)state;
    static const uint64_t shape[] = {UINT64_C(1) << 61, 3}, huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    const struct td_dtype *f32 = td_dtype_find(TD_TEXT("F32"));
    struct tensor_library library = {.count = 2};
    struct td_error err;
    library.tensors[0] = (struct td_tensor){.name = "a", .rank = 2, .dtype = f32, .shape = shape};
    library.tensors[1] = (struct td_tensor){.name = "b", .rank = 2, .dtype = f32, .shape = huge};
    struct td_layout *layout = td_layout_create(NULL, NULL);
    struct td_tensor_list list = library_list(&library);
    assert_non_null(layout);
    for (uint32_t i = 0; i < 2; i++) {
        struct td_plan_piece piece = {i, 0, 1, 1, 0, NULL};
        struct td_selection selection = {2, {library.tensors[i].shape[0] - 1, 0}, {1, 1}, 0};
        struct td_plan plan = {.pieces = &piece, .piece_count = 1};
        const struct td_plan_output output = {"out", f32, 2, shape, UINT64_C(1) << 63, 1, 1, 0, 1, false, 0};
        td_error_init(&err);
        assert_false(td_layout_append_output(layout, 1, &plan, &output, &list, &err));
        assert_true(err.code != TD_OK);
        td_error_init(&err);
        assert_false(td_layout_append_selection(layout, 1, &library.tensors[i], &selection, &err));
        assert_true(err.code == TD_INTERNAL || err.code == TD_INVALID_ARGUMENT);
    }
    assert_int_equal(layout->total_bytes, 0);
    td_layout_unref(layout);
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    static const uint64_t shape[] = {4, 6}, result[] = {4, 8};
    struct tensor_library library = {0};
    (void)library_add(&library, "a", "F32", 2, shape);
    (void)library_add(&library, "b", "F32", 2, shape);
    struct td_plan_piece pieces[] = {{0, 0, 4, 1, 0, NULL}, {1, 1, 4, 1, 0, NULL}};
    struct td_plan plan = {.pieces = pieces, .piece_count = 2};
    const struct td_plan_output output = {"out", library.tensors[0].dtype, 2, result, 128, 1, 1, 0, 2, false, 0};
    struct td_tensor_list list = library_list(&library);
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct td_layout *layout = td_layout_create(NULL, &err);
        alloc_tried(&trials, layout != NULL && td_layout_append_output(layout, 1, &plan, &output, &list, &err), &err);
        td_layout_unref(layout);
    }
    assert_true(trials.k > 5);
    library_free(&library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selections_are_numpys),     cmocka_unit_test(joins_are_torchs),
        cmocka_unit_test(qwen3_on_two_ranks),        cmocka_unit_test(blocks_are_not_split),
        cmocka_unit_test(odd_rows_below_a_byte),     cmocka_unit_test(wrong_plans_are_refused),
        cmocka_unit_test(scalars_zeros_and_nothing), cmocka_unit_test(deep_boxes_are_bounded),
        cmocka_unit_test(vast_shapes_are_refused),   cmocka_unit_test(want_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
