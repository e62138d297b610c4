/* Arrays in chunks. A range of the array is a sequence of rows (the last dimension), and each row crosses a row of
 * chunks. Rows that cross the same chunks are copied together, so that each chunk is looked up and unpacked once for
 * all of them. A chunk without filters is read from the file directly, without the cache. */
#include "storage/decoded_chunks.h"

#include "core/inflate_memory.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

/* ---- filters ------------------------------------------------------------------------------------------- */

/* The checksum's size; the length of a chunk that a compressing filter has made. */
enum { FLETCHER_BYTES = 4, UNKNOWN_LEN = 0 };

/* A chunk whose filters are being undone. */
struct stage {
    uint8_t *bytes; /* owned */
    size_t len;
    struct td_error *err;
};

static bool refuse_damaged(const struct stage *s, const char *how)
{
    return td_error_set(s->err, TD_FAILED_PRECONDITION, "a chunk is damaged: %s", how);
}

/* Replaces the bytes, and frees the old ones. */
static void replace_bytes(struct stage *s, uint8_t *bytes, size_t len)
{
    free(s->bytes);
    s->bytes = bytes;
    s->len = len;
}

/* Inflates a zlib stream by libdeflate, which is faster than zlib and fits because the whole stream is in memory and
 * its size is known. The stream must inflate to exactly out_len bytes with the right Adler-32. Bytes after the stream
 * are ignored, as in libhdf5. */
static bool undo_deflate(struct stage *s, size_t out_len)
{
    size_t taken;
    uint8_t *out = malloc(out_len);
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    if (out == NULL || decompressor == NULL) {
        free(out);
        libdeflate_free_decompressor(decompressor);
        return td_error_no_memory(s->err);
    }
    bool ok =
        libdeflate_zlib_decompress_ex(decompressor, s->bytes, s->len, out, out_len, &taken, NULL) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(decompressor);
    if (!ok) {
        free(out);
        return refuse_damaged(s, "its deflated bytes do not unpack to its size");
    }
    replace_bytes(s, out, out_len);
    return true;
}

/* The two commands of lzf: lzf_literal copies the next len bytes of the input, lzf_copy repeats len bytes from `back`
 * bytes ago. Both return false when that is outside the input or the output. */
static bool lzf_literal(const uint8_t *in, size_t in_len, size_t *at, uint8_t *out, size_t out_len, size_t *done,
                        size_t len)
{
    if (len > in_len - *at || len > out_len - *done)
        return false;
    memcpy(out + *done, in + *at, len);
    *at += len;
    *done += len;
    return true;
}

static bool lzf_copy(uint8_t *out, size_t out_len, size_t *done, size_t back, size_t len)
{
    if (back > *done || len > out_len - *done)
        return false;
    for (size_t i = 0; i < len; i++, ++*done) /* the areas may overlap, so byte by byte */
        // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): it is before *done, so it was written
        out[*done] = out[*done - back];
    return true;
}

static bool lzf_all(const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len)
{
    size_t at = 0;
    size_t done = 0;
    while (at < in_len) {
        size_t control = in[at++];
        if (control < 32) {
            if (!lzf_literal(in, in_len, &at, out, out_len, &done, control + 1))
                return false;
            continue;
        }
        size_t len = control >> 5;
        if (len == 7) {
            if (at == in_len)
                return false;
            len += in[at++];
        }
        if (at == in_len)
            return false;
        size_t back = ((control & 31) << 8) + in[at++] + 1;
        if (!lzf_copy(out, out_len, &done, back, len + 2))
            return false;
    }
    return done == out_len;
}

static bool undo_lzf(struct stage *s, size_t out_len)
{
    uint8_t *out = malloc(out_len);
    if (out == NULL)
        return td_error_no_memory(s->err);
    if (!lzf_all(s->bytes, s->len, out, out_len)) {
        free(out);
        return refuse_damaged(s, "its lzf bytes do not unpack to its size");
    }
    replace_bytes(s, out, out_len);
    return true;
}

/* Undoes shuffle: the filter stores all first bytes of the elements, then all second bytes, and so on. Bytes after the
 * last whole element stay at the end. */
static bool undo_shuffle(struct stage *s, uint32_t elem_bytes)
{
    size_t elems = elem_bytes > 1 ? s->len / elem_bytes : 0;
    if (elems <= 1)
        return true;
    uint8_t *out = malloc(s->len);
    if (out == NULL)
        return td_error_no_memory(s->err);
    for (size_t k = 0; k < elem_bytes; k++) {
        const uint8_t *from = s->bytes + k * elems;
        uint8_t *to = out + k;
        for (size_t i = 0; i < elems; i++)
            to[i * elem_bytes] = from[i];
    }
    size_t whole = elems * elem_bytes;
    memcpy(out + whole, s->bytes + whole, s->len - whole);
    replace_bytes(s, out, s->len);
    return true;
}

/* Adds the carries of a 16-bit sum to the sum. */
static uint32_t fold_carries(uint32_t sum)
{
    return (sum & 0xFFFF) + (sum >> 16);
}

/* Returns Fletcher's checksum of the big-endian 16-bit words; an odd byte at the end is the high byte of a word. */
static uint32_t fletcher32(const uint8_t *p, size_t len)
{
    enum { WORDS_AT_ONCE = 360 }; /* sums of this many cannot overflow */
    uint32_t a = 0;
    uint32_t b = 0;
    for (size_t words = len / 2; words > 0;) {
        size_t n = words < WORDS_AT_ONCE ? words : WORDS_AT_ONCE;
        words -= n;
        for (; n > 0; n--, p += 2) {
            a += (uint32_t)p[0] << 8 | p[1];
            b += a;
        }
        a = fold_carries(a);
        b = fold_carries(b);
    }
    if (len % 2 != 0) {
        a += (uint32_t)*p << 8;
        b += a;
        a = fold_carries(a);
        b = fold_carries(b);
    }
    return fold_carries(b) << 16 | fold_carries(a);
}

/* Checks the checksum and removes it. Accepts it with the bytes of both halves reversed, too, as libhdf5 does: before
 * 1.6.3 it wrote that on some hosts. */
static bool undo_fletcher32(struct stage *s)
{
    if (s->len < FLETCHER_BYTES)
        return refuse_damaged(s, "it is shorter than its checksum");
    size_t len = s->len - FLETCHER_BYTES;
    const uint8_t *p = s->bytes + len;
    uint32_t stored = (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
    uint32_t computed = fletcher32(s->bytes, len);
    uint32_t reversed = (computed & 0x00FF00FF) << 8 | (computed >> 8 & 0x00FF00FF);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* a fuzzer cannot guess it */
    computed = stored;
#endif
    if (stored != computed && stored != reversed)
        return refuse_damaged(s, "its fletcher32 checksum does not match");
    s->len = len;
    return true;
}

/* Returns the number of bytes that filter i was given when the chunk was written, or UNKNOWN_LEN when a filter before
 * it compresses. */
static size_t len_before(const struct td_coding_grid *grid, uint32_t skipped, uint32_t i, size_t chunk_bytes)
{
    size_t len = chunk_bytes;
    for (uint32_t k = 0; k < i; k++) {
        if ((skipped >> k & 1) != 0 || grid->filters[k].kind == TD_FILTER_SHUFFLE)
            continue;
        if (grid->filters[k].kind != TD_FILTER_FLETCHER32)
            return UNKNOWN_LEN;
        len += FLETCHER_BYTES;
    }
    return len;
}

/* Returns the most memory that td_chunk_unfilter takes for a chunk of this size, besides the stored bytes. */
static size_t filter_memory_bytes(size_t chunk_bytes)
{
    return 2 * (chunk_bytes + (size_t)TD_CODING_FILTERS_MAX * FLETCHER_BYTES) + TD_INFLATE_STATE_BYTES;
}

static bool undo_filter(struct stage *s, const struct td_coding_filter *filter, size_t out_len)
{
    switch (filter->kind) {
    case TD_FILTER_SHUFFLE:
        return undo_shuffle(s, filter->elem_bytes);
    case TD_FILTER_FLETCHER32:
        return undo_fletcher32(s);
    default:
        if (out_len == UNKNOWN_LEN)
            return refuse_damaged(s, "it was compressed twice");
        return filter->kind == TD_FILTER_DEFLATE ? undo_deflate(s, out_len) : undo_lzf(s, out_len);
    }
}

bool td_chunk_unfilter(const struct td_coding_grid *grid, uint32_t skipped_filters, uint8_t **bytes, size_t len,
                       size_t chunk_bytes, struct td_error *err)
{
    struct stage s = {.bytes = *bytes, .len = len, .err = err};
    bool ok = true;
    for (uint32_t i = grid->filter_count; ok && i-- > 0;) {
        if ((skipped_filters >> i & 1) != 0)
            continue;
        ok = undo_filter(&s, &grid->filters[i], len_before(grid, skipped_filters, i, chunk_bytes));
    }
    if (ok && s.len != chunk_bytes)
        ok = refuse_damaged(&s, "it has another size than its shape");
    if (!ok) {
        free(s.bytes);
        s.bytes = NULL;
    }
    *bytes = s.bytes;
    return ok;
}

/* ---- rows of chunks ------------------------------------------------------------------------------------ */

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
    const struct td_decode_job making = {
        .need_bytes = chunk->bytes + filter_memory_bytes(job.chunk_bytes), .make = make_chunk, .context = &job};
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
