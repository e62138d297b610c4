/* An oracle for core/glob, written from its header: the pattern becomes a list of items, the text a list of
 * code points, and a table says which tails match which. Both must be UTF-8 and short. */
#ifndef TD_TESTS_FUZZ_GLOB_ORACLE_H
#define TD_TESTS_FUZZ_GLOB_ORACLE_H

#include "core/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { GLOB_ORACLE_MAX = 96 }; /* code points in a pattern or a text */

struct glob_points {
    uint32_t cp[GLOB_ORACLE_MAX];
    size_t count;
};

static inline uint32_t glob_oracle_point(const char *p, size_t n)
{
    uint32_t cp = n == 1 ? (uint8_t)*p : (uint8_t)*p & (0xFFU >> (n + 1));
    for (size_t i = 1; i < n; i++)
        cp = cp << 6 | ((uint8_t)p[i] & 0x3F);
    return cp;
}

/* Decodes the text to code points. Returns false when it is not UTF-8 or too long for the oracle. */
static inline bool glob_oracle_points(const char *text, size_t len, struct glob_points *out)
{
    memset(out, 0, sizeof *out);
    for (size_t at = 0; at < len;) {
        size_t n = td_utf8_sequence((const uint8_t *)text + at, len - at);
        if (n == 0 || out->count == GLOB_ORACLE_MAX)
            return false;
        out->cp[out->count++] = glob_oracle_point(text + at, n);
        at += n;
    }
    return true;
}

/* Returns the index of the ']' of the set that begins at `at`, or 0 when the set has no end. */
static inline size_t glob_oracle_set_end(const struct glob_points *p, size_t at)
{
    size_t i = at + 1;
    if (i < p->count && (p->cp[i] == '!' || p->cp[i] == '^'))
        i++;
    for (size_t first = i; i < p->count; i++) {
        if (p->cp[i] == ']' && i != first)
            return i;
        if (i + 2 < p->count && p->cp[i + 1] == '-' && p->cp[i + 2] != ']')
            i += 2;
    }
    return 0;
}

static inline bool glob_oracle_in_set(const struct glob_points *p, size_t at, size_t end, uint32_t c)
{
    size_t i = at + 1;
    bool negated = p->cp[i] == '!' || p->cp[i] == '^';
    bool found = false;
    for (i += negated; i < end; i++) {
        uint32_t high = p->cp[i];
        if (i + 2 < end && p->cp[i + 1] == '-')
            high = p->cp[i + 2];
        if (c >= p->cp[i] && c <= high)
            found = true;
        if (i + 2 < end && p->cp[i + 1] == '-')
            i += 2;
    }
    return found != negated;
}

/* Returns the length in points of the item at `at`, and sets *takes to whether the item matches the character c. */
static inline size_t glob_oracle_item(const struct glob_points *p, size_t at, uint32_t c, bool *takes)
{
    size_t end;
    if (p->cp[at] == '?') {
        *takes = true;
        return 1;
    }
    if (p->cp[at] == '[' && (end = glob_oracle_set_end(p, at)) != 0) {
        *takes = glob_oracle_in_set(p, at, end, c);
        return end + 1 - at;
    }
    if (p->cp[at] == '\\' && at + 1 < p->count) {
        *takes = p->cp[at + 1] == c;
        return 2;
    }
    *takes = p->cp[at] == c;
    return 1;
}

static inline bool glob_oracle(const struct glob_points *p, const struct glob_points *t)
{
    static bool match[GLOB_ORACLE_MAX + 1][GLOB_ORACLE_MAX + 1]; /* pattern from i on matches text from j on */
    memset(match, 0, sizeof match);
    for (size_t i = p->count + 1; i-- > 0;) {
        for (size_t j = t->count + 1; j-- > 0;) {
            bool takes = false;
            size_t step;
            if (i == p->count)
                match[i][j] = j == t->count;
            else if (p->cp[i] == '*')
                match[i][j] = match[i + 1][j] || (j < t->count && match[i][j + 1]);
            else if (j < t->count && (step = glob_oracle_item(p, i, t->cp[j], &takes)) > 0)
                match[i][j] = takes && match[i + step][j + 1];
        }
    }
    return match[0][0];
}

#endif
