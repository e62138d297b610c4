#include "rank/values/small_float.h"

#include "core/input.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Returns 2^exponent, for exponents from -1022 to 1023. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns whether the bits below the sign stand for infinity or NaN, or with the sign for NaN. */
static bool is_special(const struct td_small_float *format, uint32_t magnitude, bool is_negative)
{
    const uint32_t highest = (1U << (format->exponent_bits + format->mantissa_bits)) - 1;
    switch (format->kind) {
    case TD_SMALL_IEEE:
        return magnitude >> format->mantissa_bits == highest >> format->mantissa_bits;
    case TD_SMALL_FN:
        return magnitude == highest;
    case TD_SMALL_FNUZ:
        return is_negative && magnitude == 0;
    case TD_SMALL_FINITE:
        break;
    }
    return false;
}

double td_small_float_value(const struct td_small_float *format, uint32_t bits)
{
    const uint32_t sign = 1U << (format->exponent_bits + format->mantissa_bits);
    const uint32_t magnitude = bits & (sign - 1);
    const bool is_negative = (bits & sign) != 0;
    const uint32_t mantissa = magnitude & ((1U << format->mantissa_bits) - 1);
    const int exponent = (int)(magnitude >> format->mantissa_bits);
    double value;
    if (is_special(format, magnitude, is_negative))
        value = format->kind == TD_SMALL_IEEE && mantissa == 0 ? INFINITY : NAN;
    else if (exponent == 0) /* without the leading 1 */
        value = (double)mantissa * power_of_two(1 - format->bias - format->mantissa_bits);
    else
        value = (double)(mantissa + (1U << format->mantissa_bits)) *
                power_of_two(exponent - format->bias - format->mantissa_bits);
    return is_negative ? -value : value;
}

float td_half_value(const uint8_t *bytes)
{
    static const struct td_small_float half = {5, 10, 15, TD_SMALL_IEEE};
    return (float)td_small_float_value(&half, td_load_le16(bytes));
}
