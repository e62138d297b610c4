/* Blocks of 256 elements. An element is its block's scale, times the scale of the 8 to 32 elements that it is among,
 * times an element of a vector of the type's grid, with a sign. Source of all layouts: gguf-py's quants.py. */
#include "rank/values/block_iq.h"

#include "core/input.h"
#include "rank/values/block_grids.h"
#include "rank/values/small_float.h"

#include <stdbool.h>
#include <stddef.h>

/* Writes the 8 elements of a vector of IQ2, with the signs that the bits of `signs` set. */
static void put_iq2(uint16_t vector, uint8_t signs, float scale, float *out)
{
    static const uint8_t values[] = {0x08, 0x19, 0x2b, 0};
    for (size_t i = 0; i < 8; i++)
        out[i] = scale * (float)values[vector >> 2 * i & 3] * ((signs >> i & 1) != 0 ? -1.0F : 1.0F);
}

/* Writes the 4 elements of a vector of IQ3 in the same way. values: the 8 of the type. */
static void put_iq3(uint16_t vector, const uint8_t *values, uint8_t signs, float scale, float *out)
{
    for (size_t i = 0; i < 4; i++)
        out[i] = scale * (float)values[vector >> 4 * i & 7] * ((signs >> i & 1) != 0 ? -1.0F : 1.0F);
}

/* Returns 8 signs from 7 bits: the number of negative ones is even. */
static uint8_t even_signs(uint32_t bits)
{
    bits &= 0x7F;
    return (uint8_t)(bits | (uint32_t)__builtin_parity(bits) << 7);
}

/* Returns number i of a list of 4 bits each, the first in the lowest bits. */
static unsigned nibble_of(const uint8_t *bytes, size_t i)
{
    return bytes[i / 2] >> i % 2 * 4 & 15U;
}

/* ---- IQ2 ------------------------------------------------------------------------------------------------ */

void td_block_iq2_xxs(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t n = 0; n < 8; n++) { /* 32 elements: 4 numbers of vectors, then 4 times 7 signs and the scale */
        const uint8_t *group = block + 2 + 8 * n;
        const uint32_t rest = td_load_le32(group + 4);
        const float scale = d * (0.5F + (float)(rest >> 28)) * 0.25F;
        for (size_t i = 0; i < 4; i++)
            put_iq2(td_grid_iq2_xxs[group[i]], even_signs(rest >> 7 * i), scale, out + 32 * n + 8 * i);
    }
}

void td_block_iq2_xs(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t n = 0; n < 32; n++) { /* 8 elements: the number of a vector and 7 signs */
        const unsigned word = td_load_le16(block + 2 + 2 * n);
        const float scale = d * (0.5F + (float)nibble_of(block + 66, n / 2)) * 0.25F;
        put_iq2(td_grid_iq2_xs[word & 511], even_signs(word >> 9), scale, out + 8 * n);
    }
}

void td_block_iq2_s(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    const uint8_t *high = block + 66; /* 2 bits of each vector's number */
    for (size_t n = 0; n < 32; n++) {
        const unsigned vector = block[2 + n] | (high[n / 4] >> n % 4 * 2 & 3U) << 8;
        const float scale = d * (0.5F + (float)nibble_of(block + 74, n / 2)) * 0.25F;
        put_iq2(td_grid_iq2_s[vector], block[34 + n], scale, out + 8 * n);
    }
}

/* ---- IQ3 ------------------------------------------------------------------------------------------------ */

void td_block_iq3_xxs(const uint8_t *block, float *out)
{
    static const uint8_t values[] = {0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3e};
    const float d = td_half_value(block);
    for (size_t n = 0; n < 64; n++) {                                 /* 4 elements */
        const uint32_t rest = td_load_le32(block + 66 + 4 * (n / 8)); /* signs and scale of 32 elements */
        const float scale = d * (0.5F + (float)(rest >> 28)) * 0.5F;
        const uint8_t signs = even_signs(rest >> 7 * (n / 2 % 4)); /* of 8 elements */
        put_iq3(td_grid_iq3_xxs[block[2 + n]], values, (uint8_t)(signs >> n % 2 * 4), scale, out + 4 * n);
    }
}

void td_block_iq3_s(const uint8_t *block, float *out)
{
    static const uint8_t values[] = {1, 3, 5, 7, 9, 11, 13, 15};
    const float d = td_half_value(block);
    for (size_t n = 0; n < 64; n++) {
        const unsigned vector = block[2 + n] | (block[66 + n / 8] >> n % 8 & 1U) << 8;
        const float scale = d * (float)(1 + 2 * nibble_of(block + 106, n / 8));
        put_iq3(td_grid_iq3_s[vector], values, (uint8_t)(block[74 + n / 2] >> n % 2 * 4), scale, out + 4 * n);
    }
}

/* ---- IQ1 ------------------------------------------------------------------------------------------------ */

/* Writes the 8 elements of a vector of IQ1, which are -1, 0 or 1, moved by an eighth. */
static void put_iq1(unsigned vector, bool moves_down, float scale, float *out)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = scale * ((float)((td_grid_iq1[vector] >> 2 * i & 3) - 1) + (moves_down ? -0.125F : 0.125F));
}

void td_block_iq1_s(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t n = 0; n < 32; n++) {                                 /* 8 elements */
        const unsigned high = td_load_le16(block + 34 + 2 * (n / 4)); /* of 32 elements */
        const unsigned vector = block[2 + n] | (high >> n % 4 * 3 & 7U) << 8;
        put_iq1(vector, (high & 0x8000U) != 0, d * (float)(2 * (high >> 12 & 7U) + 1), out + 8 * n);
    }
}

void td_block_iq1_m(const uint8_t *block, float *out)
{
    const uint8_t *scales = block + 48; /* 4 words: 4 scales of 3 bits each, and 4 bits of the block's own scale */
    uint8_t half[2] = {0, 0};
    for (size_t i = 0; i < 4; i++)
        half[i / 2] = (uint8_t)(half[i / 2] | scales[2 * i + 1] >> 4 << i % 2 * 4);
    const float d = td_half_value(half);
    for (size_t n = 0; n < 32; n++) {
        const unsigned high = nibble_of(block + 32, n);
        const unsigned scale = td_load_le16(scales + n / 8 * 2) >> n / 2 % 4 * 3 & 7U;
        put_iq1(block[n] | (high & 7U) << 8, (high & 8U) != 0, d * (float)(2 * scale + 1), out + 8 * n);
    }
}
