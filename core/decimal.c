#include "core/decimal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIGITS_MAX = 17 }; /* the most that a double needs */

/* Writes digits with a point after digit number `exponent` and zeros where digits are missing: 0.001, 1.5, 100.0. */
static void write_digits(struct td_buffer *out, const char *digits, long count, long exponent)
{
    if (exponent < 0)
        td_buffer_append(out, "0.000", (size_t)(1 - exponent));
    long last = count > exponent + 2 ? count : exponent + 2;
    for (long i = 0; i < (exponent < 0 ? count : last); i++) {
        if (i == exponent + 1 && exponent >= 0)
            td_buffer_putc(out, '.');
        td_buffer_putc(out, i < count ? digits[i] : '0');
    }
}

/* Writes a number in the form d.ddde+XX as a person would: with an exponent below 1e-4 and from 1e16 on, else without.
 * The result has a point or an exponent, which distinguishes it from an integer. */
static void write_scientific(struct td_buffer *out, const char *scientific)
{
    char digits[DIGITS_MAX] = "0";
    long count = 0;
    const char *p = scientific + (*scientific == '-');
    for (; *p != 'e' && *p != '\0' && count < DIGITS_MAX; p++)
        if (*p != '.')
            digits[count++] = *p;
    long exponent = *p == 'e' ? strtol(p + 1, NULL, 10) : 0;
    while (count > 1 && digits[count - 1] == '0')
        count--;
    if (*scientific == '-')
        td_buffer_putc(out, '-');
    if (exponent >= -4 && exponent < 16) {
        write_digits(out, digits, count, exponent);
        return;
    }
    td_buffer_putc(out, digits[0]);
    if (count > 1)
        td_buffer_putc(out, '.');
    td_buffer_append(out, digits + 1, (size_t)count - 1);
    td_buffer_printf(out, "e%+03ld", exponent);
}

/* Returns the number of digits to try first. A decimal of FLT_DIG or DBL_DIG digits always survives the way to
 * binary and back, so fewer need not be tried: zeros at the end are dropped later. Subnormal numbers have fewer bits,
 * so for them the search begins at 1. */
static int fewest_digits(double value, bool single)
{
    if (fabs(value) < (single ? (double)FLT_MIN : DBL_MIN))
        return 1;
    return single ? FLT_DIG : DBL_DIG;
}

void td_write_decimal(struct td_buffer *out, double value, bool single)
{
    char text[32];
    if (isnan(value) || isinf(value)) {
        td_buffer_puts(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = fewest_digits(value, single); digits <= DIGITS_MAX; digits++) {
        (void)snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    write_scientific(out, text);
}
