/* Slices and shards, compared with the results of NumPy and torch: tests/data/slices.txt. */
#include "slicing/plan/selection.h"

#include "tests/unit/slicing/shape_text.h"
#include "tests/unit/unit.h"

#include <zlib.h>

enum { LINE_BYTES = 1024, LARGEST = 1 << 20 };

static uint64_t product(uint32_t rank, const uint64_t *sizes)
{
    uint64_t all = 1;
    for (uint32_t i = 0; i < rank; i++)
        all *= sizes[i];
    return all;
}

/* Returns the CRC-32 of the positions of a selection's elements, little-endian, in row-major order. */
static unsigned long positions(const struct td_selection *selection, const struct shape *shape)
{
    uint64_t index[TD_MAX_RANK] = {0};
    uint64_t count = product(selection->rank, selection->sizes);
    unsigned long crc = crc32(0, NULL, 0);
    for (uint64_t n = 0; n < count; n++) {
        uint64_t at = 0;
        for (uint32_t i = 0; i < shape->rank; i++)
            at = at * shape->sizes[i] + selection->starts[i] + index[i];
        const uint8_t bytes[] = {(uint8_t)at, (uint8_t)(at >> 8), (uint8_t)(at >> 16), (uint8_t)(at >> 24)};
        crc = crc32(crc, bytes, sizeof bytes);
        for (uint32_t i = shape->rank; i-- > 0 && ++index[i] == selection->sizes[i];)
            index[i] = 0;
    }
    return crc;
}

/* Returns the same CRC-32, computed from the box. */
static unsigned long box_positions(const struct td_selection *selection, const struct shape *shape)
{
    struct td_box box;
    uint64_t index[TD_MAX_RANK] = {0};
    unsigned long crc = crc32(0, NULL, 0);
    assert_true(td_selection_box(selection, shape->sizes, &box));
    uint64_t runs = 1;
    for (uint32_t i = 0; i < box.level_count; i++) {
        assert_true(box.levels[i].count > 1);
        runs *= box.levels[i].count;
    }
    for (uint64_t n = 0; n < runs; n++) {
        uint64_t at = box.off;
        for (uint32_t i = 0; i < box.level_count; i++)
            at += index[i] * box.levels[i].stride;
        for (uint64_t k = 0; k < box.len; k++, at++) {
            const uint8_t bytes[] = {(uint8_t)at, (uint8_t)(at >> 8), (uint8_t)(at >> 16), (uint8_t)(at >> 24)};
            crc = crc32(crc, bytes, sizeof bytes);
        }
        for (uint32_t i = 0; i < box.level_count && ++index[i] == box.levels[i].count; i++)
            index[i] = 0;
    }
    return crc;
}

static bool parse(const char *kind, const char *text, const struct shape *shape, struct td_selection *out,
                  struct td_error *err)
{
    size_t len = strcmp(text, "(empty)") == 0 ? 0 : strlen(text);
    char *exact = malloc(len + 1); /* so that the sanitizer sees a read past the text */
    assert_non_null(exact);
    memcpy(exact, text, len);
    exact = realloc(exact, len > 0 ? len : 1);
    assert_non_null(exact);
    bool ok = (strcmp(kind, "slice") == 0 ? td_slice_parse : td_shard_parse)(td_text_n(exact, len), shape->rank,
                                                                             shape->sizes, out, err);
    free(exact);
    return ok;
}

static void check_line(char *line)
{
    char kept[LINE_BYTES];
    char *rest = NULL;
    memcpy(kept, line, LINE_BYTES);
    const char *kind = strtok_r(line, " ", &rest);
    const char *text = strtok_r(NULL, " ", &rest);
    struct shape shape = shape_of(strtok_r(NULL, " ", &rest));
    char *wanted = strtok_r(NULL, " ", &rest);
    struct td_selection selection;
    struct td_error err = TD_ERROR_INIT;
    bool ok = parse(kind, text, &shape, &selection, &err);
    CHECK(ok == (strcmp(wanted, "error") != 0), "%s", kept);
    if (!ok) {
        CHECK(err.code == TD_INVALID_ARGUMENT, "%s", kept);
        check_error(&err, 0, false, kept);
        return;
    }
    struct shape result;
    struct shape wanted_shape = shape_of(wanted);
    result.rank = td_selection_shape(&selection, result.sizes);
    CHECK(result.rank == wanted_shape.rank, "%s", kept);
    for (uint32_t i = 0; i < result.rank; i++)
        CHECK(result.sizes[i] == wanted_shape.sizes[i], "%s", kept);
    for (uint32_t i = 0; i < shape.rank; i++)
        CHECK(selection.starts[i] <= shape.sizes[i] && selection.sizes[i] <= shape.sizes[i] - selection.starts[i], "%s",
              kept);
    const char *crc = strtok_r(NULL, " ", &rest);
    if (product(shape.rank, shape.sizes) >= LARGEST)
        return;
    CHECK(positions(&selection, &shape) == strtoul(crc, NULL, 16), "%s", kept);
    CHECK(box_positions(&selection, &shape) == strtoul(crc, NULL, 16), "%s", kept);
}

static void numpy_and_torch_agree(void **state)
{
    (void)state;
    char line[LINE_BYTES];
    size_t count = 0;
    FILE *file = fopen(TD_TEST_DATA "/slices.txt", "r");
    assert_non_null(file);
    for (; fgets(line, sizeof line, file) != NULL; count++) {
        line[strcspn(line, "\n")] = '\0';
        check_line(line);
    }
    (void)fclose(file);
    assert_true(count > 1000);
}

/* Slices that Python takes and tensord refuses: steps, signs, blanks, None, lists. */
static void what_has_no_meaning_here_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *text, *says;
    } cases[] = {
        {"slice", "(empty)", "empty"},
        {"slice", "::", "step"},
        {"slice", "0:3:", "step"},
        {"slice", "::2", "step"},
        {"slice", "0:8:1", "step"},
        {"slice", "::-1", "step"},
        {"slice", "--1", "start:stop"},
        {"slice", "+1", "start:stop"},
        {"slice", " 1", "start:stop"},
        {"slice", "1 ", "start:stop"},
        {"slice", "1: 2", "start:stop"},
        {"slice", "None", "start:stop"},
        {"slice", "True", "start:stop"},
        {"slice", "[0,1]", "start:stop"},
        {"slice", "0,", "start:stop"},
        {"slice", ":,,", "3 items; the tensor has 2 dimensions"},
        {"slice", "1_0", "start:stop"},
        {"slice", "7", "\"7\" for dimension 0 of size 6 is out of range"},
        {"slice", ":,-8", "\"-8\" for dimension 1 of size 7 is out of range"},
        {"slice", "...,0,...", "2 ellipses"},
        {"slice", "\x01\xff", "\\x01\\xff"},
        {"shard", "(empty)", "DIM:RANK/SIZE"},
        {"shard", "0:0", "DIM:RANK/SIZE"},
        {"shard", "0:0/", "DIM:RANK/SIZE"},
        {"shard", ":0/1", "DIM:RANK/SIZE"},
        {"shard", "0/1", "DIM:RANK/SIZE"},
        {"shard", "0:0/1 ", "DIM:RANK/SIZE"},
        {"shard", "0:-1/2", "DIM:RANK/SIZE"},
        {"shard", "0:0/-2", "DIM:RANK/SIZE"},
        {"shard", "0:0:1/2", "DIM:RANK/SIZE"},
        {"shard", "+0:0/1", "DIM:RANK/SIZE"},
        {"shard", "0:0/0", "below SIZE"},
        {"shard", "0:2/2", "below SIZE"},
        {"shard", "1:9/3", "dimension 1 of size 7"},
        {"shard", "0:99999999999999999999/99999999999999999999", "below SIZE"},
        {"shard", "2:0/1", "it has 2"},
        {"shard", "-3:0/1", "it has 2"},
        {"shard", "99999999999999999999:0/1", "it has 2"},
        {"shard", "-99999999999999999999:0/1", "it has 2"},
    };
    static const struct shape shape = {2, {6, 7}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_selection selection;
        struct td_error err = TD_ERROR_INIT;
        CHECK(!parse(cases[i].kind, cases[i].text, &shape, &selection, &err), "\"%s\"", cases[i].text);
        CHECK(err.code == TD_INVALID_ARGUMENT, "\"%s\"", cases[i].text);
        CHECK(strstr(err.message, cases[i].says) != NULL, "\"%s\": %s", cases[i].text, err.message);
        check_error(&err, 0, false, cases[i].text);
    }
}

static void long_texts_make_short_messages(void **state)
{
    (void)state;
    enum { LONG = 100000 };
    static char text[LONG];
    static const struct shape shape = {1, {6}};
    struct td_selection selection;
    struct td_error err;
    static const char fill[] = {'x', ',', '9', '.', '\xc3'};
    for (size_t i = 0; i < sizeof fill; i++) {
        memset(text, fill[i], LONG);
        td_error_init(&err);
        assert_false(td_slice_parse(td_text_n(text, LONG), shape.rank, shape.sizes, &selection, &err));
        check_error(&err, 0, false, "slice");
        td_error_init(&err);
        assert_false(td_shard_parse(td_text_n(text, LONG), shape.rank, shape.sizes, &selection, &err));
        check_error(&err, 0, false, "shard");
    }
}

/* Every dimension and piece number up to 2^64-1; the sizes are written out by hand. */
static void shards_of_vast_dimensions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t dim, start, size;
    } cases[] = {
        {"0:0/1", UINT64_MAX, 0, UINT64_MAX},
        {"0:1/2", UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1},
        {"0:18446744073709551614/18446744073709551615", UINT64_MAX, UINT64_MAX - 1, 1},
        {"0:18446744073709551614/18446744073709551615", 10, 10, 0},
        {"0:9223372036854775807/18446744073709551614", UINT64_MAX, UINT64_MAX - 1, 1},
        {"0:9223372036854775808/18446744073709551614", UINT64_MAX, UINT64_MAX, 0},
        {"0:18446744073709551613/18446744073709551614", UINT64_MAX, UINT64_MAX, 0} /* rank x chunk wraps */,
        {"0:18446744073709551614/18446744073709551615", 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_selection selection;
        assert_true(td_shard_parse(td_text_of(cases[i].text), 1, &cases[i].dim, &selection, NULL));
        CHECK(selection.starts[0] == cases[i].start && selection.sizes[0] == cases[i].size, "case %zu", i);
    }
    struct td_selection selection;
    static const uint64_t dim = UINT64_MAX;
    assert_true(td_slice_parse(TD_TEXT("-1:"), 1, &dim, &selection, NULL));
    assert_true(selection.starts[0] == UINT64_MAX - 1 && selection.sizes[0] == 1);
    assert_true(td_slice_parse(TD_TEXT("18446744073709551614"), 1, &dim, &selection, NULL));
    assert_true(selection.starts[0] == UINT64_MAX - 1 && selection.dropped == 1);
    assert_false(td_slice_parse(TD_TEXT("18446744073709551615"), 1, &dim, &selection, NULL));
    assert_true(td_slice_parse(TD_TEXT("-18446744073709551615"), 1, &dim, &selection, NULL));
    assert_true(selection.starts[0] == 0);
}

/* Q8_0: 32 elements in 34 bytes; F6_E2M3: 4 in 3; F4: 2 in 1. */
static void sizes_count_whole_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *dtype, *slice;
        struct shape shape;
        uint64_t nbytes; /* 0 with refused */
        bool refused;
    } cases[] = {
        {"F32", ":", {1, {5}}, 20, false},
        {"BF16", "1:3,2:4", {2, {4, 6}}, 8, false},
        {"F32", "...", {0, {0}}, 4, false},
        {"C256", "0:0", {1, {5}}, 0, false},
        {"Q8_0", "1:3,:", {2, {4, 64}}, 136, false},
        {"Q8_0", ":,32:64", {2, {4, 64}}, 136, false},
        {"Q8_0", ":,0:31", {2, {4, 64}}, 0, true},
        {"Q8_0", ":,1:33", {2, {4, 64}}, 0, true},
        {"Q8_0", "0,0", {2, {4, 64}}, 0, true},
        {"Q8_0", ":,5:5", {2, {4, 64}}, 0, false},
        {"F4", ":", {2, {3, 3}}, 0, true} /* 4.5 bytes, which no format stores */,
        {"F4", "0:2", {2, {4, 3}}, 3, false},
        {"F4", "1:3", {2, {4, 3}}, 0, true} /* begins in the middle of a byte */,
        {"F4", ":,0:2", {2, {4, 3}}, 0, true} /* rows of 1.5 bytes */,
        {"F4", ":,2:4", {2, {4, 6}}, 4, false},
        {"F6_E2M3", "2:4", {2, {4, 2}}, 3, false},
        {"F6_E2M3", "1:3", {2, {4, 2}}, 0, true},
        {"STRING", ":", {1, {5}}, 0, false},
        {"U8", ":", {2, {UINT64_C(1) << 32, UINT64_C(1) << 32}}, 0, true},
        {"F64", ":", {1, {UINT64_C(1) << 61}}, 0, true},
        {"F64", "1:", {1, {UINT64_C(1) << 61}}, UINT64_MAX - 7, false},
        {"U8", ":,:,0", {3, {0, UINT64_MAX, UINT64_MAX}}, 0, false},
        {"U8", "0:1,0:1", {2, {UINT64_C(1) << 32, UINT64_C(1) << 32}}, 0, true},
        {"U8", "1:2,1:2,:", {3, {UINT64_MAX, 2, 2}}, 0, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_selection selection;
        struct td_error err = TD_ERROR_INIT;
        uint64_t nbytes = 77;
        const struct td_dtype *dtype = td_dtype_find(td_text_of(cases[i].dtype));
        assert_non_null(dtype);
        assert_true(parse("slice", cases[i].slice, &cases[i].shape, &selection, NULL));
        bool ok = td_selection_nbytes(&selection, cases[i].shape.sizes, dtype, &nbytes, &err);
        CHECK(ok == !cases[i].refused, "case %zu: %s", i, err.message);
        CHECK(!ok || nbytes == cases[i].nbytes, "case %zu: %llu", i, (unsigned long long)nbytes);
        CHECK(ok || err.code == TD_INVALID_ARGUMENT, "case %zu", i);
        if (!ok)
            check_error(&err, 0, false, cases[i].slice);
    }
}

/* Dimensions that are taken whole, or that are contiguous, share a level. */
static void boxes_have_as_few_levels_as_can_be(void **state)
{
    (void)state;
    static const struct {
        const char *slice;
        struct shape shape;
        uint64_t off, len;
        uint32_t levels;
        struct td_box_level level[2];
    } cases[] = {
        {":", {3, {3, 4, 5}}, 0, 60, 0, {{0, 0}}},
        {"1", {3, {3, 4, 5}}, 20, 20, 0, {{0, 0}}},
        {":,1:3", {3, {3, 4, 5}}, 5, 10, 1, {{3, 20}}},
        {":,:,1:3", {3, {3, 4, 5}}, 1, 2, 1, {{12, 5}}},
        {"1:3,:,1:3", {3, {3, 4, 5}}, 21, 2, 1, {{8, 5}}},
        {"1:3,1:3,1:3", {3, {3, 4, 5}}, 26, 2, 2, {{2, 5}, {2, 20}}},
        {"1:3,2,1:3", {3, {3, 4, 5}}, 31, 2, 1, {{2, 20}}},
        {"1:3,2,:", {3, {3, 4, 5}}, 30, 5, 1, {{2, 20}}},
        {":,:,0", {3, {1, 1, 5}}, 0, 1, 0, {{0, 0}}},
        {":,0:2,:", {3, {1, 4, 5}}, 0, 10, 0, {{0, 0}}},
        {"...", {0, {0}}, 0, 1, 0, {{0, 0}}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_selection selection;
        struct td_box box;
        assert_true(parse("slice", cases[i].slice, &cases[i].shape, &selection, NULL));
        assert_true(td_selection_box(&selection, cases[i].shape.sizes, &box));
        CHECK(box.off == cases[i].off && box.len == cases[i].len && box.level_count == cases[i].levels, "case %zu", i);
        for (uint32_t k = 0; k < box.level_count; k++)
            CHECK(box.levels[k].count == cases[i].level[k].count && box.levels[k].stride == cases[i].level[k].stride,
                  "case %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpy_and_torch_agree),          cmocka_unit_test(what_has_no_meaning_here_is_refused),
        cmocka_unit_test(long_texts_make_short_messages), cmocka_unit_test(shards_of_vast_dimensions),
        cmocka_unit_test(sizes_count_whole_blocks),       cmocka_unit_test(boxes_have_as_few_levels_as_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
