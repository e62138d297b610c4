/* The tensor table of a GGUF file: dimensions, block types, offsets and names. */
/* shows: security.md content-gguf */
#include "tests/unit/parser/gguf_case.h"

/* ---- bad inputs ---------------------------------------------------------------------------------------- */

static void rank(struct td_buffer *out, uint32_t value)
{
    put_head(out, 1, 0);
    put_text(out, "a");
    put_u32(out, value);
    put_data(out, 100);
}

static void build_121_five(struct td_buffer *out)
{
    rank(out, 5);
}

static void build_121_most(struct td_buffer *out)
{
    rank(out, UINT32_MAX);
}

static void build_127(struct td_buffer *out)
{
    uint64_t half = (UINT64_C(1) << 63) - 64;
    put_head(out, 2, 0);
    put_info(out, (struct info){"a", 1, {half}, G_I8, 0});
    put_info(out, (struct info){"b", 1, {half}, G_I8, half});
    put_padding(out, 32);
    put_data(out, 64);
}

static void build_127_three(struct td_buffer *out) /* the third begins at 2^64 - 128 and wraps */
{
    uint64_t half = (UINT64_C(1) << 63) - 64;
    put_head(out, 3, 0);
    put_info(out, (struct info){"a", 1, {half}, G_I8, 0});
    put_info(out, (struct info){"b", 1, {half}, G_I8, half});
    put_info(out, (struct info){"c", 1, {128}, G_I8, 2 * half});
    put_padding(out, 32);
    put_data(out, 256);
}

static void two(struct td_buffer *out, const char *second, uint64_t offset)
{
    put_head(out, 2, 0);
    put_info(out, (struct info){"a", 1, {3}, G_I8, 0});
    put_info(out, (struct info){second, 1, {4}, G_I8, offset});
    put_padding(out, 32);
    put_data(out, 128);
}

static void build_128_late(struct td_buffer *out)
{
    two(out, "b", 64);
}

static void build_128_overlap(struct td_buffer *out)
{
    two(out, "b", 0);
}

static void build_128_unpadded(struct td_buffer *out)
{
    two(out, "b", 3);
}

static void build_129(struct td_buffer *out)
{
    two(out, "a", 32);
}

static void build_130(struct td_buffer *out)
{
    static const char name[] = "0123456789012345678901234567890123456789012345678901234567890123";
    put_one(out, (struct info){name, 1, {3}, G_I8, 0});
}

static void build_130_most(struct td_buffer *out)
{
    put_head(out, 1, 0);
    put_u64(out, UINT64_MAX);
    put_data(out, 100);
}

static void build_131(struct td_buffer *out)
{
    put_head(out, 1, 0);
    put_text_n(out, "a\0b", 3);
    put_u32(out, 0);
    put_u32(out, G_I8);
    put_u64(out, 0);
    put_padding(out, 32);
    put_data(out, 32);
}

static void build_132(struct td_buffer *out)
{
    put_head(out, 1, 0);
    put_info(out, (struct info){"a", 1, {40}, G_F32, 0});
    put_padding(out, 32);
    put_data(out, 159);
}

static void build_132_nothing(struct td_buffer *out) /* the padding before the data is missing too */
{
    put_head(out, 1, 0);
    put_info(out, (struct info){"a", 1, {0}, G_F32, 0});
}

static void build_132_empty_past_the_end(struct td_buffer *out)
{
    put_head(out, 2, 0);
    put_info(out, (struct info){"a", 1, {1}, G_I8, 0});
    put_info(out, (struct info){"b", 1, {0}, G_I8, 32});
    put_padding(out, 32);
    put_data(out, 1);
}

static const struct gguf_case bad_cases[] = {
    BUILT("bad_121_5_dimensions", build_121_five, 33, "\"a\" has 5 dimensions"),
    BUILT("bad_121_2_32_minus_1_dimensions", build_121_most, 33, "\"a\" has 4294967295 dimensions"),
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
    BUILT("bad_127_two_near_2_63", build_127, 160, "\"a\", which has 9223372036854775744 bytes"),
    BUILT("bad_127_third_past_2_64", build_127_three, 115, "ends past 2^64-1"),
    BUILT("bad_128_offset_late", build_128_late, 82, "begins at data byte 64; it must begin at 32"),
    BUILT("bad_128_offset_overlaps", build_128_overlap, 82, "begins at data byte 0; it must begin at 32"),
    BUILT("bad_128_offset_unpadded", build_128_unpadded, 82, "begins at data byte 3;"),
    ONE_TENSOR("bad_128_offset_of_the_first", 49, "begins at data byte 32; it must begin at 0", "a", 1, {3}, G_I8, 32),
    BUILT("bad_129_duplicate_tensor", build_129, 57, "two tensors are named \"a\""),
    BUILT("bad_130_name_of_64", build_130, 24, "a tensor's name of 64 bytes; it may have 63"),
    BUILT("bad_130_name_of_2_64_minus_1", build_130_most, 24, "a tensor's name of 18446744073709551615 bytes"),
    BUILT("bad_131_name_with_nul", build_131, 24, "the tensor name \"a\" continues after a NUL"),
    BUILT("bad_132_one_byte_short", build_132, 223, "which has 160 bytes at 64"),
    BUILT("bad_132_no_padding", build_132_nothing, 57, "before the padding to 32"),
    BUILT("bad_132_empty_past_the_end", build_132_empty_past_the_end, 97, "\"b\", which has 0 bytes at 128"),
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
