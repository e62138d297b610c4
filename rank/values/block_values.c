/* A block begins or ends with its scale, d, a half-precision number. An element is d times a small integer (q), which
 * is packed below a byte; many types have a scale for each 16 or 32 elements, too, which multiplies d, and some
 * subtract a minimum. Source of all layouts: gguf-py's quants.py and ggml-common.h. */
#include "rank/values/block_values.h"

#include "core/input.h"
#include "rank/values/codebook.h"
#include "rank/values/small_float.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* ---- 32 elements ---------------------------------------------------------------------------------------- */

/* Elements 0 to 15 are the low halves of 16 bytes, elements 16 to 31 the high ones. */
static int nibble_at(const uint8_t *bytes, size_t i)
{
    return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4;
}

/* Returns number n of numbers of 4 bits, two in a byte, the first in its lower half. */
static int half_byte_at(const uint8_t *bytes, size_t n)
{
    return bytes[n / 2] >> n % 2 * 4 & 15;
}

/* d; a minimum, if has_min; the fifth bits of all elements, if has_high; the other four. */
static void decode_simple(const uint8_t *block, bool has_min, bool has_high, float *out)
{
    const float d = td_half_value(block);
    const float min = has_min ? td_half_value(block + 2) : 0;
    const uint8_t *rest = block + (has_min ? 4 : 2);
    const uint32_t high = has_high ? td_load_le32(rest) : 0;
    const int zero = has_min ? 0 : has_high ? 16 : 8;
    for (size_t i = 0; i < 32; i++) {
        const int q = nibble_at(rest + (has_high ? 4 : 0), i) | (int)(high >> i & 1) << 4;
        const float scaled = d * (float)(q - zero);
        out[i] = has_min ? scaled + min : scaled;
    }
}

static void decode_q4_0(const uint8_t *block, float *out)
{
    decode_simple(block, false, false, out);
}

static void decode_q4_1(const uint8_t *block, float *out)
{
    decode_simple(block, true, false, out);
}

static void decode_q5_0(const uint8_t *block, float *out)
{
    decode_simple(block, false, true, out);
}

static void decode_q5_1(const uint8_t *block, float *out)
{
    decode_simple(block, true, true, out);
}

static void decode_q8_0(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)block[2 + i];
}

/* ---- 256 elements --------------------------------------------------------------------------------------- */

/* Element i of 256 that have 2 bits each: bytes of 32 elements hold the next 32 elements in higher bits. */
static int pair_at(const uint8_t *bytes, size_t i)
{
    return bytes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* Bit of element i of 256, in 32 bytes: byte i % 32 holds elements i % 32, i % 32 + 32 and so on. */
static int bit_at(const uint8_t *bytes, size_t i)
{
    return bytes[i % 32] >> i / 32 & 1;
}

static void decode_q2_k(const uint8_t *block, float *out)
{
    const float d = td_half_value(block + 80);
    const float min = td_half_value(block + 82);
    for (size_t i = 0; i < 256; i++) {
        const uint8_t scale = block[i / 16];
        out[i] = d * (float)(scale & 15) * (float)pair_at(block + 16, i) - min * (float)(scale >> 4);
    }
}

static void decode_q3_k(const uint8_t *block, float *out)
{
    const uint8_t *scales = block + 96; /* 16 of 6 bits: in 8 bytes the lower 4 of each, in 4 bytes the upper 2 */
    const float d = td_half_value(block + 108);
    for (size_t i = 0; i < 256; i++) {
        const size_t n = i / 16;
        const int low = n < 8 ? scales[n] & 15 : scales[n - 8] >> 4;
        const int high = scales[8 + n % 4] >> n / 4 * 2 & 3;
        const int q = pair_at(block + 32, i) - (bit_at(block, i) != 0 ? 0 : 4);
        out[i] = d * (float)((low | high << 4) - 32) * (float)q;
    }
}

/* Sets the scale and the minimum of 32 elements, of 6 bits each, for n below 8. */
static void scale_of_k(const uint8_t *scales, size_t n, int *scale, int *min)
{
    if (n < 4) {
        *scale = scales[n] & 63;
        *min = scales[4 + n] & 63;
    } else {
        *scale = (scales[4 + n] & 15) | (scales[n - 4] >> 6) << 4;
        *min = scales[4 + n] >> 4 | (scales[n] >> 6) << 4;
    }
}

/* Decodes Q4_K, and with the fifth bits of all elements Q5_K; high NULL: there are no fifth bits. */
static void decode_q4_or_5_k(const uint8_t *block, const uint8_t *high, const uint8_t *low, float *out)
{
    const float d = td_half_value(block);
    const float min = td_half_value(block + 2);
    for (size_t i = 0; i < 256; i++) {
        int scale_q;
        int min_q;
        scale_of_k(block + 4, i / 32, &scale_q, &min_q);
        const int nibble = low[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
        const int q = nibble | (high == NULL ? 0 : bit_at(high, i) << 4);
        out[i] = d * (float)scale_q * (float)q - min * (float)min_q;
    }
}

static void decode_q4_k(const uint8_t *block, float *out)
{
    decode_q4_or_5_k(block, NULL, block + 16, out);
}

static void decode_q5_k(const uint8_t *block, float *out)
{
    decode_q4_or_5_k(block, block + 16, block + 48, out);
}

static void decode_q6_k(const uint8_t *block, float *out)
{
    const float d = td_half_value(block + 208);
    for (size_t i = 0; i < 256; i++) {
        const int low = block[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15;
        const int q = (low | pair_at(block + 128, i) << 4) - 32;
        out[i] = d * (float)(int8_t)block[192 + i / 16] * (float)q;
    }
}

/* ---- ternary -------------------------------------------------------------------------------------------- */

/* A byte holds up to 5 elements of three values, as a fraction of 256 in base 3. */
static void decode_tq1_0(const uint8_t *block, float *out)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    const float d = td_half_value(block + 52);
    for (size_t i = 0; i < 256; i++) {
        const size_t at = i < 160 ? i % 32 : i < 240 ? 32 + (i - 160) % 16 : 48 + (i - 240) % 4;
        const size_t digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        const uint8_t rest = (uint8_t)(block[at] * powers[digit]);
        out[i] = d * (float)((rest * 3 >> 8) - 1);
    }
}

static void decode_tq2_0(const uint8_t *block, float *out)
{
    const float d = td_half_value(block + 64);
    for (size_t i = 0; i < 256; i++)
        out[i] = d * (float)(pair_at(block, i) - 1);
}

/* ---- tables of 16 values -------------------------------------------------------------------------------- */

static const int8_t doubled_f4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* twice E2M1 */
static const int8_t iq4_values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void decode_mxfp4(const uint8_t *block, float *out)
{
    /* Half of 2^(x-127), whose two smallest values are subnormal. */
    const uint32_t bits = block[0] < 2 ? UINT32_C(0x00200000) << block[0] : (uint32_t)(block[0] - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    for (size_t i = 0; i < 32; i++)
        out[i] = d * (float)doubled_f4[nibble_at(block + 1, i)];
}

static void decode_nvfp4(const uint8_t *block, float *out)
{
    static const struct td_small_float e4m3 = {4, 3, 7, TD_SMALL_FINITE}; /* the sign does not count */
    for (size_t i = 0; i < 64; i++) {
        const uint8_t scale = block[i / 16];
        const uint8_t pair = block[4 + i / 16 * 8 + i % 8];
        const float d = scale == 0x7F ? 0 : (float)td_small_float_value(&e4m3, scale & 0x7F) * 0.5F;
        out[i] = d * (float)doubled_f4[i % 16 < 8 ? pair & 15 : pair >> 4];
    }
}

static void decode_iq4_nl(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 32; i++)
        out[i] = d * (float)iq4_values[nibble_at(block + 2, i)];
}

static void decode_iq4_xs(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    const unsigned high = td_load_le16(block + 2); /* 2 bits of each scale; the lower 4 follow */
    for (size_t n = 0; n < 8; n++) {
        const int low = half_byte_at(block + 4, n);
        const float scale = d * (float)((low | (int)(high >> 2 * n & 3) << 4) - 32);
        for (size_t i = 0; i < 32; i++)
            out[32 * n + i] = scale * (float)iq4_values[nibble_at(block + 8 + 16 * n, i)];
    }
}

/* ---- codebooks ------------------------------------------------------------------------------------------ */

/* 256 elements are 32 points of 8 numbers, or 64 points of 4. A block stores the place of each point in the codebook.
 * IQ2 and IQ3 store magnitudes, and the sign of each element as a bit; IQ1 adds 1/8 to all numbers of a point, or
 * subtracts it. The comment of each decoder names what follows d in a block, in its order. */

/* Sets out[0..book->numbers) to scale * (number + shift), negated where bit k of `signs` is set for number k. */
static void decode_point(const struct td_codebook *book, unsigned place, float scale, float shift, unsigned signs,
                         float *out)
{
    int8_t numbers[TD_CODEBOOK_MOST_NUMBERS];
    td_codebook_point(book, place, numbers);
    for (size_t k = 0; k < book->numbers; k++) {
        const float value = scale * ((float)numbers[k] + shift);
        out[k] = (signs >> k & 1) != 0 ? -value : value;
    }
}

/* Returns the signs of elements 8 * n to 8 * n + 7 of 32, for n below 4. `bits` stores 7 for each 8 elements; the
 * eighth makes the number of negative elements even. */
static unsigned signs_at(uint32_t bits, size_t n)
{
    const unsigned seven = bits >> 7 * n & 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

/* For each 32 elements: 4 places; 28 bits of signs and 4 bits of scale. */
static void decode_iq2_xxs(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 32; i++) {
        const uint8_t *group = block + 2 + i / 4 * 8;
        const uint32_t word = td_load_le32(group + 4);
        const float scale = d * (0.5F + (float)(word >> 28)) * 0.25F;
        decode_point(&td_codebook_iq2_xxs, group[i % 4], scale, 0, signs_at(word, i % 4), out + 8 * i);
    }
}

/* For each point 9 bits of place and 7 of signs; for each 2 points a scale. */
static void decode_iq2_xs(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 32; i++) {
        const uint32_t word = td_load_le16(block + 2 + 2 * i);
        const float scale = d * (0.5F + (float)half_byte_at(block + 66, i / 2)) * 0.25F;
        decode_point(&td_codebook_iq2_xs, word & 511, scale, 0, signs_at(word >> 9, 0), out + 8 * i);
    }
}

/* For each point the lower 8 bits of its place, all signs, the upper 2 bits of its place; for each 2 points a scale. */
static void decode_iq2_s(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 32; i++) {
        const unsigned place = block[2 + i] | (block[66 + i / 4] >> i % 4 * 2 & 3U) << 8;
        const float scale = d * (0.5F + (float)half_byte_at(block + 74, i / 2)) * 0.25F;
        decode_point(&td_codebook_iq2_s, place, scale, 0, block[34 + i], out + 8 * i);
    }
}

/* 64 places; for each 8 of them 28 bits of signs and 4 bits of scale. */
static void decode_iq3_xxs(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 64; i++) {
        const uint32_t word = td_load_le32(block + 66 + i / 8 * 4);
        const float scale = d * (0.5F + (float)(word >> 28)) * 0.5F;
        const unsigned signs = signs_at(word, i / 2 % 4) >> i % 2 * 4;
        decode_point(&td_codebook_iq3_xxs, block[2 + i], scale, 0, signs, out + 4 * i);
    }
}

/* For each point the lower 8 bits of its place, the ninth bit, all signs; for each 8 points a scale. */
static void decode_iq3_s(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 64; i++) {
        const unsigned place = block[2 + i] | (block[66 + i / 8] >> i % 8 & 1U) << 8;
        const float scale = d * (float)(1 + 2 * half_byte_at(block + 106, i / 8));
        const unsigned signs = (unsigned)half_byte_at(block + 74, i);
        decode_point(&td_codebook_iq3_s, place, scale, 0, signs, out + 4 * i);
    }
}

/* For each point the lower 8 bits of its place; for each 4 points 12 upper bits of their places, a scale of 3 bits, and
 * the sign of the shift. */
static void decode_iq1_s(const uint8_t *block, float *out)
{
    const float d = td_half_value(block);
    for (size_t i = 0; i < 32; i++) {
        const unsigned word = td_load_le16(block + 34 + i / 4 * 2);
        const unsigned place = block[2 + i] | (word >> i % 4 * 3 & 7) << 8;
        const float scale = d * (float)(2 * (word >> 12 & 7) + 1);
        decode_point(&td_codebook_iq1, place, scale, word >> 15 != 0 ? -0.125F : 0.125F, 0, out + 8 * i);
    }
}

/* The block does not begin with d. For each point the lower 8 bits of its place; for each point half a byte, the upper
 * 3 bits of its place and the sign of the shift; 4 words of 16 bits. Each word has the scales of 8 points, 3 bits for
 * each 2 points, and 4 bits of d, the lowest bits first. */
static void decode_iq1_m(const uint8_t *block, float *out)
{
    const uint8_t *scales = block + 48;
    const uint8_t half[] = {(uint8_t)(scales[1] >> 4 | (scales[3] & 0xF0)),
                            (uint8_t)(scales[5] >> 4 | (scales[7] & 0xF0))};
    const float d = td_half_value(half);
    for (size_t i = 0; i < 32; i++) {
        const unsigned upper = (unsigned)half_byte_at(block + 32, i);
        const unsigned place = block[i] | (upper & 7) << 8;
        const float scale = d * (float)(2 * (td_load_le16(scales + i / 8 * 2) >> i / 2 % 4 * 3 & 7) + 1);
        decode_point(&td_codebook_iq1, place, scale, upper >> 3 != 0 ? -0.125F : 0.125F, 0, out + 8 * i);
    }
}

td_block_decoder *td_block_decoder_of(const struct td_dtype *dtype)
{
    static const struct {
        const char *dtype;
        td_block_decoder *decode;
    } decoders[] = {
        {"Q4_0", decode_q4_0},   {"Q4_1", decode_q4_1},       {"Q5_0", decode_q5_0},       {"Q5_1", decode_q5_1},
        {"Q8_0", decode_q8_0},   {"Q2_K", decode_q2_k},       {"Q3_K", decode_q3_k},       {"Q4_K", decode_q4_k},
        {"Q5_K", decode_q5_k},   {"Q6_K", decode_q6_k},       {"TQ1_0", decode_tq1_0},     {"TQ2_0", decode_tq2_0},
        {"MXFP4", decode_mxfp4}, {"NVFP4", decode_nvfp4},     {"IQ4_NL", decode_iq4_nl},   {"IQ4_XS", decode_iq4_xs},
        {"IQ1_S", decode_iq1_s}, {"IQ1_M", decode_iq1_m},     {"IQ2_XXS", decode_iq2_xxs}, {"IQ2_XS", decode_iq2_xs},
        {"IQ2_S", decode_iq2_s}, {"IQ3_XXS", decode_iq3_xxs}, {"IQ3_S", decode_iq3_s},
    };
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (strcmp(decoders[i].dtype, dtype->name) == 0)
            return decoders[i].decode;
    return NULL;
}
