#include "storage/tiled.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The grid: where its lines run in each dimension, and which tile is in which cell. */
struct grid {
    uint32_t rank;
    uint64_t *lines[TD_TILED_MAX_RANK]; /* starts in ascending order; all in one allocation, lines[0] */
    size_t line_count[TD_TILED_MAX_RANK];
    size_t *cells; /* index of the tile, row-major over the lines */
};

struct piece {
    struct td_blob *source;
    uint64_t off;
};

struct tiled {
    struct td_blob blob;
    struct grid grid;
    uint32_t elem_bytes;
    uint64_t shape[TD_TILED_MAX_RANK];
    size_t piece_count;
    struct piece *pieces;
};

static void grid_fini(struct grid *grid)
{
    free(grid->lines[0]);
    free(grid->cells);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The last line at or before this index; every grid has a line at 0. */
static size_t find_line(const struct grid *grid, uint32_t dim, uint64_t index)
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

static uint64_t line_end(const struct grid *grid, const uint64_t *shape, uint32_t dim, size_t line)
{
    return line + 1 < grid->line_count[dim] ? grid->lines[dim][line + 1] : shape[dim];
}

/* Collects the lines; false when memory is short. */
static bool grid_lines(struct grid *grid, const struct td_tile *tiles, size_t count, uint32_t rank,
                       struct td_error *err)
{
    size_t total;
    if (!td_mul_size(count, rank > 0 ? rank : 1, &total) || total > SIZE_MAX / sizeof(uint64_t))
        return td_error_no_memory(err);
    uint64_t *at = calloc(total, sizeof *at);
    grid->cells = malloc(count * sizeof *grid->cells);
    grid->lines[0] = at;
    grid->rank = rank;
    if (at == NULL || grid->cells == NULL)
        return td_error_no_memory(err);
    for (uint32_t i = 0; i < rank; i++, at += count) {
        size_t used = 0;
        for (size_t k = 0; k < count; k++)
            at[k] = tiles[k].starts[i];
        qsort(at, count, sizeof *at, compare_u64);
        for (size_t k = 0; k < count; k++)
            if (used == 0 || at[k] != at[used - 1])
                at[used++] = at[k];
        grid->lines[i] = at;
        grid->line_count[i] = used;
    }
    return true;
}

/* The cell that this tile fills exactly; false when it fills none. */
static bool cell_of(const struct grid *grid, const struct td_tile *tile, const uint64_t *shape, size_t *cell)
{
    *cell = 0;
    for (uint32_t i = 0; i < grid->rank; i++) {
        size_t line = find_line(grid, i, tile->starts[i]);
        uint64_t end = line_end(grid, shape, i, line);
        if (end <= tile->starts[i] || end - tile->starts[i] != tile->sizes[i])
            return false;
        *cell = *cell * grid->line_count[i] + line;
    }
    return true;
}

static bool grid_init(struct grid *grid, const struct td_tile *tiles, size_t count, uint32_t rank,
                      const uint64_t *shape, struct td_error *err)
{
    static const char fault[] = "its pieces do not fill it exactly";
    memset(grid, 0, sizeof *grid);
    if (count == 0 || rank > TD_TILED_MAX_RANK)
        return td_error_set(err, TD_INVALID_ARGUMENT, "%s", fault);
    if (!grid_lines(grid, tiles, count, rank, err))
        return false;
    size_t cells = 1;
    bool whole = true;
    for (uint32_t i = 0; i < rank; i++)
        whole = whole && grid->lines[i][0] == 0 && td_mul_size(cells, grid->line_count[i], &cells);
    if (!whole || cells != count)
        return td_error_set(err, TD_INVALID_ARGUMENT, "%s", fault);
    for (size_t k = 0; k < count; k++)
        grid->cells[k] = SIZE_MAX;
    for (size_t k = 0; k < count; k++) {
        size_t cell;
        if (!cell_of(grid, &tiles[k], shape, &cell) || grid->cells[cell] != SIZE_MAX)
            return td_error_set(err, TD_INVALID_ARGUMENT, "%s", fault);
        grid->cells[cell] = k;
    }
    return true;
}

bool td_tiles_check(const struct td_tile *tiles, size_t count, uint32_t rank, const uint64_t *shape,
                    struct td_error *err)
{
    struct grid grid;
    bool ok = grid_init(&grid, tiles, count, rank, shape, err);
    grid_fini(&grid);
    return ok;
}

static struct tiled *tiled_of(struct td_blob *blob)
{
    return (struct tiled *)(void *)blob;
}

static void tiled_destroy(struct td_blob *blob)
{
    struct tiled *t = tiled_of(blob);
    for (size_t i = 0; t->pieces != NULL && i < t->piece_count; i++)
        td_blob_unref(t->pieces[i].source);
    grid_fini(&t->grid);
    free(t->pieces);
    free(t);
}

static bool tiled_unchanged(struct td_blob *blob)
{
    const struct tiled *t = tiled_of(blob);
    for (size_t i = 0; i < t->piece_count; i++) {
        bool asked = i > 0 && t->pieces[i].source == t->pieces[i - 1].source;
        if (!asked && !td_blob_unchanged(t->pieces[i].source))
            return false;
    }
    return true;
}

/* Where element number `elem` lies, and how many from it on are contiguous both there and here. */
static const struct piece *locate(const struct tiled *t, uint64_t elem, uint64_t *off, uint64_t *run)
{
    uint64_t tile_step = 1;
    uint64_t at = 0;
    size_t cell = 0;
    size_t cell_step = 1;
    bool full = true; /* the tile spans all dimensions further in */
    *run = 1;
    for (uint32_t i = t->grid.rank; i-- > 0;) {
        uint64_t index = elem % t->shape[i];
        elem /= t->shape[i];
        size_t line = find_line(&t->grid, i, index);
        uint64_t start = t->grid.lines[i][line];
        uint64_t size = line_end(&t->grid, t->shape, i, line) - start;
        at += (index - start) * tile_step;
        if (full)
            *run = size * tile_step - at;
        full = full && size == t->shape[i];
        cell += line * cell_step;
        cell_step *= t->grid.line_count[i];
        tile_step *= size;
    }
    const struct piece *piece = &t->pieces[t->grid.cells[cell]];
    *off = piece->off + at * t->elem_bytes;
    return piece;
}

static bool tiled_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct tiled *t = tiled_of(blob);
    uint8_t *to = out;
    while (len > 0) {
        uint64_t within = off % t->elem_bytes;
        uint64_t at;
        uint64_t run;
        const struct piece *piece = locate(t, off / t->elem_bytes, &at, &run);
        uint64_t left = run * t->elem_bytes - within;
        size_t n = left < len ? (size_t)left : len;
        if (!td_blob_read(piece->source, at + within, to, n, err))
            return false;
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

static const struct td_blob_class tiled_class = {
    .destroy = tiled_destroy, .read = tiled_read, .unchanged = tiled_unchanged};

/* Takes the tiles' places; each must lie within its source. */
static bool take_pieces(struct tiled *t, const struct td_tile *tiles, size_t count, struct td_error *err)
{
    t->pieces = calloc(count, sizeof *t->pieces);
    if (t->pieces == NULL)
        return td_error_no_memory(err);
    for (size_t k = 0; k < count; k++) {
        uint64_t bytes = t->elem_bytes;
        bool fits = true;
        for (uint32_t i = 0; i < t->grid.rank; i++)
            fits = fits && td_mul_u64(bytes, tiles[k].sizes[i], &bytes);
        if (!fits || !td_range_within(tiles[k].off, bytes, tiles[k].source->len_bytes))
            return td_error_set(err, TD_INTERNAL, "a piece of an array leaves its file");
        t->pieces[t->piece_count++] =
            (struct piece){.source = td_blob_ref(tiles[k].source), .off = tiles[k].off};
    }
    return true;
}

bool td_blob_tiled(const struct td_tile *tiles, size_t count, uint32_t elem_bytes, uint32_t rank,
                   const uint64_t *shape, struct td_blob **out, struct td_error *err)
{
    struct tiled *t = calloc(1, sizeof *t);
    if (t == NULL)
        return td_error_no_memory(err);
    t->blob.class = &tiled_class;
    atomic_init(&t->blob.refs, 1);
    t->blob.len_bytes = t->elem_bytes = elem_bytes;
    bool ok = grid_init(&t->grid, tiles, count, rank, shape, err);
    for (uint32_t i = 0; ok && i < rank; i++) {
        t->shape[i] = shape[i];
        ok = td_mul_u64(t->blob.len_bytes, shape[i], &t->blob.len_bytes) ||
             td_error_set(err, TD_INTERNAL, "an array has more than 2^64-1 bytes");
    }
    if (!ok || !take_pieces(t, tiles, count, err)) {
        tiled_destroy(&t->blob);
        return false;
    }
    *out = &t->blob;
    return true;
}
