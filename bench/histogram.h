/* A histogram of latencies in ns, log-linear: 256 exact steps, then 128 per power of two (0.8% apart). */
#ifndef TD_BENCH_HISTOGRAM_H
#define TD_BENCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_STEPS ((size_t)256)
#define HISTOGRAM_CELLS (57 * HISTOGRAM_STEPS)

/* Returns the cell that counts this latency. */
static inline size_t histogram_cell(uint64_t ns)
{
    unsigned bits = 64u - (unsigned)__builtin_clzll(ns | 1u);
    unsigned shift = bits > 8 ? bits - 8 : 0;
    return shift * HISTOGRAM_STEPS + (size_t)(ns >> shift);
}

/* Returns the latency in the middle of the cell, in us. */
static inline double histogram_value_us(size_t cell)
{
    uint64_t shift = cell / HISTOGRAM_STEPS;
    double step = (double)(UINT64_C(1) << shift);
    return ((double)(cell % HISTOGRAM_STEPS) + (shift ? 0.5 : 0.0)) * step / 1000.0;
}

/* Returns the latency, in us, that a share q of the `total` counted latencies stays below; 0 when total is 0. */
static inline double histogram_quantile_us(const uint64_t *cells, uint64_t total, double q)
{
    if (total == 0)
        return 0;
    uint64_t want = (uint64_t)(q * (double)total);
    if (want >= total)
        want = total - 1;
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_CELLS; i++) {
        seen += cells[i];
        if (seen > want)
            return histogram_value_us(i);
    }
    return 0;
}

#endif
