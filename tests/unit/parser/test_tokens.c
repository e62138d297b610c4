/* Files with the type of their tokens in their names. */
#include "parser/rows/tokens.h"

#include "tests/unit/parser/row_fixture.h"

static void names_tell_types(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type; /* NULL: no name of tokens */
        uint32_t item_bytes;
        uint64_t count;
        bool has_count;
    } cases[] = {
        {"a.uint8.bin", "uint8", 1, 1, false},
        {"a.int8.bin", "int8", 1, 1, false},
        {"a.uint16.bin", "uint16", 2, 1, false},
        {"a.int16.bin", "int16", 2, 1, false},
        {"a.uint32.bin", "uint32", 4, 1, false},
        {"a.int32.bin", "int32", 4, 1, false},
        {"a.uint64.bin", "uint64", 8, 1, false},
        {"a.int64.bin", "int64", 8, 1, false},
        {"a.float16.bin", "float16", 2, 1, false},
        {"a.bfloat16.bin", "bfloat16", 2, 1, false},
        {"a.float32.bin", "float32", 4, 1, false},
        {"a.float64.bin", "float64", 8, 1, false},
        {"train.v2.uint16x1024.bin", "uint16", 2, 1024, true},
        {"a.uint16x1.bin", "uint16", 2, 1, true},
        {"..uint16.bin", "uint16", 2, 1, false},
        {"a.uint8x9223372036854775807.bin", "uint8", 1, INT64_MAX, true},
        {"a.uint8x9223372036854775808.bin", NULL, 0, 0, false},
        {"a.uint64x1152921504606846975.bin", "uint64", 8, INT64_MAX / 8, true},
        {"a.uint64x1152921504606846976.bin", NULL, 0, 0, false},
        {"a.uint16x0.bin", NULL, 0, 0, false},
        {"a.uint16x01.bin", NULL, 0, 0, false},
        {"a.uint16x.bin", NULL, 0, 0, false},
        {"a.uint16x1k.bin", NULL, 0, 0, false},
        {"a.uint16 x1.bin", NULL, 0, 0, false},
        {"a.uint16x-1.bin", NULL, 0, 0, false},
        {"a.uint16", NULL, 0, 0, false},
        {"a.uint16.BIN", NULL, 0, 0, false},
        {"a.UINT16.bin", NULL, 0, 0, false},
        {"a.uint16.bin.bin", NULL, 0, 0, false},
        {"a.uint.bin", NULL, 0, 0, false},
        {"a.float8.bin", NULL, 0, 0, false},
        {"auint16.bin", NULL, 0, 0, false},
        {"uint16.bin", NULL, 0, 0, false},
        {".uint16.bin", NULL, 0, 0, false},
        {"a.bin", NULL, 0, 0, false},
        {"a..bin", NULL, 0, 0, false},
        {".bin", NULL, 0, 0, false},
        {"", NULL, 0, 0, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_tokens tokens;
        bool is = td_tokens_name(cases[i].name, &tokens);
        CHECK(is == (cases[i].type != NULL), "%s", cases[i].name);
        if (is)
            CHECK(strcmp(tokens.type, cases[i].type) == 0 && tokens.item_bytes == cases[i].item_bytes &&
                      tokens.count == cases[i].count && tokens.has_count == cases[i].has_count,
                  "%s: %s of %d bytes, %d", cases[i].name, tokens.type, (int)tokens.item_bytes, (int)tokens.count);
    }
}

static void sizes_are_multiples_of_rows(void **state)
{
    (void)state;
    static const uint8_t bytes[64];
    for (size_t len = 0; len <= sizeof bytes; len++) {
        struct row_case c = {.format = &td_row_format_tokens, .name = "a.int32x3.bin", .bytes = bytes, .len = len};
        if (len % 12 != 0) {
            row_case_refused(&c, len - len % 12, "no multiple of a row, 12 bytes of int32");
            continue;
        }
        struct td_row_index index = row_case_index(&c);
        assert_int_equal(index.layout, TD_ROWS_EVEN);
        assert_int_equal(index.row_count, len / 12);
        assert_string_equal(index.columns, "[{\"name\":\"tokens\",\"type\":\"int32\",\"shape\":[3]}]");
        for (uint64_t row = 0; row < index.row_count; row++) {
            struct td_row found = row_case_find(&c, &index, row);
            assert_true(found.offset == 12 * row && found.bytes == 12);
        }
        td_row_index_fini(&index);
    }
    struct row_case other = {.format = &td_row_format_tokens, .name = "tokens.bin", .bytes = bytes, .len = 4};
    row_case_refused(&other, TD_ERROR_POS_NONE, "\"tokens.bin\" is no name of tokens");
}

static void as_numpy_reads(void **state)
{
    (void)state;
    row_fixtures_check("tokens", 2, SIZE_MAX, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_tell_types),
        cmocka_unit_test(sizes_are_multiples_of_rows),
        cmocka_unit_test(as_numpy_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
