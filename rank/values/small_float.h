/* Floating-point numbers of at most 16 bits: a sign, an exponent and a mantissa, from the highest bit to the lowest.
 * Pure. */
#ifndef TD_RANK_VALUES_SMALL_FLOAT_H
#define TD_RANK_VALUES_SMALL_FLOAT_H

#include <stdint.h>

/* The bit patterns that are no finite numbers. */
enum td_small_float_kind {
    TD_SMALL_FINITE, /* there are none: F4, F6 */
    TD_SMALL_IEEE,   /* the highest exponent: infinity with the mantissa 0, else NaN */
    TD_SMALL_FN,     /* all bits below the sign set: NaN; there is no infinity */
    TD_SMALL_FNUZ,   /* the sign bit alone: NaN; there is neither infinity nor negative zero */
};

struct td_small_float {
    uint8_t exponent_bits, mantissa_bits, bias;
    enum td_small_float_kind kind;
};

/* Returns the number that the lowest 1 + exponent_bits + mantissa_bits bits stand for. Exact. */
double td_small_float_value(const struct td_small_float *format, uint32_t bits);

/* Returns the value of an IEEE half-precision number, little-endian at `bytes`. Exact. */
float td_half_value(const uint8_t *bytes);

#endif
