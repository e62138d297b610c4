/* In a step of training few elements change. So blocks of 64 bytes are compared first, in a loop that compilers turn
 * into vector instructions, and only the elements of blocks that differ are looked at one by one, without a branch for
 * each. */
#include "rank/patch/patch_diff.h"

#include <string.h>

enum { BLOCK_BYTES = 64, BLOCK_WORDS = BLOCK_BYTES / 8 };

static bool is_same_block(const uint8_t *before, const uint8_t *after)
{
    uint64_t x[BLOCK_WORDS];
    uint64_t y[BLOCK_WORDS];
    uint64_t differences = 0;
    memcpy(x, before, sizeof x);
    memcpy(y, after, sizeof y);
    for (size_t i = 0; i < BLOCK_WORDS; i++)
        differences |= x[i] ^ y[i];
    return differences == 0;
}

/* Defines the two functions for elements of a type. */
#define DEFINE(type)                                                                                                \
    static size_t diff_##type(const uint8_t *before, const uint8_t *after, size_t count, uint32_t *places)          \
    {                                                                                                               \
        enum { BLOCK = BLOCK_BYTES / sizeof(type) };                                                                \
        size_t found = 0;                                                                                           \
        for (size_t first = 0; first < count; first += BLOCK) {                                                     \
            const size_t end = count - first < BLOCK ? count : first + BLOCK;                                       \
            if (end - first == BLOCK && is_same_block(before + first * sizeof(type), after + first * sizeof(type))) \
                continue;                                                                                           \
            for (size_t i = first; i < end; i++) {                                                                  \
                type x;                                                                                             \
                type y;                                                                                             \
                memcpy(&x, before + i * sizeof x, sizeof x);                                                        \
                memcpy(&y, after + i * sizeof y, sizeof y);                                                         \
                places[found] = (uint32_t)i;                                                                        \
                found += x != y ? 1 : 0;                                                                            \
            }                                                                                                       \
        }                                                                                                           \
        return found;                                                                                               \
    }                                                                                                               \
                                                                                                                    \
    static void gather_##type(const uint8_t *from, const uint32_t *places, size_t count, uint8_t *to)               \
    {                                                                                                               \
        for (size_t i = 0; i < count; i++)                                                                          \
            memcpy(to + i * sizeof(type), from + places[i] * sizeof(type), sizeof(type));                           \
    }

DEFINE(uint8_t)
DEFINE(uint16_t)
DEFINE(uint32_t)
DEFINE(uint64_t)

bool td_patch_takes(size_t element_bytes)
{
    return element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8;
}

size_t td_patch_diff(const uint8_t *before, const uint8_t *after, size_t count, size_t element_bytes, uint32_t *places)
{
    switch (element_bytes) {
    case 1:
        return diff_uint8_t(before, after, count, places);
    case 2:
        return diff_uint16_t(before, after, count, places);
    case 4:
        return diff_uint32_t(before, after, count, places);
    default:
        return diff_uint64_t(before, after, count, places);
    }
}

void td_patch_gather(const uint8_t *from, size_t element_bytes, const uint32_t *places, size_t count, uint8_t *to)
{
    switch (element_bytes) {
    case 1:
        gather_uint8_t(from, places, count, to);
        break;
    case 2:
        gather_uint16_t(from, places, count, to);
        break;
    case 4:
        gather_uint32_t(from, places, count, to);
        break;
    default:
        gather_uint64_t(from, places, count, to);
    }
}
