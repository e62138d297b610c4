#include "storage/swapped.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

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

static bool is_sound(const struct td_swap *swap)
{
    return swap->block_bytes > 0 && swap->block_bytes <= TD_SWAPPED_BLOCK_MAX_BYTES &&
           swap->off + (uint32_t)swap->width * swap->count <= swap->block_bytes;
}

bool td_blob_swapped(struct td_blob *source, uint64_t off, uint64_t len, const struct td_swap *swap,
                     struct td_blob **out, struct td_error *err)
{
    if (!is_sound(swap) || len % swap->block_bytes != 0 || !td_range_within(off, len, source->len_bytes))
        return td_error_set(err, TD_INTERNAL, "a big-endian array leaves its file, or is of an unknown type");
    struct swapped *s = malloc(sizeof *s);
    if (s == NULL)
        return td_error_no_memory(err);
    td_blob_over_init(&s->over, &swapped_class, len, source, off);
    s->swap = *swap;
    *out = &s->over.blob;
    return true;
}
