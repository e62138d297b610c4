#include "parser/dtype.h"
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
        const struct td_dtype *dtype = td_dtype_find(reference[i].name, strlen(reference[i].name));
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
    assert_int_equal(count, COUNT_OF(reference));
    assert_null(td_dtype_at(count + 1));
    assert_null(td_dtype_at(SIZE_MAX));
    for (size_t i = 0; i < count; i++)
        assert_ptr_equal(td_dtype_find(td_dtype_at(i)->name, strlen(td_dtype_at(i)->name)), td_dtype_at(i));
}

static void other_names_are_unknown(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",   "f32",  "F",    "F3",   "F321",        "F128",   "F32 ",         " F32",
        "U1", "bf16", "BF",   "F8",   "F8_E4M3FN",   "F8_E4M", "F8_E5M2FNUZX", "Q4_K",
        "I4", "C128", "F64x", "INT8", "F8_E4M3FNUZZ"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        CHECK(td_dtype_find(names[i], strlen(names[i])) == NULL, "%s", names[i]);
    assert_null(td_dtype_find("F32\0", 4));
    assert_non_null(td_dtype_find("F32xyz", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_the_references),
        cmocka_unit_test(list_holds_each_once),
        cmocka_unit_test(other_names_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
