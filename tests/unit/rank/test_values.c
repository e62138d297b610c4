/* tests/http/test_tensor_stats.py compares the same values with those libraries one by one. */
#include "rank/values/codebook.h"
#include "rank/values/values.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <zlib.h>

/* CRC-32 of all values as little-endian doubles, with 12345 in place of NaN, as ml_dtypes 0.6.0 and NumPy 2.4.6 have
 * them. The bytes are all that a type of 8 bits or less can have, or all pairs of them, in ascending order. */
static const struct {
    const char *dtype;
    uint32_t crc;
} plain_values[] = {
    {"F8_E5M2", 0x9B00476F},     {"F8_E4M3", 0xAD51AE23}, {"F8_E8M0", 0xC6245978}, {"F8_E4M3FNUZ", 0x9EB252AE},
    {"F8_E5M2FNUZ", 0xA42FC536}, {"BOOL", 0x009D6C17},    {"U8", 0x52034E86},      {"I8", 0xB4AE1B57},
    {"F16", 0x7880D5D3},         {"BF16", 0x3B5B4F49},    {"U16", 0xA10D39DD},     {"I16", 0xE0442CCA},
    {"F4", 0xF4440271},          {"U4", 0x7779EE3E},      {"I4", 0x4913A4CC},      {"U2", 0x4E6B4B74},
    {"I2", 0x26F45CFE},          {"F6_E2M3", 0xF6A05DCB}, {"F6_E3M2", 0x05E0BA67},
};

/* The same of gguf.quants.dequantize of gguf 0.19.0, for 64 blocks whose byte i is 7 * i * i + 29 * i + i / 256. */
static const struct {
    const char *dtype;
    uint32_t crc;
} block_values[] = {
    {"Q4_0", 0x618CB58C},  {"Q4_1", 0x6AD6EC5E},    {"Q5_0", 0x6E6BA33B},    {"Q5_1", 0x4EAFED51},
    {"Q8_0", 0xD7850D6F},  {"Q2_K", 0xE5CD8AEE},    {"Q3_K", 0x9875F39D},    {"Q4_K", 0x34DDA3CB},
    {"Q5_K", 0x2BDEFA2F},  {"Q6_K", 0xEC0834BD},    {"IQ4_NL", 0x18C134AE},  {"IQ4_XS", 0xAAE3D6F4},
    {"TQ1_0", 0xAC97D96B}, {"TQ2_0", 0xEEF8D0FC},   {"MXFP4", 0xD9F07758},   {"NVFP4", 0xB1939766},
    {"IQ1_S", 0xD92A7F5B}, {"IQ1_M", 0x3FE8DBB7},   {"IQ2_XXS", 0xF2F9B414}, {"IQ2_XS", 0x2D71CF99},
    {"IQ2_S", 0x73E6877C}, {"IQ3_XXS", 0x0C84F118}, {"IQ3_S", 0x9D3DF907},
};

/* CRC-32 of the numbers of all points, a byte each, of the attribute `grid` of gguf.quants.IQ1_S and so on. */
static const struct {
    const struct td_codebook *book;
    uint32_t crc;
} codebooks[] = {
    {&td_codebook_iq1, 0xB85E6CCF},   {&td_codebook_iq2_xxs, 0x9924FF02}, {&td_codebook_iq2_xs, 0xFA1E1BFD},
    {&td_codebook_iq2_s, 0x25AE5BF1}, {&td_codebook_iq3_xxs, 0x07BA9ED0}, {&td_codebook_iq3_s, 0xF576E4F3},
};

static const struct td_dtype *dtype_of(const char *name)
{
    const struct td_dtype *dtype = td_dtype_find(td_text_of(name));
    CHECK(dtype != NULL && td_values_known(dtype), "%s", name);
    return dtype;
}

static void check_crc(const struct td_dtype *dtype, const uint8_t *bytes, size_t blocks, uint32_t expected)
{
    const size_t count = blocks * dtype->block_elems;
    double *values = malloc(count * sizeof *values);
    assert_non_null(values);
    td_values_decode(dtype, bytes, blocks, values);
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]))
            values[i] = 12345;
    const uint32_t found = (uint32_t)crc32(0, (const uint8_t *)values, (uInt)(count * sizeof *values));
    CHECK(found == expected, "%s: 0x%08X", dtype->name, found);
    free(values);
}

static void plain_values_are_those_of_ml_dtypes(void **state)
{
    (void)state;
    static uint8_t words[131072];
    static uint8_t codes[256];
    static uint8_t six[48]; /* 0 to 63, packed */
    for (size_t i = 0; i < 65536; i++) {
        words[2 * i] = (uint8_t)i;
        words[2 * i + 1] = (uint8_t)(i >> 8);
        codes[i % 256] = (uint8_t)i;
    }
    for (unsigned i = 0; i < 64 * 6; i++)
        six[i / 8] = (uint8_t)(six[i / 8] | (i / 6 >> i % 6 & 1) << i % 8);
    for (size_t i = 0; i < COUNT_OF(plain_values); i++) {
        const struct td_dtype *dtype = dtype_of(plain_values[i].dtype);
        const uint8_t *bytes = dtype->block_bytes == 1 ? codes : dtype->block_bytes == 2 ? words : six;
        const size_t size = dtype->block_bytes == 1   ? sizeof codes
                            : dtype->block_bytes == 2 ? sizeof words
                                                      : sizeof six;
        check_crc(dtype, bytes, size / dtype->block_bytes, plain_values[i].crc);
    }
}

static void block_values_are_those_of_gguf(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(block_values); i++) {
        const struct td_dtype *dtype = dtype_of(block_values[i].dtype);
        const size_t size = (size_t)64 * dtype->block_bytes;
        uint8_t *bytes = malloc(size); /* exactly so much, so that AddressSanitizer sees a read past a block */
        assert_non_null(bytes);
        for (size_t k = 0; k < size; k++)
            bytes[k] = (uint8_t)(k * k * 7 + k * 29 + (k >> 8));
        check_crc(dtype, bytes, 64, block_values[i].crc);
        free(bytes);
    }
}

static void points_are_those_of_gguf(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(codebooks); i++) {
        const struct td_codebook *book = codebooks[i].book;
        uint32_t found = 0;
        for (unsigned k = 0; k < book->points; k++) {
            int8_t numbers[TD_CODEBOOK_MOST_NUMBERS];
            td_codebook_point(book, k, numbers);
            found = (uint32_t)crc32(found, (const uint8_t *)numbers, book->numbers);
        }
        CHECK(found == codebooks[i].crc, "codebook %zu: 0x%08X", i, found);
    }
}

/* Writes a little-endian number of `bytes` bytes. */
static void put(uint8_t *at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(number >> 8 * i);
}

static void wide_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        uint64_t low, high; /* the element: 8 bytes and 8 more */
        double value;
    } cases[] = {
        {"U32", 0xFFFFFFFF, 0, 4294967295.0},
        {"I32", 0xFFFFFFFF, 0, -1},
        {"QINT32", 0x80000000, 0, -2147483648.0},
        {"U64", UINT64_MAX, 0, 0x1p64},
        {"I64", UINT64_C(1) << 63, 0, -0x1p63},
        {"DATETIME64", UINT64_MAX, 0, -1},
        {"DATETIME64", UINT64_C(1) << 63, 0, (double)NAN},
        {"TIMEDELTA64", 86400, 0, 86400},
        {"F32", 1, 0, 0x1p-149},
        {"F32", 0xFF800000, 0, -(double)INFINITY},
        {"F64", 1, 0, 0x1p-1074},
        {"F64", UINT64_C(0x7FEFFFFFFFFFFFFF), 0, 0x1.fffffffffffffp1023},
        {"C32", 0x40003C00, 0, 2.23606797749979},    /* 1 + 2i */
        {"C64", UINT64_C(0x4080000040400000), 0, 5}, /* 3 + 4i */
        {"C128", UINT64_C(0x4014000000000000), UINT64_C(0xC028000000000000), 13},
        {"F128", UINT64_C(0x8000000000000000), 0x3FFF, 1},
        {"F128", UINT64_C(0xC000000000000000), 0xC000, -3},
        {"F128", UINT64_C(0x8000000000000000), 0x7FFF, (double)INFINITY},
        {"F128", UINT64_C(0xC000000000000000), 0x7FFF, (double)NAN},
        {"F128", UINT64_C(0x4000000000000000), 0x3FFF, (double)NAN},      /* without the leading 1 */
        {"F128", UINT64_C(0x8000000000000000), 0x7FFE, (double)INFINITY}, /* 2^16383 */
        {"F128", 1, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t bytes[16];
        double value = 77;
        put(bytes, cases[i].low, 8);
        put(bytes + 8, cases[i].high, 8);
        td_values_decode(dtype_of(cases[i].dtype), bytes, 1, &value);
        CHECK(isnan(cases[i].value) ? isnan(value) : value == cases[i].value, "%s, case %zu: %a", cases[i].dtype, i,
              value);
    }
}

/* torch's packed types, whose elements are bytes of several values; blocks that the package gguf does not decode. */
static void other_types_are_not_known(void **state)
{
    (void)state;
    static const char *const names[] = {"QUINT4x2", "QUINT2x4", "F4_E2M1_X2", "BITS8", "BITS16", "STRING", "OBJECT",
                                        "COMPOUND", "OPAQUE",   "Q8_1",       "Q8_K",  "Q1_0",   "Q2_0"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        CHECK(!td_values_known(td_dtype_find(td_text_of(names[i]))), "%s", names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values_are_those_of_ml_dtypes),
        cmocka_unit_test(block_values_are_those_of_gguf),
        cmocka_unit_test(points_are_those_of_gguf),
        cmocka_unit_test(wide_numbers),
        cmocka_unit_test(other_types_are_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
