#include "storage/chunk_filter.h"

#include "core/inflate_memory.h"

#include <libdeflate.h>
#include <string.h>

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

size_t td_chunk_filter_memory_bytes(size_t chunk_bytes)
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
