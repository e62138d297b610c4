#include "core/base64url.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void td_base64url_write(const void *bytes, size_t len, char *text)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        unsigned bits = (unsigned)p[i] << 16;
        bits |= n > 1 ? (unsigned)p[i + 1] << 8 : 0;
        bits |= n > 2 ? (unsigned)p[i + 2] : 0;
        for (size_t k = 0; k <= n; k++)
            *text++ = alphabet[bits >> (18 - 6 * k) & 63];
    }
}

bool td_base64url_read(struct td_text text, void *bytes, size_t *len)
{
    unsigned char *out = bytes;
    unsigned bits = 0;
    unsigned held = 0;
    *len = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *at = text.p[i] == '\0' ? NULL : strchr(alphabet, text.p[i]);
        if (at == NULL)
            return false;
        bits = (bits << 6 | (unsigned)(at - alphabet)) & 0xFFFFU;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[(*len)++] = (unsigned char)(bits >> held & 0xFF);
        }
    }
    return held < 6 && (bits & ((1U << held) - 1)) == 0;
}
