#include "core/glob.h"

#include "core/utf8.h"

#include <stdint.h>
#include <string.h>

/* Returns the length of the character at p: a UTF-8 sequence, or one byte that is not UTF-8. */
static size_t character(const char *p, size_t len)
{
    size_t n = td_utf8_sequence((const uint8_t *)p, len);
    return n == 0 ? 1 : n;
}

/* Compares two characters. In UTF-8 the order of bytes is that of code points, so ranges need no decoding. */
static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* Matches the set at p (p[0] is '[') against one character. Returns the set's length, or 0 when it has no end: '[' is
 * then an ordinary character. */
static size_t match_set(const char *p, size_t len, const char *c, size_t c_len, bool *matched)
{
    size_t at = 1;
    bool negated = at < len && (p[at] == '!' || p[at] == '^');
    if (negated)
        at++;
    size_t first = at;
    bool found = false;
    while (at < len && (p[at] != ']' || at == first)) {
        size_t low = at;
        size_t low_len = character(p + at, len - at);
        at += low_len;
        size_t high = low;
        size_t high_len = low_len;
        if (at + 1 < len && p[at] == '-' && p[at + 1] != ']') {
            high = at + 1;
            high_len = character(p + high, len - high);
            at = high + high_len;
        }
        if (compare_bytes(c, c_len, p + low, low_len) >= 0 && compare_bytes(c, c_len, p + high, high_len) <= 0)
            found = true;
    }
    if (at >= len)
        return 0;
    *matched = found != negated;
    return at + 1;
}

/* Matches the pattern item at p (not '*') against the text at t. Sets *p_step and *t_step to the lengths of the item
 * and of the matched text. set_len is the part of the pattern in which a set can end. */
static bool match_one(const char *p, size_t p_len, size_t set_len, const char *t, size_t t_len, size_t *p_step,
                      size_t *t_step)
{
    *t_step = character(t, t_len);
    *p_step = 1;
    if (p[0] == '?')
        return true;
    if (p[0] == '[') {
        bool matched = false;
        size_t n = match_set(p, set_len, t, *t_step, &matched);
        if (n != 0) {
            *p_step = n;
            return matched;
        }
    }
    *t_step = 1;
    if (p[0] == '\\' && p_len > 1) {
        *p_step = 2;
        return p[1] == t[0];
    }
    return p[0] == t[0];
}

/* Returns whether the text ends with the plain bytes that the pattern ends with. The bytes after the last special one
 * stand for themselves, each for one byte, so a text with another end cannot match. */
static bool ends_alike(struct td_text pattern, struct td_text text)
{
    for (size_t n = 1; n <= pattern.len; n++) {
        char c = pattern.p[pattern.len - n];
        if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\')
            return true;
        if (n > text.len || text.p[text.len - n] != c)
            return false;
    }
    return true;
}

bool td_glob_match(struct td_text pattern, struct td_text text)
{
    if (!ends_alike(pattern, text))
        return false;
    size_t p = 0;
    size_t t = 0;
    size_t star = SIZE_MAX;        /* the latest '*'; SIZE_MAX: none yet */
    size_t star_text = 0;          /* where the text after the part that it matches begins */
    size_t sets_end = pattern.len; /* after the last ']': a '[' after it has no end, so none is searched for */
    while (sets_end > 0 && pattern.p[sets_end - 1] != ']')
        sets_end--;
    while (t < text.len) {
        size_t p_step;
        size_t t_step;
        size_t set_len = sets_end > p ? sets_end - p : 0;
        if (p < pattern.len && pattern.p[p] == '*') {
            star = p++;
            star_text = t;
        } else if (p < pattern.len &&
                   match_one(pattern.p + p, pattern.len - p, set_len, text.p + t, text.len - t, &p_step, &t_step)) {
            p += p_step;
            t += t_step;
        } else if (star != SIZE_MAX) { /* by whole characters: `?` must not match a part of one */
            star_text += character(text.p + star_text, text.len - star_text);
            p = star + 1;
            t = star_text;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.p[p] == '*')
        p++;
    return p == pattern.len;
}
