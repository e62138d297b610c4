#include "storage/array_blob.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

struct dim {
    uint64_t size, stride_bytes;
};

/* The dimensions, outermost first. Inner dimensions that are contiguous in the source are folded into the unit. */
struct strided {
    struct td_blob_over over;
    uint64_t unit_bytes; /* contiguous in source */
    uint32_t rank;
    struct dim dims[];
};

static struct strided *strided_of(struct td_blob *blob)
{
    return (struct strided *)(void *)blob;
}

/* Prepares the first byte of the source, because a byte of the array may be anywhere in it. */
static bool strided_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    const struct strided *s = strided_of(blob);
    (void)off;
    (void)len;
    return td_blob_prepare(s->over.source, s->over.off, 1, for_head, err);
}

/* Returns the offset of unit number `unit` in the source. Sets *in_row to the number of units from there on that have
 * equal distances, and *stride_bytes to the distance (0 when there are no dimensions). */
static uint64_t locate_unit(const struct strided *s, uint64_t unit, uint64_t *in_row, uint64_t *stride_bytes)
{
    uint64_t at = s->over.off;
    *in_row = 1;
    *stride_bytes = 0;
    for (uint32_t i = s->rank; i-- > 0;) {
        uint64_t index = unit % s->dims[i].size;
        unit /= s->dims[i].size;
        at += index * s->dims[i].stride_bytes;
        if (i == s->rank - 1) {
            *in_row = s->dims[i].size - index;
            *stride_bytes = s->dims[i].stride_bytes;
        }
    }
    return at;
}

static bool strided_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct strided *s = strided_of(blob);
    uint8_t *to = out;
    while (len > 0) {
        uint64_t in_row;
        uint64_t stride_bytes;
        uint64_t within = off % s->unit_bytes;
        uint64_t at = locate_unit(s, off / s->unit_bytes, &in_row, &stride_bytes);
        uint64_t whole = len / s->unit_bytes < in_row ? len / s->unit_bytes : in_row;
        uint64_t taken;
        bool ok;
        if (within > 0 || whole == 0) { /* a part of one unit */
            taken = s->unit_bytes - within < len ? s->unit_bytes - within : len;
            ok = td_blob_read(s->over.source, at + within, to, (size_t)taken, err);
        } else {
            taken = whole * s->unit_bytes;
            ok = td_blob_gather(s->over.source, at, s->unit_bytes, whole, stride_bytes, to, err);
        }
        if (!ok)
            return false;
        to += taken;
        off += taken;
        len -= (size_t)taken;
    }
    return true;
}

static const struct td_blob_class strided_class = {.destroy = td_blob_over_destroy,
                                                   .read = strided_read,
                                                   .unchanged = td_blob_over_unchanged,
                                                   .prepare = strided_prepare};

/* Leaves out dimensions of size 1, and joins a dimension with its inner neighbour where they are one progression. */
static void fold_dims(struct strided *s, uint32_t elem_bytes, uint32_t rank, const uint64_t *shape,
                      const uint64_t *strides)
{
    s->unit_bytes = elem_bytes;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] == 1)
            continue;
        struct dim dim = {.size = shape[i], .stride_bytes = strides[i] * elem_bytes};
        struct dim *outer = s->rank > 0 ? &s->dims[s->rank - 1] : NULL;
        if (outer != NULL && outer->stride_bytes == dim.size * dim.stride_bytes) {
            outer->size *= dim.size;
            outer->stride_bytes = dim.stride_bytes;
        } else {
            s->dims[s->rank++] = dim;
        }
    }
    if (s->rank > 0 && s->dims[s->rank - 1].stride_bytes == elem_bytes)
        s->unit_bytes *= s->dims[--s->rank].size;
}

/* Sets *bytes to the bytes of all elements, and *extent to the distance from the first byte to the end of the last byte
 * in the source. Returns false when a number overflows. */
static bool measure_strided(uint32_t elem_bytes, uint32_t rank, const uint64_t *shape, const uint64_t *strides,
                            uint64_t *bytes, uint64_t *extent)
{
    bool fits = true;
    *bytes = elem_bytes;
    *extent = 0;
    for (uint32_t i = 0; i < rank; i++)
        if (shape[i] == 0)
            *bytes = 0;
    if (*bytes == 0)
        return true;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t reach;
        fits = fits && td_mul_u64(*bytes, shape[i], bytes) && td_mul_u64(shape[i] - 1, strides[i], &reach) &&
               td_mul_u64(reach, elem_bytes, &reach) && td_add_u64(*extent, reach, extent);
    }
    return fits && td_add_u64(*extent, elem_bytes, extent);
}

bool td_blob_strided(struct td_blob *source, uint64_t off, uint32_t elem_bytes, uint32_t rank, const uint64_t *shape,
                     const uint64_t *strides, struct td_blob **out, struct td_error *err)
{
    uint64_t bytes;
    uint64_t extent;
    if (rank > TD_STRIDED_MAX_RANK || elem_bytes == 0 ||
        !measure_strided(elem_bytes, rank, shape, strides, &bytes, &extent) ||
        (bytes > 0 && !td_range_within(off, extent, source->len_bytes)))
        return td_error_set(err, TD_INTERNAL, "an array leaves its file");
    struct strided *s = calloc(1, sizeof *s + rank * sizeof *s->dims);
    if (s == NULL)
        return td_error_no_memory(err);
    td_blob_over_init(&s->over, &strided_class, bytes, source, off);
    if (bytes > 0)
        fold_dims(s, elem_bytes, rank, shape, strides);
    *out = &s->over.blob;
    return true;
}

/* ---- big-endian arrays --------------------------------------------------------------------------------- */

struct swapped {
    struct td_blob_over over;
    struct td_swap swap;
};

static struct swapped *swapped_of(struct td_blob *blob)
{
    return (struct swapped *)(void *)blob;
}

/* Copies bytes [within, within+len) of the block at `at`, swapped, to out. */
static bool read_part(const struct swapped *s, uint64_t at, size_t within, uint8_t *out, size_t len,
                      struct td_error *err)
{
    uint8_t block[TD_SWAPPED_BLOCK_MAX_BYTES];
    if (!td_blob_read(s->over.source, at, block, s->swap.block_bytes, err))
        return false;
    td_swap_blocks(&s->swap, block, 1);
    memcpy(out, block + within, len);
    return true;
}

static bool swapped_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct swapped *s = swapped_of(blob);
    size_t block = s->swap.block_bytes;
    uint8_t *to = out;
    while (len > 0) {
        size_t within = (size_t)(off % block);
        uint64_t at = s->over.off + (off - within);
        size_t taken = len / block * block;
        if (within > 0 || taken == 0) {
            taken = block - within < len ? block - within : len;
            if (!read_part(s, at, within, to, taken, err))
                return false;
        } else {
            if (!td_blob_read(s->over.source, at, to, taken, err))
                return false;
            td_swap_blocks(&s->swap, to, taken / block);
        }
        to += taken;
        off += taken;
        len -= taken;
    }
    return true;
}

/* Gathers runs of whole blocks in one call, then swaps them together. */
static bool swapped_gather(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                           struct td_error *err)
{
    const struct swapped *s = swapped_of(blob);
    size_t block = s->swap.block_bytes;
    uint8_t *to = out;
    if (off % block == 0 && len % block == 0 && stride % block == 0) {
        if (!td_blob_gather(s->over.source, s->over.off + off, len, count, stride, out, err))
            return false;
        td_swap_blocks(&s->swap, out, (size_t)(len * count / block));
        return true;
    }
    for (uint64_t i = 0; i < count; i++, to += len)
        if (!swapped_read(blob, off + i * stride, to, (size_t)len, err))
            return false;
    return true;
}

static const struct td_blob_class swapped_class = {.destroy = td_blob_over_destroy,
                                                   .read = swapped_read,
                                                   .gather = swapped_gather,
                                                   .unchanged = td_blob_over_unchanged,
                                                   .resident = td_blob_over_resident,
                                                   .prefetch = td_blob_over_prefetch,
                                                   .prepare = td_blob_over_prepare};

static bool is_sound_swap(const struct td_swap *swap)
{
    return swap->block_bytes > 0 && swap->block_bytes <= TD_SWAPPED_BLOCK_MAX_BYTES &&
           swap->off + (uint32_t)swap->width * swap->count <= swap->block_bytes;
}

bool td_blob_swapped(struct td_blob *source, uint64_t off, uint64_t len, const struct td_swap *swap,
                     struct td_blob **out, struct td_error *err)
{
    if (!is_sound_swap(swap) || len % swap->block_bytes != 0 || !td_range_within(off, len, source->len_bytes))
        return td_error_set(err, TD_INTERNAL, "a big-endian array leaves its file, or is of an unknown type");
    struct swapped *s = malloc(sizeof *s);
    if (s == NULL)
        return td_error_no_memory(err);
    td_blob_over_init(&s->over, &swapped_class, len, source, off);
    s->swap = *swap;
    *out = &s->over.blob;
    return true;
}
