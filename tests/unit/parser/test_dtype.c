#include "parser/format/dtype.h"
#include "tests/unit/unit.h"

/* huggingface/safetensors, safetensors/src/tensor.rs: Dtype::bitsize */
static const struct {
    const char *name;
    unsigned bits;
} reference[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

static void sizes_are_the_references(void **state)
{
    (void)state;
    static const uint64_t elems[] = {0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     5,
                                     6,
                                     7,
                                     8,
                                     12,
                                     100,
                                     1000003,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 53,
                                     UINT64_C(1) << 60,
                                     (UINT64_C(1) << 61) - 4,
                                     UINT64_C(1) << 61,
                                     UINT64_C(1) << 62,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX - 3,
                                     UINT64_MAX};
    for (size_t i = 0; i < COUNT_OF(reference); i++) {
        const struct td_dtype *dtype = td_dtype_find(td_text_of(reference[i].name));
        CHECK(dtype != NULL, "%s", reference[i].name);
        assert_string_equal(dtype->name, reference[i].name);
        for (size_t j = 0; j < COUNT_OF(elems); j++) {
            unsigned __int128 bits = (unsigned __int128)elems[j] * reference[i].bits;
            bool fits = bits % 8 == 0 && bits / 8 <= UINT64_MAX;
            uint64_t nbytes = 77;
            CHECK(td_dtype_nbytes(dtype, elems[j], &nbytes) == fits, "%s, %llu elements", dtype->name,
                  (unsigned long long)elems[j]);
            assert_true(nbytes == (fits ? (uint64_t)(bits / 8) : 77));
        }
    }
}

static void list_holds_each_once(void **state)
{
    (void)state;
    size_t count = 0;
    while (td_dtype_at(count) != NULL)
        count++;
    size_t in_safetensors = 0;
    for (size_t i = 0; i < count; i++)
        in_safetensors += td_dtype_is_safetensors(td_dtype_at(i)) ? 1 : 0;
    assert_int_equal(in_safetensors, COUNT_OF(reference));
    for (size_t i = 0; i < COUNT_OF(reference); i++)
        assert_true(td_dtype_is_safetensors(td_dtype_find(td_text_of(reference[i].name))));
    assert_null(td_dtype_at(count + 1));
    assert_null(td_dtype_at(SIZE_MAX));
    for (size_t i = 0; i < count; i++)
        assert_ptr_equal(td_dtype_find(td_text_of(td_dtype_at(i)->name)), td_dtype_at(i));
}

/* ggml.h and ggml-common.h (QK_K 256): type, elements and bytes of a block. */
static void block_types_are_ggmls(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned elems, bytes;
    } blocks[] = {
        {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},     {"Q5_1", 32, 24},    {"Q8_0", 32, 34},
        {"Q8_1", 32, 36},   {"Q2_K", 256, 84},  {"Q3_K", 256, 110},   {"Q4_K", 256, 144},  {"Q5_K", 256, 176},
        {"Q6_K", 256, 210}, {"Q8_K", 256, 292}, {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74}, {"IQ3_XXS", 256, 98},
        {"IQ1_S", 256, 50}, {"IQ4_NL", 32, 18}, {"IQ3_S", 256, 110},  {"IQ2_S", 256, 82},  {"IQ4_XS", 256, 136},
        {"IQ1_M", 256, 56}, {"TQ1_0", 256, 54}, {"TQ2_0", 256, 66},   {"MXFP4", 32, 17},   {"NVFP4", 64, 36},
        {"Q1_0", 128, 18},  {"Q2_0", 64, 18},
    };
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        const struct td_dtype *dtype = td_dtype_find(td_text_of(blocks[i].name));
        uint64_t nbytes = 0;
        CHECK(dtype != NULL && !td_dtype_is_safetensors(dtype), "%s", blocks[i].name);
        assert_true(td_dtype_nbytes(dtype, 3 * (uint64_t)blocks[i].elems, &nbytes));
        assert_int_equal(nbytes, 3 * blocks[i].bytes);
        assert_false(td_dtype_nbytes(dtype, blocks[i].elems + 1, &nbytes));
    }
}

/* onnx.proto: two elements of 4 bits in a byte, four of 2. */
static void packed_integers_are_onnxs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned elems;
    } types[] = {{"U4", 2}, {"I4", 2}, {"U2", 4}, {"I2", 4}};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        const struct td_dtype *dtype = td_dtype_find(td_text_n(types[i].name, 2));
        uint64_t nbytes;
        CHECK(dtype != NULL && !td_dtype_is_safetensors(dtype), "%s", types[i].name);
        assert_true(td_dtype_nbytes(dtype, UINT64_C(5) * types[i].elems, &nbytes));
        assert_int_equal(nbytes, 5);
        assert_false(td_dtype_nbytes(dtype, types[i].elems + 1, &nbytes));
    }
}

static void other_names_are_unknown(void **state)
{
    (void)state;
    static const char *const names[] = {"",   "f32",  "F",    "F3",   "F321",        "F129",   "F32 ",         " F32",
                                        "U1", "bf16", "BF",   "F8",   "F8_E4M3FN",   "F8_E4M", "F8_E5M2FNUZX", "q4_k",
                                        "I3", "C129", "F64x", "INT8", "F8_E4M3FNUZZ"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        CHECK(td_dtype_find(td_text_of(names[i])) == NULL, "%s", names[i]);
    assert_null(td_dtype_find(TD_TEXT("F32\0")));
    assert_non_null(td_dtype_find(td_text_n("F32xyz", 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_the_references), cmocka_unit_test(list_holds_each_once),
        cmocka_unit_test(block_types_are_ggmls),    cmocka_unit_test(packed_integers_are_onnxs),
        cmocka_unit_test(other_names_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
