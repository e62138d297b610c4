#include "core/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/* the last two mean the same as the two before them */
static const char any_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_";

/* Decodes text without padding, of one of the three sets of digits. */
static bool read_digits(const char *of, struct td_text text, void *bytes, size_t *len)
{
    unsigned char *out = bytes;
    const size_t digit_count = strlen(of);
    uint32_t bits = 0;
    unsigned count = 0; /* of bits that are not written */
    *len = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *digit = memchr(of, text.p[i], digit_count);
        if (digit == NULL)
            return false;
        uint32_t value = (uint32_t)(digit - of);
        bits = bits << 6 | (value < 64 ? value : value - 2);
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[(*len)++] = (unsigned char)(bits >> count);
            bits &= (1U << count) - 1;
        }
    }
    return count < 6 && bits == 0;
}

/* Writes the bytes as digits, without a NUL. Returns the end of the text. */
static char *write_digits(const char *of, const void *bytes, size_t len, char *text, bool has_padding)
{
    const unsigned char *in = bytes;
    for (size_t i = 0; i < len; i += 3) {
        size_t count = len - i < 3 ? len - i : 3; /* input bytes of this group of four digits */
        uint32_t bits =
            (uint32_t)in[i] << 16 | (count > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (count > 2 ? (uint32_t)in[i + 2] : 0);
        for (size_t k = 0; k < (has_padding ? 4 : count + 1); k++)
            *text++ = k <= count ? of[bits >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

/* Returns the text without its padding. */
static struct td_text without_padding(struct td_text text)
{
    for (size_t i = 0; i < 2 && (text.len + i) % 4 == 0 && text.len > 0 && text.p[text.len - 1] == '='; i++)
        text.len--;
    return text;
}

bool td_base64_read(struct td_text text, void *bytes, size_t *len)
{
    return read_digits(digits, without_padding(text), bytes, len);
}

bool td_base64_read_any(struct td_text text, void *bytes, size_t *len)
{
    return read_digits(any_digits, without_padding(text), bytes, len);
}

void td_base64_write(const void *bytes, size_t len, char *text)
{
    *write_digits(digits, bytes, len, text, true) = '\0';
}

void td_base64_append(struct td_buffer *out, const void *bytes, size_t len)
{
    if (len > 0 && td_buffer_reserve(out, TD_BASE64_LEN(len)))
        out->len = (size_t)(write_digits(digits, bytes, len, out->data + out->len, true) - out->data);
}

bool td_base64url_read(struct td_text text, void *bytes, size_t *len)
{
    return read_digits(url_digits, text, bytes, len);
}

void td_base64url_write(const void *bytes, size_t len, char *text)
{
    (void)write_digits(url_digits, bytes, len, text, false);
}
