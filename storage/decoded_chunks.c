/* Arrays in chunks. A range of the array is a sequence of rows (the last dimension), and each row crosses a row of
 * chunks. Rows that cross the same chunks are copied together, so that each chunk is looked up and unpacked once for
 * all of them. A chunk without filters is read from the file directly, without the cache. */
#include "storage/decoded_chunks.h"

#include "storage/chunk_filter.h"

#include <stdlib.h>
#include <string.h>

/* The grid's array. Trailing dimensions that no chunk divides are folded into the element, which then is a unit. */
struct array {
    uint32_t rank; /* at least 1 */
    uint64_t unit_bytes;
    uint64_t shape[TD_CODING_RANK_MAX], chunk_shape[TD_CODING_RANK_MAX];
    uint64_t chunk_bytes;
};

/* Rows of a range that cross the same chunks. */
struct rows {
    uint64_t first_chunk; /* the number of the chunk at the first column */
    uint64_t off;         /* of the first row within each chunk, in bytes */
    uint64_t count;       /* at least 1 */
};

/* Where a piece of the array is written. */
struct target {
    uint8_t *out;
    uint64_t pitch; /* bytes from one row to the next */
};

static void array_init(struct array *a, const struct td_coding_grid *grid)
{
    a->rank = grid->rank;
    a->unit_bytes = a->chunk_bytes = grid->elem_bytes;
    for (uint32_t i = 0; i < grid->rank; i++) {
        a->shape[i] = grid->shape[i];
        a->chunk_shape[i] = grid->chunk_shape[i];
        a->chunk_bytes *= grid->chunk_shape[i]; /* the parser has checked for overflow */
    }
    while (a->rank > 1 && a->shape[a->rank - 1] == a->chunk_shape[a->rank - 1])
        a->unit_bytes *= a->shape[--a->rank];
}

static uint64_t chunks_along(const struct array *a, uint32_t dim)
{
    return (a->shape[dim] - 1) / a->chunk_shape[dim] + 1;
}

/* Returns the row with this number and the rows after it that are in the same chunks. */
static struct rows find_rows(const struct array *a, uint64_t row)
{
    struct rows rows = {.count = 1};
    uint64_t chunk_step = chunks_along(a, a->rank - 1);
    uint64_t step = a->chunk_shape[a->rank - 1] * a->unit_bytes;
    for (uint32_t i = a->rank - 1; i-- > 0;) {
        uint64_t index = row % a->shape[i];
        uint64_t within = index % a->chunk_shape[i];
        row /= a->shape[i];
        rows.first_chunk += index / a->chunk_shape[i] * chunk_step;
        rows.off += within * step;
        if (i + 2 == a->rank) {
            uint64_t in_chunk = a->chunk_shape[i] - within;
            rows.count = a->shape[i] - index < in_chunk ? a->shape[i] - index : in_chunk;
        }
        chunk_step *= chunks_along(a, i);
        step *= a->chunk_shape[i];
    }
    return rows;
}

/* Returns the chunk with this number, or NULL when it is not stored. */
static const struct td_coding_chunk *find_chunk(const struct td_coding_grid *grid, uint64_t number)
{
    size_t low = 0;
    size_t high = grid->chunk_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (grid->chunks[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < grid->chunk_count && grid->chunks[low].number == number ? &grid->chunks[low] : NULL;
}

/* ---- one chunk ----------------------------------------------------------------------------------------- */

struct job {
    const struct td_decoding *d;
    const struct td_coding_chunk *chunk;
    size_t chunk_bytes;
};

/* Reads and unpacks a chunk: a td_decode_maker. */
static bool make_chunk(void *context, struct td_decoded_part *out, size_t *kept_bytes, struct td_error *err)
{
    const struct job *job = context;
    const struct td_coding_chunk *chunk = job->chunk;
    uint8_t *bytes = malloc(chunk->bytes > 0 ? chunk->bytes : 1);
    if (bytes == NULL)
        return td_error_no_memory(err);
    if (!td_decoding_stored(job->d, chunk->offset, bytes, chunk->bytes, err)) {
        free(bytes);
        return false;
    }
    if (!td_chunk_unfilter(&job->d->coding->grid, chunk->skipped_filters, &bytes, chunk->bytes, job->chunk_bytes, err))
        return false;
    out->data = bytes;
    out->len = job->chunk_bytes;
    out->destroy = free;
    *kept_bytes = job->chunk_bytes;
    return true;
}

/* Returns whether the chunk was stored without filters. */
static bool is_plain(const struct td_coding_grid *grid, const struct td_coding_chunk *chunk)
{
    uint32_t all = (UINT32_C(1) << grid->filter_count) - 1;
    return (chunk->skipped_filters & all) == all;
}

/* Writes the fill value to `rows` rows of len bytes. first_byte is the place of their first byte in the chunk. */
static void fill_rows(const struct td_coding_grid *grid, const struct target *to, uint64_t rows, uint64_t len,
                      uint64_t first_byte)
{
    uint8_t *out = to->out;
    for (uint64_t i = 0; i < rows; i++, out += to->pitch) {
        if (grid->fill == NULL) {
            memset(out, 0, (size_t)len);
            continue;
        }
        size_t at = (size_t)(first_byte % grid->elem_bytes);
        for (uint64_t k = 0; k < len; k++) {
            out[k] = grid->fill[at];
            at = at + 1 == grid->elem_bytes ? 0 : at + 1;
        }
    }
}

/* Copies `rows` rows of the chunk with this number: len bytes each, the first at byte off of the chunk. */
static bool copy_chunk(const struct td_decoding *d, const struct array *a, uint64_t number, uint64_t off, uint64_t rows,
                       uint64_t len, const struct target *to, struct td_error *err)
{
    const struct td_coding_grid *grid = &d->coding->grid;
    const struct td_coding_chunk *chunk = find_chunk(grid, number);
    uint64_t row_bytes = a->chunk_shape[a->rank - 1] * a->unit_bytes;
    uint8_t *out = to->out;
    if (chunk == NULL) {
        fill_rows(grid, to, rows, len, off);
        return true;
    }
    if (is_plain(grid, chunk)) {
        for (uint64_t i = 0; i < rows; i++, off += row_bytes, out += to->pitch)
            if (!td_decoding_stored(d, chunk->offset + off, out, (size_t)len, err))
                return false;
        return true;
    }
    struct job job = {.d = d, .chunk = chunk, .chunk_bytes = (size_t)a->chunk_bytes};
    const struct td_decode_job making = {.need_bytes = chunk->bytes + td_chunk_filter_memory_bytes(job.chunk_bytes),
                                         .make = make_chunk,
                                         .context = &job};
    struct td_decoded_part *part;
    if (!td_decoding_get(d, number, &making, &part, err))
        return false;
    bool sound = part->len == job.chunk_bytes; /* the rows were computed for a chunk of this size */
    for (uint64_t i = 0; sound && i < rows; i++, off += row_bytes, out += to->pitch)
        memcpy(out, (const uint8_t *)part->data + off, (size_t)len);
    td_decode_cache_release(d->cache, part);
    return sound || td_error_set(err, TD_INTERNAL, "a decoded chunk has another length than its coding says");
}

/* ---- ranges -------------------------------------------------------------------------------------------- */

/* Copies bytes [begin, end) of each of these rows to out, chunk by chunk. */
static bool copy_rows(const struct td_decoding *d, const struct array *a, const struct rows *rows, uint64_t begin,
                      uint64_t end, uint8_t *out, struct td_error *err)
{
    uint64_t width = a->chunk_shape[a->rank - 1] * a->unit_bytes;
    for (uint64_t at = begin; at < end;) {
        uint64_t column = at / width;
        uint64_t within = at - column * width;
        uint64_t len = width - within < end - at ? width - within : end - at;
        struct target to = {.out = out + (at - begin), .pitch = end - begin};
        if (!copy_chunk(d, a, rows->first_chunk + column, rows->off + within, rows->count, len, &to, err))
            return false;
        at += len;
    }
    return true;
}

bool td_decoded_chunks_read(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct array a;
    uint8_t *to = out;
    if (d->coding->grid.rank == 0) /* td_blob_decoded has checked it */
        return td_error_set(err, TD_INTERNAL, "an array in chunks has no dimension");
    array_init(&a, &d->coding->grid);
    uint64_t row_bytes = a.shape[a.rank - 1] * a.unit_bytes;
    while (len > 0) {
        uint64_t within = off % row_bytes;
        struct rows rows = find_rows(&a, off / row_bytes);
        uint64_t end = row_bytes;
        if (within > 0 || len < row_bytes) { /* a part of one row */
            rows.count = 1;
            end = row_bytes - within < len ? row_bytes : within + len;
        } else if (rows.count > len / row_bytes) {
            rows.count = len / row_bytes;
        }
        if (!copy_rows(d, &a, &rows, within, end, to, err))
            return false;
        size_t taken = (size_t)(rows.count * (end - within));
        to += taken;
        off += taken;
        len -= taken;
    }
    return true;
}
