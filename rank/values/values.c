#include "rank/values/values.h"

#include "core/input.h"
#include "rank/values/block_values.h"
#include "rank/values/small_float.h"

#include <math.h>
#include <string.h>

enum kind {
    KIND_UNSIGNED,
    KIND_SIGNED,
    KIND_BOOLEAN,
    KIND_DATE,
    KIND_SMALL_FLOAT,
    KIND_UPPER_HALF, /* of a single-precision number */
    KIND_SINGLE,
    KIND_DOUBLE,
    KIND_EXPONENT, /* 2^(x-127); 255 is NaN */
    KIND_EXTENDED, /* the 80-bit numbers of x86 in 16 bytes */
};

/* A type whose elements are one number each, or two with is_complex. Numbers below 8 bits follow one another without
 * gaps, the first in the lowest bits of the first byte. */
struct plain {
    const char *dtype;
    enum kind kind;
    uint8_t bits; /* of a number */
    bool is_complex;
    struct td_small_float format;
};

/* Formats: ml_dtypes, whose names formats.md gives for each type. */
static const struct plain plain_types[] = {
    {"BOOL", KIND_BOOLEAN, 8, false, {0}},
    {"F4", KIND_SMALL_FLOAT, 4, false, {2, 1, 1, TD_SMALL_FINITE}},
    {"F6_E2M3", KIND_SMALL_FLOAT, 6, false, {2, 3, 1, TD_SMALL_FINITE}},
    {"F6_E3M2", KIND_SMALL_FLOAT, 6, false, {3, 2, 3, TD_SMALL_FINITE}},
    {"F8_E5M2", KIND_SMALL_FLOAT, 8, false, {5, 2, 15, TD_SMALL_IEEE}},
    {"F8_E4M3", KIND_SMALL_FLOAT, 8, false, {4, 3, 7, TD_SMALL_FN}},
    {"F8_E8M0", KIND_EXPONENT, 8, false, {0}},
    {"F8_E4M3FNUZ", KIND_SMALL_FLOAT, 8, false, {4, 3, 8, TD_SMALL_FNUZ}},
    {"F8_E5M2FNUZ", KIND_SMALL_FLOAT, 8, false, {5, 2, 16, TD_SMALL_FNUZ}},
    {"F16", KIND_SMALL_FLOAT, 16, false, {5, 10, 15, TD_SMALL_IEEE}},
    {"BF16", KIND_UPPER_HALF, 16, false, {0}},
    {"F32", KIND_SINGLE, 32, false, {0}},
    {"F64", KIND_DOUBLE, 64, false, {0}},
    {"F128", KIND_EXTENDED, 128, false, {0}},
    {"C32", KIND_SMALL_FLOAT, 16, true, {5, 10, 15, TD_SMALL_IEEE}},
    {"C64", KIND_SINGLE, 32, true, {0}},
    {"C128", KIND_DOUBLE, 64, true, {0}},
    {"C256", KIND_EXTENDED, 128, true, {0}},
    {"U2", KIND_UNSIGNED, 2, false, {0}},
    {"U4", KIND_UNSIGNED, 4, false, {0}},
    {"U8", KIND_UNSIGNED, 8, false, {0}},
    {"U16", KIND_UNSIGNED, 16, false, {0}},
    {"U32", KIND_UNSIGNED, 32, false, {0}},
    {"U64", KIND_UNSIGNED, 64, false, {0}},
    {"I2", KIND_SIGNED, 2, false, {0}},
    {"I4", KIND_SIGNED, 4, false, {0}},
    {"I8", KIND_SIGNED, 8, false, {0}},
    {"I16", KIND_SIGNED, 16, false, {0}},
    {"I32", KIND_SIGNED, 32, false, {0}},
    {"I64", KIND_SIGNED, 64, false, {0}},
    {"QINT8", KIND_SIGNED, 8, false, {0}},
    {"QUINT8", KIND_UNSIGNED, 8, false, {0}},
    {"QINT32", KIND_SIGNED, 32, false, {0}},
    {"DATETIME64", KIND_DATE, 64, false, {0}},
    {"TIMEDELTA64", KIND_DATE, 64, false, {0}},
};

static const struct plain *plain_of(const struct td_dtype *dtype)
{
    for (size_t i = 0; i < sizeof plain_types / sizeof *plain_types; i++)
        if (strcmp(plain_types[i].dtype, dtype->name) == 0)
            return &plain_types[i];
    return NULL;
}

/* Returns the bits of number i, of at most 64 bits. */
static uint64_t load_bits(const uint8_t *bytes, unsigned bits, size_t i)
{
    const size_t byte = i * bits / 8;
    const unsigned shift = (unsigned)(i * bits % 8);
    switch (bits) {
    case 8:
        return bytes[byte];
    case 16:
        return td_load_le16(bytes + byte);
    case 32:
        return td_load_le32(bytes + byte);
    case 64:
        return td_load_le64(bytes + byte);
    default: {
        const unsigned next = shift + bits > 8 ? bytes[byte + 1] : 0U;
        return ((unsigned)bytes[byte] | next << 8) >> shift & ((1U << bits) - 1);
    }
    }
}

static double signed_value(uint64_t bits, unsigned width)
{
    const uint64_t sign = UINT64_C(1) << (width - 1);
    return (double)(int64_t)((bits ^ sign) - sign);
}

static double single_value(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double double_value(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns the value of a number of at most 64 bits. */
static double value_of(const struct plain *type, uint64_t bits)
{
    switch (type->kind) {
    case KIND_UNSIGNED:
        return (double)bits;
    case KIND_SIGNED:
        return signed_value(bits, type->bits);
    case KIND_BOOLEAN:
        return bits != 0 ? 1 : 0;
    case KIND_DATE:
        return bits == (uint64_t)INT64_MIN ? (double)NAN : signed_value(bits, 64);
    case KIND_SMALL_FLOAT:
        return td_small_float_value(&type->format, (uint32_t)bits);
    case KIND_UPPER_HALF:
        return single_value((uint32_t)bits << 16);
    case KIND_SINGLE:
        return single_value((uint32_t)bits);
    case KIND_DOUBLE:
        return double_value(bits);
    case KIND_EXPONENT:
        return bits == 255 ? (double)NAN : ldexp(1, (int)bits - 127);
    case KIND_EXTENDED:
        break;
    }
    return NAN;
}

/* Returns an 80-bit number of x86: 64 bits of mantissa with its leading 1, 15 of exponent, the sign. A number other
 * than 0 without the leading 1 is NaN, as for the processor, unless its exponent is 0. */
static long double extended_value(const uint8_t *bytes)
{
    enum { SPECIAL = 0x7FFF, BIAS = 16383, MANTISSA_BITS = 63 };
    const uint64_t mantissa = td_load_le64(bytes);
    const int exponent = td_load_le16(bytes + 8) & SPECIAL;
    long double value;
    if (exponent > 0 && mantissa >> MANTISSA_BITS == 0)
        value = NAN;
    else if (exponent == SPECIAL)
        value = mantissa << 1 == 0 ? INFINITY : NAN;
    else
        value = ldexpl((long double)mantissa, (exponent > 0 ? exponent : 1) - BIAS - MANTISSA_BITS);
    return bytes[9] >> 7 != 0 ? -value : value;
}

static void decode_extended(const struct plain *type, const uint8_t *bytes, size_t count, double *out)
{
    enum { BYTES = 16 };
    for (size_t i = 0; i < count; i++)
        out[i] = (double)(type->is_complex ? hypotl(extended_value(bytes + 2 * i * BYTES),
                                                    extended_value(bytes + (2 * i + 1) * BYTES))
                                           : extended_value(bytes + i * BYTES));
}

static void decode_plain(const struct plain *type, const uint8_t *bytes, size_t count, double *out)
{
    if (type->kind == KIND_EXTENDED) {
        decode_extended(type, bytes, count, out);
    } else if (type->is_complex) {
        for (size_t i = 0; i < count; i++)
            out[i] = hypot(value_of(type, load_bits(bytes, type->bits, 2 * i)),
                           value_of(type, load_bits(bytes, type->bits, 2 * i + 1)));
    } else {
        for (size_t i = 0; i < count; i++)
            out[i] = value_of(type, load_bits(bytes, type->bits, i));
    }
}

bool td_values_known(const struct td_dtype *dtype)
{
    return plain_of(dtype) != NULL || td_block_decoder_of(dtype) != NULL;
}

void td_values_decode(const struct td_dtype *dtype, const uint8_t *bytes, size_t blocks, double *out)
{
    const struct plain *plain = plain_of(dtype);
    if (plain != NULL) {
        decode_plain(plain, bytes, blocks * dtype->block_elems, out);
        return;
    }
    float block[TD_BLOCK_MAX_ELEMS];
    td_block_decoder *decode = td_block_decoder_of(dtype);
    for (size_t i = 0; i < blocks; i++, bytes += dtype->block_bytes, out += dtype->block_elems) {
        decode(bytes, block);
        for (size_t k = 0; k < dtype->block_elems; k++)
            out[k] = (double)block[k];
    }
}
