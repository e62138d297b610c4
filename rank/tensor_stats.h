/* Statistics of a tensor, or of a part of it, from a fixed sample of its elements: the same elements for everybody, so
 * that the figures can be computed again from the bytes.
 *
 * A tensor of at most TD_STATS_SAMPLE_ELEMS elements is read whole. Of a larger one, of n elements, the sample is
 * TD_STATS_RUNS runs of TD_STATS_RUN_ELEMS elements in logical (row-major) order: run i begins at element
 * floor(i * (n - TD_STATS_RUN_ELEMS) / (TD_STATS_RUNS - 1)). In a type of blocks it begins with the first element of
 * the block that holds this element. Elements become numbers as rank/values/values.h says.
 *
 * The heat map shows a tensor of two or more dimensions as a matrix, whose columns are the last dimension. It has h =
 * min(rows, TD_STATS_MAP_SIDE) rows and w = min(columns, TD_STATS_MAP_SIDE) columns. Cell (i, j) is the mean of the
 * magnitudes of the finite ones among the first TD_STATS_CELL_ELEMS elements of row floor((2 * i + 1) * rows / (2 * h))
 * from column floor(j * columns / w) to column floor((j + 1) * columns / w) - 1. */
#ifndef TD_RANK_TENSOR_STATS_H
#define TD_RANK_TENSOR_STATS_H

#include "rank/tensor_source.h"
#include "rank/values/summary.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_STATS_RUNS = 256,
    TD_STATS_RUN_ELEMS = 4096,
    TD_STATS_SAMPLE_ELEMS = TD_STATS_RUNS * TD_STATS_RUN_ELEMS,
    TD_STATS_MAP_SIDE = 32,
    TD_STATS_CELL_ELEMS = 64,
    TD_STATS_BINS = 64, /* of the histogram, where nobody asks for another number */
    TD_STATS_MOST_BINS = 512,
    TD_STATS_FIRST = 16,
};

struct td_tensor_stats {
    const struct td_dtype *dtype;
    uint32_t rank; /* of the part, as td_selection_shape gives it */
    uint64_t shape[TD_MAX_RANK];
    uint64_t nbytes;   /* of the part */
    uint64_t elements; /* of the part */
    uint64_t sampled;  /* elements of the sample; equal to `elements` for the whole part */
    struct td_summary summary;
    uint32_t bin_count; /* of the histogram: 0 when no element is finite, 1 when all finite ones are equal */
    uint32_t counts[TD_STATS_MOST_BINS]; /* elements in each bin, as td_summary_histogram counts from min to max */
    uint32_t map_rows, map_columns;      /* 0 and 0: no heat map, for fewer than 2 dimensions and for no elements */
    double map[TD_STATS_MAP_SIDE * TD_STATS_MAP_SIDE]; /* row by row; NaN: no element of the cell is finite */
    uint32_t first_count;
    double first[TD_STATS_FIRST]; /* the first elements in logical order, also those that are not finite */
};

/* Returns the statistics of a slice, with a histogram of `bins` bins, 1 to TD_STATS_MOST_BINS; the caller frees them
 * with free(). Reads the sample and the elements of the heat map, and no other part of the files but for what unpacking
 * these takes; the slice's cancel ends this. Takes at most 10 MiB while it runs, from the slice's budget, beside what
 * td_tensor_slice_open takes. Returns NULL on failure. Errors: TD_FAILED_PRECONDITION for a type without statistics;
 * TD_UNAVAILABLE when a file changed or the request was cancelled; td_may_wait; as td_selection_nbytes; as
 * td_tensor_slice_open and reads of its blob; as td_budget_refuse. */
struct td_tensor_stats *td_tensor_stats_create(const struct td_tensor_slice *slice, uint32_t bins,
                                               struct td_error *err);

#endif
