/* All that is read is listed first, as picks in the order of their places, so that files are read in one sweep and the
 * kernel can begin to read all of it at once. */
#include "rank/tensor_stats.h"

#include "core/input.h"
#include "core/waiting.h"
#include "rank/values/block_values.h"
#include "rank/values/values.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PICKS = TD_STATS_RUNS + TD_STATS_MAP_SIDE * TD_STATS_MAP_SIDE,
    NO_CELL = UINT16_MAX,
    MOST_DECODED = TD_STATS_RUN_ELEMS + 2 * TD_BLOCK_MAX_ELEMS, /* elements of all blocks that a pick touches */
    MOST_BYTES = TD_STATS_RUN_ELEMS * 32, /* of these blocks; no element takes more than 32 bytes */
};

/* Consecutive elements that are read: a run of the sample, or a cell of the heat map. */
struct pick {
    uint64_t start; /* number of the first element in logical order */
    uint16_t count; /* elements, 1 to TD_STATS_RUN_ELEMS */
    uint16_t cell;  /* its place in td_tensor_stats.map; NO_CELL: a run */
};

struct sampling {
    const struct td_tensor_slice *slice;
    struct td_tensor_stats *stats;
    struct td_body body; /* the bytes of all picks, one after the other */
    struct td_body_cursor cursor;
    size_t pick_count, value_count;
    struct pick picks[MOST_PICKS];
    double decoded[MOST_DECODED];
    uint8_t bytes[MOST_BYTES];
    double values[]; /* room for the sample */
};

/* ---- what is read --------------------------------------------------------------------------------------- */

/* Returns floor(whole * part / parts) for part <= parts < 2^16, without overflow. */
static uint64_t share_of(uint64_t whole, uint64_t part, uint64_t parts)
{
    return whole / parts * part + whole % parts * part / parts;
}

static void add_pick(struct sampling *s, uint64_t start, uint64_t count, size_t cell)
{
    s->picks[s->pick_count++] = (struct pick){.start = start, .count = (uint16_t)count, .cell = (uint16_t)cell};
}

static void pick_runs(struct sampling *s)
{
    const uint64_t elements = s->stats->elements;
    const uint64_t block_elems = s->stats->dtype->block_elems;
    for (uint64_t i = 0, at = 0; i < TD_STATS_RUNS && at < elements; i++, at += TD_STATS_RUN_ELEMS) {
        uint64_t start = at;
        if (elements > TD_STATS_SAMPLE_ELEMS)
            start = share_of(elements - TD_STATS_RUN_ELEMS, i, TD_STATS_RUNS - 1) / block_elems * block_elems;
        const uint64_t rest = elements - start;
        add_pick(s, start, rest < TD_STATS_RUN_ELEMS ? rest : TD_STATS_RUN_ELEMS, NO_CELL);
    }
}

static void pick_cells(struct sampling *s)
{
    struct td_tensor_stats *stats = s->stats;
    if (stats->rank < 2 || stats->elements == 0)
        return;
    const uint64_t columns = stats->shape[stats->rank - 1];
    const uint64_t rows = stats->elements / columns;
    const uint64_t height = rows < TD_STATS_MAP_SIDE ? rows : TD_STATS_MAP_SIDE;
    const uint64_t width = columns < TD_STATS_MAP_SIDE ? columns : TD_STATS_MAP_SIDE;
    stats->map_rows = (uint32_t)height;
    stats->map_columns = (uint32_t)width;
    for (uint64_t i = 0; i < height; i++)
        for (uint64_t j = 0; j < width; j++) {
            const uint64_t first = share_of(columns, j, width);
            const uint64_t count = share_of(columns, j + 1, width) - first;
            add_pick(s, share_of(rows, 2 * i + 1, 2 * height) * columns + first,
                     count < TD_STATS_CELL_ELEMS ? count : TD_STATS_CELL_ELEMS, i * width + j);
        }
}

static int compare_picks(const void *a, const void *b)
{
    const uint64_t x = ((const struct pick *)a)->start;
    const uint64_t y = ((const struct pick *)b)->start;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Returns the number of the block that holds the pick's first element. */
static uint64_t first_block(const struct sampling *s, const struct pick *pick)
{
    return pick->start / s->stats->dtype->block_elems;
}

/* Returns the number of blocks that hold the pick's elements. */
static size_t blocks_of(const struct sampling *s, const struct pick *pick)
{
    const uint64_t last = (pick->start + pick->count - 1) / s->stats->dtype->block_elems;
    return (size_t)(last - first_block(s, pick) + 1);
}

/* ---- reading -------------------------------------------------------------------------------------------- */

/* Appends the bytes of the slice to `whole`, as places in the files where it has few. */
static bool open_slice(const struct td_tensor_slice *slice, struct td_body *whole, struct td_error *err)
{
    struct td_blob *blob = NULL;
    bool ok = td_tensor_slice_open(slice, false, &blob, err) && td_body_append(whole, blob, 0, blob->len_bytes, err) &&
              td_body_resolve(whole, err);
    td_blob_unref(blob);
    return ok;
}

/* Makes the body of all picks, and has the kernel begin to read those that are one run of a mapped file. */
static bool open_body(struct sampling *s, struct td_error *err)
{
    const uint64_t block_bytes = s->stats->dtype->block_bytes;
    struct td_body whole;
    td_body_init(&whole);
    bool ok = open_slice(s->slice, &whole, err);
    for (size_t i = 0; ok && i < s->pick_count; i++)
        ok = td_body_cut(&whole, first_block(s, &s->picks[i]) * block_bytes, blocks_of(s, &s->picks[i]) * block_bytes,
                         &s->body, err);
    td_body_fini(&whole);
    for (size_t i = 0; ok && i < s->body.extent_count; i++)
        if (s->body.extents[i].count == 1)
            td_blob_will_need(s->body.extents[i].blob, s->body.extents[i].off, s->body.extents[i].len);
    return ok;
}

/* Reads the next len bytes of the body. One run of a mapped file is read from its descriptor, so that the kernel
 * neither maps the pages around the run into this process nor reads them ahead: nobody needs them. */
static bool read_next(struct sampling *s, size_t len, struct td_error *err)
{
    struct td_body_cursor next = s->cursor;
    struct td_blob *blob = NULL;
    uint64_t off = 0;
    uint64_t piece;
    td_body_next(&s->body, &next, len, &blob, &off, &piece);
    if (piece < len || blob->class->descriptor == NULL)
        return td_body_read(&s->body, &s->cursor, s->bytes, len, err);
    const int fd = blob->class->descriptor(blob);
    const struct td_input input = td_input_descriptor(&fd, blob->len_bytes);
    s->cursor = next;
    return td_input_read(&input, off, s->bytes, len, err);
}

/* Returns the mean of the magnitudes of the finite numbers, NaN when there are none. */
static double mean_magnitude(const double *values, size_t count)
{
    size_t finite = 0;
    double sum = 0;
    double mean = 0; /* less exact than the sum, but within the range of a double */
    for (size_t i = 0; i < count; i++)
        finite += isfinite(values[i]) ? 1 : 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            sum += fabs(values[i]);
            mean += fabs(values[i]) / (double)finite;
        }
    return finite == 0 ? (double)NAN : isinf(sum) ? mean : sum / (double)finite;
}

static bool read_pick(struct sampling *s, const struct pick *pick, struct td_error *err)
{
    const struct td_dtype *dtype = s->stats->dtype;
    const size_t blocks = blocks_of(s, pick);
    if (td_cancel_is_asked(s->slice->cancel))
        return td_error_set(err, TD_UNAVAILABLE, "the request was cancelled");
    assert(blocks * dtype->block_elems <= MOST_DECODED && blocks * dtype->block_bytes <= MOST_BYTES);
    if (!read_next(s, blocks * dtype->block_bytes, err))
        return false;
    td_values_decode(dtype, s->bytes, blocks, s->decoded);
    const double *values = s->decoded + pick->start % dtype->block_elems;
    if (pick->cell != NO_CELL) {
        s->stats->map[pick->cell] = mean_magnitude(values, pick->count);
        return true;
    }
    memcpy(s->values + s->value_count, values, pick->count * sizeof *values);
    s->value_count += pick->count;
    return true;
}

static bool read_picks(struct sampling *s, struct td_error *err)
{
    pick_runs(s);
    pick_cells(s);
    if (s->pick_count == 0)
        return true;
    qsort(s->picks, s->pick_count, sizeof *s->picks, compare_picks);
    bool ok = open_body(s, err);
    for (size_t i = 0; ok && i < s->pick_count; i++)
        ok = read_pick(s, &s->picks[i], err);
    return ok && (td_body_unchanged(&s->body) ||
                  td_error_set(err, TD_UNAVAILABLE, "a file of the tensor changed while it was read"));
}

/* ---- statistics ----------------------------------------------------------------------------------------- */

static void summarise(struct sampling *s, uint32_t bins)
{
    struct td_tensor_stats *stats = s->stats;
    struct td_summary *summary = &stats->summary;
    stats->sampled = s->value_count;
    stats->first_count = s->value_count < TD_STATS_FIRST ? (uint32_t)s->value_count : TD_STATS_FIRST;
    memcpy(stats->first, s->values, stats->first_count * sizeof *stats->first);
    td_summary_make(s->values, s->value_count, summary);
    stats->bin_count = summary->finite == 0 ? 0 : summary->min == summary->max ? 1 : bins;
    if (stats->bin_count > 0)
        td_summary_histogram(s->values, summary->finite, summary->min, summary->max, stats->bin_count, stats->counts);
}

/* Samples and summarises, in memory that it takes from the slice's budget and returns. */
static bool fill(const struct td_tensor_slice *slice, uint32_t bins, struct td_tensor_stats *stats,
                 struct td_error *err)
{
    const size_t room = stats->elements < TD_STATS_SAMPLE_ELEMS ? (size_t)stats->elements : TD_STATS_SAMPLE_ELEMS;
    const size_t bytes = sizeof(struct sampling) + room * sizeof(double);
    if (!td_budget_take(slice->budget, bytes))
        return td_budget_refuse(slice->budget, bytes, err);
    struct sampling *s = malloc(bytes);
    if (s == NULL) {
        td_budget_give(slice->budget, bytes);
        return td_error_no_memory(err);
    }
    s->slice = slice;
    s->stats = stats;
    td_body_init(&s->body);
    s->cursor = (struct td_body_cursor){0};
    s->pick_count = s->value_count = 0;
    bool ok = read_picks(s, err);
    if (ok)
        summarise(s, bins);
    td_body_fini(&s->body);
    free(s);
    td_budget_give(slice->budget, bytes);
    return ok;
}

struct td_tensor_stats *td_tensor_stats_create(const struct td_tensor_slice *slice, uint32_t bins, struct td_error *err)
{
    const struct td_tensor *tensor = td_checkpoint_tensor(slice->checkpoint, slice->number).tensor;
    if (!td_values_known(tensor->dtype)) {
        (void)td_error_set(err, TD_FAILED_PRECONDITION, "no statistics for %s: the server does not decode this type",
                           tensor->dtype->name);
        return NULL;
    }
    if (!td_may_wait(err))
        return NULL;
    struct td_tensor_stats *stats = calloc(1, sizeof *stats);
    if (stats == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    stats->dtype = tensor->dtype;
    stats->rank = td_selection_shape(slice->selection, stats->shape);
    bool ok = td_selection_nbytes(slice->selection, tensor->shape, tensor->dtype, &stats->nbytes, err);
    stats->elements = stats->nbytes / tensor->dtype->block_bytes * tensor->dtype->block_elems;
    if (ok && fill(slice, bins, stats, err))
        return stats;
    free(stats);
    return NULL;
}
