/* Summaries of many numbers: range, mean, deviation, histogram. Pure. */
#ifndef TD_RANK_VALUES_SUMMARY_H
#define TD_RANK_VALUES_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

struct td_summary {
    uint64_t zeros, nans, infinities; /* how many numbers are of each kind */
    size_t finite;                    /* how many are neither NaN nor infinite, zeros included */
    /* Of the finite numbers; all 0 when there are none. std is the population's: the root of the mean square of the
     * differences from the mean. */
    double min, max, mean, std;
};

/* Summarises values[0..count). Moves the finite numbers to the front of the array, in their order. No sum overflows or
 * underflows, whatever the numbers. */
void td_summary_make(double *values, size_t count, struct td_summary *out);

/* Counts values[0..count), which are finite and from low to high, in `bins` bins of equal width. A number x is in bin
 * floor((x - low) / (high - low) * bins), and `high` in the last one. With low equal to high, all numbers are in the
 * first bin. Sets counts[0..bins). bins is at least 1. */
void td_summary_histogram(const double *values, size_t count, double low, double high, uint32_t bins, uint32_t *counts);

#endif
