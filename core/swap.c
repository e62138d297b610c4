#include "core/swap.h"

#include <string.h>

static void swap_2(uint8_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t x;
        memcpy(&x, p + 2 * i, sizeof x);
        x = __builtin_bswap16(x);
        memcpy(p + 2 * i, &x, sizeof x);
    }
}

static void swap_4(uint8_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x;
        memcpy(&x, p + 4 * i, sizeof x);
        x = __builtin_bswap32(x);
        memcpy(p + 4 * i, &x, sizeof x);
    }
}

static void swap_8(uint8_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t x;
        memcpy(&x, p + 8 * i, sizeof x);
        x = __builtin_bswap64(x);
        memcpy(p + 8 * i, &x, sizeof x);
    }
}

static void swap_any(uint8_t *p, size_t width, size_t count)
{
    for (size_t i = 0; i < count; i++, p += width)
        for (size_t a = 0, b = width - 1; a < b; a++, b--) {
            uint8_t x = p[a];
            p[a] = p[b];
            p[b] = x;
        }
}

static void swap_numbers(uint8_t *p, size_t width, size_t count)
{
    switch (width) {
    case 0:
    case 1:
        break;
    case 2:
        swap_2(p, count);
        break;
    case 4:
        swap_4(p, count);
        break;
    case 8:
        swap_8(p, count);
        break;
    default:
        swap_any(p, width, count);
    }
}

void td_swap_blocks(const struct td_swap *swap, void *bytes, size_t blocks)
{
    uint8_t *p = bytes;
    if ((size_t)swap->width * swap->count == swap->block_bytes) { /* the numbers fill the blocks: swap them in one go */
        swap_numbers(p, swap->width, swap->count * blocks);
        return;
    }
    for (size_t i = 0; i < blocks; i++, p += swap->block_bytes)
        swap_numbers(p + swap->off, swap->width, swap->count);
}
