/* The tensor table of a GGUF file: dimensions, block types, offsets and names. */
/* shows: security.md content-gguf */
#include "tests/unit/parser/gguf_case.h"

/* ---- bad inputs ---------------------------------------------------------------------------------------- */

#define NEAR_2_63 ((UINT64_C(1) << 63) - 64)

static const struct gguf_case bad_cases[] = {
    PIECES("bad_121_5_dimensions", 33, "\"a\" has 5 dimensions", HEAD(1, 0), TEXT("a"), U32(5), DATA(100)),
    PIECES("bad_121_2_32_minus_1_dimensions", 33, "\"a\" has 4294967295 dimensions", HEAD(1, 0), TEXT("a"),
           U32(UINT32_MAX), DATA(100)),
    ONE_TENSOR("bad_122_int64_max_times_2", 37, "not below 2^63", "a", 2, {INT64_MAX, 2}, G_I8, 0),
    ONE_TENSOR("bad_122_int64_max", 37, "not below 2^63", "a", 1, {INT64_MAX}, G_I8, 0),
    ONE_TENSOR("bad_122_wraps_to_0", 37, "not below 2^63", "a", 3, {UINT64_C(1) << 32, UINT64_C(1) << 32, 2}, G_I8,
               0), /* 2^32 * 2^32 * 2 wraps to 0 */
    ONE_TENSOR("bad_122_negative", 37, "not below 2^63", "a", 2, {UINT64_MAX, UINT64_MAX}, G_I8, 0), /* -1 * -1 */
    ONE_TENSOR("bad_122_bytes", 45, "more than 2^64-1 bytes", "a", 1, {UINT64_C(1) << 61}, G_I64, 0),
    ONE_TENSOR("bad_123_negative_beside_0", 37, "not below 2^63", "a", 2, {0, UINT64_MAX}, G_I8, 0),
    ONE_TENSOR("bad_124_removed_type_31", 45, "type 31, which was removed or is not known", "a", 1, {32}, 31, 0),
    ONE_TENSOR("bad_124_type_43", 45, "type 43,", "a", 1, {32}, 43, 0),
    ONE_TENSOR("bad_124_type_2_32_minus_1", 45, "type 4294967295,", "a", 1, {32}, UINT32_MAX, 0),
    ONE_TENSOR("bad_125_33_elements_of_Q4_0", 45, "rows of 33 elements; of Q4_0 they must be a multiple of 32", "a", 1,
               {33}, G_Q4_0, 0),
    ONE_TENSOR("bad_125_rows_of_16", 53, "rows of 16 elements", "a", 2, {16, 2}, G_Q4_0,
               0), /* whole blocks, but half a block per row */
    ONE_TENSOR("bad_125_scalar", 37, "rows of 1 elements", "a", 0, {0}, G_Q4_0, 0),
    ONE_TENSOR("bad_126_padded_to_0", 49, "ends past 2^64-1", "a", 1, {(UINT64_C(1) << 61) - 1}, G_I64,
               0), /* 2^64 - 8 bytes, padded: 0 */
    PIECES("bad_127_two_near_2_63", 160, "\"a\", which has 9223372036854775744 bytes", HEAD(2, 0),
           INFO("a", 1, {NEAR_2_63}, G_I8, 0), INFO("b", 1, {NEAR_2_63}, G_I8, NEAR_2_63), PADDING, DATA(64)),
    PIECES("bad_127_third_past_2_64", 115, "ends past 2^64-1", HEAD(3, 0), INFO("a", 1, {NEAR_2_63}, G_I8, 0),
           INFO("b", 1, {NEAR_2_63}, G_I8, NEAR_2_63), INFO("c", 1, {128}, G_I8, 2 * NEAR_2_63), PADDING,
           DATA(256)), /* the third begins at 2^64 - 128 and wraps */
    PIECES("bad_128_offset_late", 82, "begins at data byte 64; it must begin at 32", HEAD(2, 0),
           INFO("a", 1, {3}, G_I8, 0), INFO("b", 1, {4}, G_I8, 64), PADDING, DATA(128)),
    PIECES("bad_128_offset_overlaps", 82, "begins at data byte 0; it must begin at 32", HEAD(2, 0),
           INFO("a", 1, {3}, G_I8, 0), INFO("b", 1, {4}, G_I8, 0), PADDING, DATA(128)),
    PIECES("bad_128_offset_unpadded", 82, "begins at data byte 3;", HEAD(2, 0), INFO("a", 1, {3}, G_I8, 0),
           INFO("b", 1, {4}, G_I8, 3), PADDING, DATA(128)),
    ONE_TENSOR("bad_128_offset_of_the_first", 49, "begins at data byte 32; it must begin at 0", "a", 1, {3}, G_I8, 32),
    PIECES("bad_129_duplicate_tensor", 57, "two tensors are named \"a\"", HEAD(2, 0), INFO("a", 1, {3}, G_I8, 0),
           INFO("a", 1, {4}, G_I8, 32), PADDING, DATA(128)),
    PIECES("bad_130_name_of_64", 24, "a tensor's name of 64 bytes; it may have 63", HEAD(1, 0),
           INFO("0123456789012345678901234567890123456789012345678901234567890123", 1, {3}, G_I8, 0), PADDING,
           DATA(64)),
    PIECES("bad_130_name_of_2_64_minus_1", 24, "a tensor's name of 18446744073709551615 bytes", HEAD(1, 0),
           U64(UINT64_MAX), DATA(100)),
    PIECES("bad_131_name_with_nul", 24, "the tensor name \"a\" continues after a NUL", HEAD(1, 0), TEXT("a\0b"), U32(0),
           U32(G_I8), U64(0), PADDING, DATA(32)),
    PIECES("bad_132_one_byte_short", 223, "which has 160 bytes at 64", HEAD(1, 0), INFO("a", 1, {40}, G_F32, 0),
           PADDING, DATA(159)),
    PIECES("bad_132_no_padding", 57, "before the padding to 32", HEAD(1, 0),
           INFO("a", 1, {0}, G_F32, 0)), /* the padding before the data is missing too */
    PIECES("bad_132_empty_past_the_end", 97, "\"b\", which has 0 bytes at 128", HEAD(2, 0), INFO("a", 1, {1}, G_I8, 0),
           INFO("b", 1, {0}, G_I8, 32), PADDING, DATA(1)),
};

/* ---- good ones ----------------------------------------------------------------------------------------- */

/* The gguf package lacks these types or has wrong sizes for them. The sizes are those of ggml-common.h. */
static void types_that_the_package_lacks(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        uint64_t elems, bytes;
        const char *name;
    } types[] = {{9, 32, 36, "Q8_1"}, {42, 64, 18, "Q2_0"}};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct td_buffer file = {0};
        struct parsed p;
        put_one(&file, (struct info){"a", 1, {types[i].elems}, types[i].id, 0});
        gguf_parse(file.data, file.len, &p);
        CHECK(p.ok, "%s: %s", types[i].name, p.err.message);
        assert_string_equal(p.manifest.tensors[0].dtype->name, types[i].name);
        assert_true(p.manifest.tensors[0].nbytes == types[i].bytes);
        parsed_fini(&p);
        __real_free(file.data);
    }
}

static void good_123_dimensions_of_0(void **state)
{
    (void)state;
    static const struct info infos[] = {{"a", 2, {32, 0}, G_Q4_0, 0},
                                        {"a", 2, {0, 5}, G_Q4_0, 0},
                                        {"a", 4, {INT64_MAX, 0, INT64_MAX, 2}, G_I8, 0},
                                        {"", 1, {0}, G_F32, 0}};
    for (size_t i = 0; i < COUNT_OF(infos); i++) {
        struct td_buffer file = {0};
        struct parsed p;
        put_one(&file, infos[i]);
        gguf_parse(file.data, file.len, &p);
        CHECK(p.ok, "%zu: %s", i, p.err.message);
        assert_true(p.manifest.tensors[0].nbytes == 0);
        for (size_t d = 0; d < infos[i].rank; d++)
            assert_true(p.manifest.tensors[0].shape[d] == infos[i].ne[infos[i].rank - 1 - d]);
        parsed_fini(&p);
        __real_free(file.data);
    }
}

static void bounds_that_are_good(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    struct parsed p;
    put_head(&file, 1, 2);
    put_key(&file, "general.alignment", V_U32);
    put_u32(&file, 1 << 24);
    put_u64(&file, 65535); /* the longest key */
    for (size_t i = 0; i < 65535; i++)
        td_buffer_putc(&file, 'k');
    put_u32(&file, V_BOOL);
    td_buffer_putc(&file, 1);
    put_info(&file, (struct info){"012345678901234567890123456789012345678901234567890123456789012", 0, {0}, G_I8, 0});
    td_buffer_reserve(&file, 1 << 24);
    put_padding(&file, 1 << 24);
    put_data(&file, 1);
    gguf_parse(file.data, file.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensors[0].name_len, 63);
    assert_int_equal(p.manifest.tensors[0].rank, 0);
    assert_true(p.manifest.tensors[0].offset == 1 << 24 && p.manifest.tensors[0].nbytes == 1);
    assert_int_equal(strlen(p.manifest.metadata[1].key), 65535);
    parsed_fini(&p);
    __real_free(file.data);
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(types_that_the_package_lacks),
        cmocka_unit_test(good_123_dimensions_of_0),
        cmocka_unit_test(bounds_that_are_good),
    };
    struct CMUnitTest tests[COUNT_OF(bad_cases) + COUNT_OF(others)];
    gguf_case_tests(bad_cases, COUNT_OF(bad_cases), tests);
    memcpy(tests + COUNT_OF(bad_cases), others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
