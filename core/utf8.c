#include "core/utf8.h"

#include <string.h>

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t td_utf8_sequence(const uint8_t *p, size_t len)
{
    if (len == 0)
        return 0;
    uint8_t lead = p[0];
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return len >= 2 && is_continuation(p[1]) ? 2 : 0;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (len < 3 || !is_continuation(p[1]) || !is_continuation(p[2]))
            return 0;
        if (lead == 0xE0 && p[1] < 0xA0) /* overlong */
            return 0;
        if (lead == 0xED && p[1] > 0x9F) /* surrogates */
            return 0;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (len < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3]))
            return 0;
        if (lead == 0xF0 && p[1] < 0x90)
            return 0;
        if (lead == 0xF4 && p[1] > 0x8F)
            return 0;
        return 4;
    }
    return 0;
}

bool td_utf8_valid(const void *p, size_t len)
{
    const uint8_t *bytes = p;
    while (len > 0) {
        size_t n = td_utf8_sequence(bytes, len);
        if (n == 0)
            return false;
        bytes += n;
        len -= n;
    }
    return true;
}

/* Returns the code point of a well-formed sequence of two or three bytes. Returns 0 for other lengths, because is_shown
 * escapes no character of four bytes. */
static uint32_t short_code_point(const uint8_t *p, size_t n)
{
    if (n == 2)
        return (p[0] & 0x1FU) << 6 | (p[1] & 0x3FU);
    return n == 3 ? (p[0] & 0x0FU) << 12 | (p[1] & 0x3FU) << 6 | (p[2] & 0x3FU) : 0;
}

/* Returns whether a character is written as it is; n is 0 for a byte that is not UTF-8. C0 and C1 controls act on a
 * terminal. Bidirectional controls (Unicode Standard Annex 9, table 2 and section 2.6) and line and paragraph
 * separators show the text around them in another order or place. */
static bool is_shown(const uint8_t *p, size_t n)
{
    if (n == 1)
        return p[0] >= 0x20 && p[0] != 0x7F;
    uint32_t cp = short_code_point(p, n);
    bool is_c1 = cp >= 0x80 && cp < 0xA0;
    bool is_separator = cp == 0x2028 || cp == 0x2029;
    bool is_bidi = cp == 0x061C || cp == 0x200E || cp == 0x200F || (cp >= 0x202A && cp <= 0x202E) ||
                   (cp >= 0x2066 && cp <= 0x2069);
    return n > 1 && !is_c1 && !is_separator && !is_bidi;
}

void td_utf8_escape(struct td_text p, char *out, size_t capacity)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *bytes = (const uint8_t *)p.p;
    size_t used = 0;
    if (capacity == 0)
        return;
    while (p.len > 0) {
        size_t n = td_utf8_sequence(bytes, p.len);
        bool shown = is_shown(bytes, n);
        if (n == 0)
            n = 1;
        size_t need = shown ? n : 4 * n;
        if (need >= capacity - used)
            break;
        if (shown) {
            memcpy(out + used, bytes, n);
        } else {
            for (size_t i = 0; i < n; i++) {
                char *to = out + used + 4 * i;
                to[0] = '\\';
                to[1] = 'x';
                to[2] = hex[bytes[i] >> 4];
                to[3] = hex[bytes[i] & 15];
            }
        }
        used += need;
        bytes += n;
        p.len -= n;
    }
    out[used] = '\0';
}

/* How far from the limit a text may be cut: several characters with their marks. */
enum { CUT_BYTES = 64 };

/* Returns whether people see the character as a part of the one before it, or of that and the next one: the joiner
 * U+200D. The blocks of combining marks, of variation selectors and of modifiers of emoji (Unicode Standard Annex 29,
 * Extend) without those of single scripts. */
static bool extends(const uint8_t *p, size_t n)
{
    const uint32_t cp = short_code_point(p, n);
    return (cp >= 0x300 && cp < 0x370) || (cp >= 0x1AB0 && cp < 0x1B00) || (cp >= 0x1DC0 && cp < 0x1E00) ||
           (cp >= 0x20D0 && cp < 0x2100) || (cp >= 0xFE00 && cp < 0xFE10) || (cp >= 0xFE20 && cp < 0xFE30) ||
           cp == 0x200D || (n == 4 && memcmp(p, "\xf0\x9f\x8f", 3) == 0 && p[3] >= 0xBB); /* U+1F3FB to 1F3FF */
}

/* Returns whether a text may be cut before its byte `at`, which is not its first one. */
static bool may_cut(struct td_text text, size_t at)
{
    const uint8_t *p = (const uint8_t *)text.p;
    const size_t n = td_utf8_sequence(p + at, text.len - at);
    const bool is_joined = at >= 3 && memcmp(p + at - 3, "\xe2\x80\x8d", 3) == 0; /* U+200D */
    return n > 0 && !extends(p + at, n) && !is_joined;
}

size_t td_utf8_cut(struct td_text text, size_t most)
{
    if (text.len <= most)
        return text.len;
    for (size_t at = most; at > 0 && most - at < CUT_BYTES; at--)
        if (may_cut(text, at))
            return at;
    return td_text_shown(text, most);
}

size_t td_utf8_cut_end(struct td_text text, size_t most)
{
    if (text.len <= most)
        return 0;
    const size_t first = text.len - most;
    for (size_t at = first; at < text.len && at - first < CUT_BYTES; at++)
        if (may_cut(text, at))
            return at;
    size_t at = first;
    while (at < text.len && at - first < 3 && is_continuation((uint8_t)text.p[at]))
        at++;
    return at;
}

size_t td_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | (cp >> 6));
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | (cp >> 12));
        out[1] = (char)(0x80 | ((cp >> 6) & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | (cp >> 18));
    out[1] = (char)(0x80 | ((cp >> 12) & 0x3F));
    out[2] = (char)(0x80 | ((cp >> 6) & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}
