/* The starts of all boxes in a dimension are its lines. The boxes fill the array exactly if their number is the product
 * of the numbers of lines, if each box reaches from its lines to the next ones, and if no two boxes are the same cell.
 * So one binary search per dimension finds the cell of an element.
 *
 * What is hard: all boxes come from a file. Products are checked, and fill_lines stops as soon as there are more cells
 * than boxes, which bounds the memory for lines by the number of boxes. */
#include "storage/tiled.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

/* The place of a cell's box. */
struct cell {
    uint64_t off;
    uint32_t part; /* index into the grid's parts */
};

struct td_grid {
    _Atomic int refs;
    uint32_t rank, elem_bytes;
    uint64_t len_bytes;
    uint64_t shape[TD_TILED_MAX_RANK];
    uint64_t *lines[TD_TILED_MAX_RANK]; /* starts, ascending; all in one allocation, lines[0] */
    size_t line_count[TD_TILED_MAX_RANK];
    struct cell *cells; /* row-major over the lines */
    uint32_t *parts;    /* ascending, each once */
    uint64_t *ends;     /* for each part, where its last box ends */
    size_t part_count;
};

struct tiled {
    struct td_blob blob;
    struct td_grid *grid;
    struct td_blob *sources[]; /* for each part */
};

/* ---- the grid ------------------------------------------------------------------------------------------ */

struct td_grid *td_grid_ref(struct td_grid *grid)
{
    atomic_fetch_add_explicit(&grid->refs, 1, memory_order_relaxed);
    return grid;
}

void td_grid_unref(struct td_grid *grid)
{
    if (grid == NULL || atomic_fetch_sub_explicit(&grid->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(grid->lines[0]);
    free(grid->cells);
    free(grid->parts);
    free(grid->ends);
    free(grid);
}

uint64_t td_grid_memory_bytes(uint32_t count, uint32_t rank)
{
    const uint64_t each = 2 * sizeof(uint64_t) + sizeof(struct cell) + sizeof(uint32_t); /* line, end, cell, part */
    return sizeof(struct td_grid) + rank * sizeof(uint64_t) + count * each;
}

const uint32_t *td_grid_parts(const struct td_grid *grid, size_t *count)
{
    *count = grid->part_count;
    return grid->parts;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Returns the last line at or before this index. Every grid has a line at 0. */
static size_t find_line(const struct td_grid *grid, uint32_t dim, uint64_t index)
{
    size_t low = 0;
    size_t high = grid->line_count[dim];
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (grid->lines[dim][middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Returns where the cells that begin at this line end. */
static uint64_t line_end(const struct td_grid *grid, uint32_t dim, size_t line)
{
    return line + 1 < grid->line_count[dim] ? grid->lines[dim][line + 1] : grid->shape[dim];
}

/* Writes the different starts in this dimension to `at` (room for count), ascending. Returns their number. Most
 * dimensions have one start, or have them in order. */
static size_t collect_lines(const struct td_tile *tiles, size_t count, uint32_t dim, uint64_t *at)
{
    bool ascending = true;
    size_t used = 0;
    for (size_t k = 0; k < count; k++) {
        at[k] = tiles[k].starts[dim];
        ascending = ascending && (k == 0 || at[k - 1] <= at[k]);
    }
    if (!ascending)
        qsort(at, count, sizeof *at, compare_u64);
    for (size_t k = 0; k < count; k++)
        if (used == 0 || at[k] != at[used - 1])
            at[used++] = at[k];
    return used;
}

static bool misfit(struct td_error *err)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "its pieces do not fill it exactly");
}

/* Fills in the lines. There are as many cells as boxes, so all lines together are at most count + rank. */
static bool fill_lines(struct td_grid *grid, const struct td_tile *tiles, size_t count, uint64_t *scratch,
                       struct td_error *err)
{
    size_t cells = 1;
    uint64_t *at = grid->lines[0];
    for (uint32_t i = 0; i < grid->rank; i++) {
        size_t used = collect_lines(tiles, count, i, scratch);
        if (scratch[0] != 0 || !td_mul_size(cells, used, &cells) || cells > count)
            return misfit(err);
        memcpy(at, scratch, used * sizeof *at);
        grid->lines[i] = at;
        grid->line_count[i] = used;
        at += used;
    }
    return cells == count || misfit(err);
}

/* Sets *cell to the cell that this box fills exactly, and *bytes to its size. Returns false when the box fills no cell
 * exactly. */
static bool cell_of(const struct td_grid *grid, const struct td_tile *tile, size_t *cell, uint64_t *bytes)
{
    *cell = 0;
    *bytes = grid->elem_bytes;
    for (uint32_t i = 0; i < grid->rank; i++) {
        size_t line = find_line(grid, i, tile->starts[i]);
        uint64_t end = line_end(grid, i, line);
        if (end <= tile->starts[i] || end - tile->starts[i] != tile->sizes[i])
            return false;
        *cell = *cell * grid->line_count[i] + line;
        *bytes *= tile->sizes[i]; /* at most len_bytes */
    }
    return true;
}

/* Fills in the parts: the different file numbers, ascending. */
static void fill_parts(struct td_grid *grid, const struct td_tile *tiles, size_t count)
{
    for (size_t k = 0; k < count; k++)
        grid->parts[k] = tiles[k].part;
    qsort(grid->parts, count, sizeof *grid->parts, compare_u32);
    for (size_t k = 0; k < count; k++)
        if (grid->part_count == 0 || grid->parts[k] != grid->parts[grid->part_count - 1])
            grid->parts[grid->part_count++] = grid->parts[k];
}

/* Enters each box in its cell. Fails when a box fits no cell, or a cell is taken. */
static bool fill_cells(struct td_grid *grid, const struct td_tile *tiles, size_t count, struct td_error *err)
{
    static const struct cell none = {.part = UINT32_MAX};
    for (size_t k = 0; k < count; k++)
        grid->cells[k] = none;
    for (size_t k = 0; k < count; k++) {
        size_t cell;
        uint64_t bytes;
        uint64_t end;
        const uint32_t *part = bsearch(&tiles[k].part, grid->parts, grid->part_count, sizeof *grid->parts, compare_u32);
        if (part == NULL || !cell_of(grid, &tiles[k], &cell, &bytes) || grid->cells[cell].part != none.part ||
            !td_add_u64(tiles[k].off, bytes, &end))
            return misfit(err);
        size_t number = (size_t)(part - grid->parts);
        grid->cells[cell] = (struct cell){.off = tiles[k].off, .part = (uint32_t)number};
        if (end > grid->ends[number])
            grid->ends[number] = end;
    }
    return true;
}

/* Fills in the shape and the size of the array. */
static bool measure_array(struct td_grid *grid, const uint64_t *shape, struct td_error *err)
{
    grid->len_bytes = grid->elem_bytes;
    for (uint32_t i = 0; i < grid->rank; i++) {
        grid->shape[i] = shape[i];
        if (!td_mul_u64(grid->len_bytes, shape[i], &grid->len_bytes))
            return td_error_set(err, TD_INVALID_ARGUMENT, "an array has more than 2^64-1 bytes");
    }
    return true;
}

static struct td_grid *grid_alloc(size_t count, uint32_t elem_bytes, uint32_t rank)
{
    struct td_grid *grid = calloc(1, sizeof *grid);
    if (grid == NULL)
        return NULL;
    atomic_init(&grid->refs, 1);
    grid->rank = rank;
    grid->elem_bytes = elem_bytes;
    grid->lines[0] = calloc(count + rank, sizeof *grid->lines[0]);
    grid->cells = calloc(count, sizeof *grid->cells);
    grid->parts = calloc(count, sizeof *grid->parts);
    grid->ends = calloc(count, sizeof *grid->ends);
    if (grid->lines[0] != NULL && grid->cells != NULL && grid->parts != NULL && grid->ends != NULL)
        return grid;
    td_grid_unref(grid);
    return NULL;
}

bool td_grid_create(const struct td_tile *tiles, size_t count, uint32_t elem_bytes, uint32_t rank,
                    const uint64_t *shape, struct td_grid **out, struct td_error *err)
{
    if (count == 0 || rank > TD_TILED_MAX_RANK)
        return misfit(err);
    struct td_grid *grid = grid_alloc(count, elem_bytes, rank);
    uint64_t *scratch = calloc(count, sizeof *scratch);
    bool ok = (grid != NULL && scratch != NULL) || td_error_no_memory(err);
    if (ok) {
        fill_parts(grid, tiles, count);
        ok = measure_array(grid, shape, err) && fill_lines(grid, tiles, count, scratch, err) &&
             fill_cells(grid, tiles, count, err);
    }
    free(scratch);
    if (ok)
        *out = grid;
    else
        td_grid_unref(grid);
    return ok;
}

/* ---- the blob ------------------------------------------------------------------------------------------ */

static struct tiled *tiled_of(struct td_blob *blob)
{
    return (struct tiled *)(void *)blob;
}

static void tiled_destroy(struct td_blob *blob)
{
    struct tiled *t = tiled_of(blob);
    for (size_t i = 0; i < t->grid->part_count; i++)
        td_blob_unref(t->sources[i]);
    td_grid_unref(t->grid);
    free(t);
}

static bool tiled_unchanged(struct td_blob *blob)
{
    const struct tiled *t = tiled_of(blob);
    for (size_t i = 0; i < t->grid->part_count; i++)
        if (!td_blob_unchanged(t->sources[i]))
            return false;
    return true;
}

/* Returns the cell of element number `elem`. Sets *off to the element's byte in the cell's part, and *run to the number
 * of elements from there on that are contiguous both in the part and in the array. */
static const struct cell *locate_cell(const struct td_grid *grid, uint64_t elem, uint64_t *off, uint64_t *run)
{
    uint64_t tile_step = 1;
    uint64_t at = 0;
    size_t cell = 0;
    size_t cell_step = 1;
    bool full = true; /* the box spans all dimensions further in */
    *run = 1;
    for (uint32_t i = grid->rank; i-- > 0;) {
        uint64_t index = elem % grid->shape[i];
        elem /= grid->shape[i];
        size_t line = find_line(grid, i, index);
        uint64_t start = grid->lines[i][line];
        uint64_t size = line_end(grid, i, line) - start;
        at += (index - start) * tile_step;
        if (full)
            *run = size * tile_step - at;
        full = full && size == grid->shape[i];
        cell += line * cell_step;
        cell_step *= grid->line_count[i];
        tile_step *= size;
    }
    *off = grid->cells[cell].off + at * grid->elem_bytes;
    return &grid->cells[cell];
}

static bool tiled_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct tiled *t = tiled_of(blob);
    const struct td_grid *grid = t->grid;
    uint8_t *to = out;
    while (len > 0) {
        uint64_t within = off % grid->elem_bytes;
        uint64_t at;
        uint64_t run;
        const struct cell *cell = locate_cell(grid, off / grid->elem_bytes, &at, &run);
        uint64_t left = run * grid->elem_bytes - within;
        size_t n = left < len ? (size_t)left : len;
        if (!td_blob_read(t->sources[cell->part], at + within, to, n, err))
            return false;
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

static const struct td_blob_class tiled_class = {
    .destroy = tiled_destroy, .read = tiled_read, .unchanged = tiled_unchanged};

bool td_blob_tiled(struct td_grid *grid, struct td_blob *const *sources, struct td_blob **out, struct td_error *err)
{
    for (size_t i = 0; i < grid->part_count; i++)
        if (grid->ends[i] > sources[i]->len_bytes)
            return td_error_set(err, TD_INTERNAL, "a piece of an array leaves its file");
    struct tiled *t = malloc(sizeof *t + grid->part_count * sizeof(t->sources[0]));
    if (t == NULL)
        return td_error_no_memory(err);
    td_blob_init(&t->blob, &tiled_class, grid->len_bytes);
    t->grid = td_grid_ref(grid);
    for (size_t i = 0; i < grid->part_count; i++)
        t->sources[i] = td_blob_ref(sources[i]);
    *out = &t->blob;
    return true;
}
