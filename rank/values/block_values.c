/* A block begins or ends with its scale, d, a half-precision number. An element is d times a small integer (q), which
 * is packed below a byte; many types have a scale for each 16 or 32 elements, too, which multiplies d, and some
 * subtract a minimum. Source of all layouts: gguf-py's quants.py and ggml-common.h. */
#include "rank/values/block_values.h"

#include "core/input.h"
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
        const int low = block[4 + n / 2] >> n % 2 * 4 & 15;
        const float scale = d * (float)((low | (int)(high >> 2 * n & 3) << 4) - 32);
        for (size_t i = 0; i < 32; i++)
            out[32 * n + i] = scale * (float)iq4_values[nibble_at(block + 8 + 16 * n, i)];
    }
}

td_block_decoder *td_block_decoder_of(const struct td_dtype *dtype)
{
    static const struct {
        const char *dtype;
        td_block_decoder *decode;
    } decoders[] = {
        {"Q4_0", decode_q4_0},   {"Q4_1", decode_q4_1},   {"Q5_0", decode_q5_0},     {"Q5_1", decode_q5_1},
        {"Q8_0", decode_q8_0},   {"Q2_K", decode_q2_k},   {"Q3_K", decode_q3_k},     {"Q4_K", decode_q4_k},
        {"Q5_K", decode_q5_k},   {"Q6_K", decode_q6_k},   {"TQ1_0", decode_tq1_0},   {"TQ2_0", decode_tq2_0},
        {"MXFP4", decode_mxfp4}, {"NVFP4", decode_nvfp4}, {"IQ4_NL", decode_iq4_nl}, {"IQ4_XS", decode_iq4_xs},
    };
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (strcmp(decoders[i].dtype, dtype->name) == 0)
            return decoders[i].decode;
    return NULL;
}
