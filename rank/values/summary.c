#include "rank/values/summary.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A sum with the rest that rounding took from it (Neumaier). */
struct sum {
    double value, rest;
};

static void add(struct sum *sum, double x)
{
    const double total = sum->value + x;
    sum->rest += fabs(sum->value) >= fabs(x) ? (sum->value - total) + x : (x - total) + sum->value;
    sum->value = total;
}

/* Returns the number of a power of two by which numbers up to `largest` are divided before they are squared and added
 * up; 0 where no sum of 2^64 squares can overflow, and the squares of numbers near `largest` are not subnormal. */
static int exponent_of(double largest)
{
    return largest > 0 && (largest > 0x1p450 || largest < 0x1p-450) ? ilogb(largest) : 0;
}

static double scaled(double x, int exponent)
{
    return exponent == 0 ? x : ldexp(x, -exponent);
}

/* Sets mean and std from the finite numbers; there is at least one. */
static void set_moments(const double *values, struct td_summary *out)
{
    const int exponent = exponent_of(fmax(fabs(out->min), fabs(out->max)));
    struct sum sum = {0, 0};
    struct sum squares = {0, 0};
    if (out->min == out->max) {
        out->mean = out->min;
        return;
    }
    for (size_t i = 0; i < out->finite; i++)
        add(&sum, scaled(values[i], exponent));
    const double mean = (sum.value + sum.rest) / (double)out->finite;
    for (size_t i = 0; i < out->finite; i++) {
        const double difference = scaled(values[i], exponent) - mean;
        add(&squares, difference * difference);
    }
    out->mean = fmin(fmax(ldexp(mean, exponent), out->min), out->max);
    out->std = fmin(ldexp(sqrt((squares.value + squares.rest) / (double)out->finite), exponent), DBL_MAX);
}

void td_summary_make(double *values, size_t count, struct td_summary *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < count; i++) {
        const double x = values[i];
        if (isnan(x)) {
            out->nans++;
        } else if (isinf(x)) {
            out->infinities++;
        } else {
            out->zeros += x == 0 ? 1 : 0;
            out->min = out->finite == 0 || x < out->min ? x : out->min;
            out->max = out->finite == 0 || x > out->max ? x : out->max;
            values[out->finite++] = x;
        }
    }
    if (out->finite > 0)
        set_moments(values, out);
}

void td_summary_histogram(const double *values, size_t count, double low, double high, uint32_t bins, uint32_t *counts)
{
    const double half = isinf(high - low) ? 0.5 : 1; /* keeps differences finite; quotients stay the same */
    const double range = high * half - low * half;
    memset(counts, 0, bins * sizeof *counts);
    for (size_t i = 0; i < count; i++) {
        const double at = range > 0 ? (values[i] * half - low * half) / range * bins : 0;
        counts[at < bins ? (uint32_t)at : bins - 1]++;
    }
}
