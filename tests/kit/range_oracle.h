/* An oracle for Range field values, written from RFC 9110 to be readable, not fast: numbers are texts of digits of any
 * length, and the grammar is followed symbol by symbol.
 *
 *   ranges-specifier = range-unit "=" range-set                        14.1.1
 *   range-set        = 1#range-spec
 *   range-spec       = int-range / suffix-range / other-range
 *   int-range        = first-pos "-" [ last-pos ]
 *   suffix-range     = "-" suffix-length
 *   first-pos, last-pos, suffix-length = 1*DIGIT
 *   #element         = [ element ] *( OWS "," OWS [ element ] )        5.6.1.2, for recipients
 *
 * Range units are case-insensitive (14.1). An int-range whose last-pos is less than its first-pos is invalid. Blanks
 * before the first element are taken too: the RFC prints one in 14.1.2, "bytes= 0-999, 4500-5499, -1000". */
#ifndef TD_TESTS_KIT_RANGE_ORACLE_H
#define TD_TESTS_KIT_RANGE_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ORACLE_RANGES = 4096 };

enum oracle_verdict {
    ORACLE_NONE,    /* not a bytes range: ignored */
    ORACLE_INVALID, /* a bytes range that the grammar does not allow */
    ORACLE_VALID,
};

/* One range as texts of digits without leading zeros; an absent last is NULL. */
struct oracle_spec {
    const char *first, *last;
    size_t first_len, last_len;
    bool is_suffix; /* last holds the suffix-length */
};

struct oracle_range {
    uint64_t off, len;
};

struct oracle {
    enum oracle_verdict verdict;
    size_t spec_count;
    struct oracle_spec specs[ORACLE_RANGES];
    size_t count; /* satisfiable ones, in order */
    struct oracle_range ranges[ORACLE_RANGES];
};

/* Compares two numbers of any length: <0, 0, >0. */
static inline int oracle_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    while (a_len > 0 && *a == '0') {
        a++;
        a_len--;
    }
    while (b_len > 0 && *b == '0') {
        b++;
        b_len--;
    }
    if (a_len != b_len)
        return a_len < b_len ? -1 : 1;
    return a_len == 0 ? 0 : memcmp(a, b, a_len);
}

/* Returns the number, but at most `most`. */
static inline uint64_t oracle_number(const char *digits, size_t len, uint64_t most)
{
    char text[32];
    size_t n = 0;
    uint64_t rest = most;
    do {
        text[sizeof text - ++n] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (oracle_compare(digits, len, text + sizeof text - n, n) >= 0)
        return most;
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++)
        value = value * 10 + (uint64_t)(digits[i] - '0');
    return value;
}

static inline size_t oracle_digits(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && p[n] >= '0' && p[n] <= '9')
        n++;
    return n;
}

/* Reads one element of the list: all of p[0..len). */
static inline bool oracle_spec(struct oracle *oracle, const char *p, size_t len)
{
    const char *end = p + len;
    struct oracle_spec spec = {0};
    spec.first = p;
    spec.first_len = oracle_digits(p, end);
    p += spec.first_len;
    if (p == end || *p != '-')
        return false;
    p++;
    spec.is_suffix = spec.first_len == 0;
    spec.last = p;
    spec.last_len = oracle_digits(p, end);
    if (p + spec.last_len != end || (spec.is_suffix && spec.last_len == 0))
        return false;
    if (!spec.is_suffix && spec.last_len == 0)
        spec.last = NULL;
    if (!spec.is_suffix && spec.last != NULL &&
        oracle_compare(spec.last, spec.last_len, spec.first, spec.first_len) < 0)
        return false;
    if (oracle->spec_count < ORACLE_RANGES)
        oracle->specs[oracle->spec_count] = spec;
    oracle->spec_count++;
    return true;
}

/* Selects the satisfiable ranges (14.1.2): an int-range whose first-pos is less than the length, a suffix-range of a
 * non-zero length. */
static inline void oracle_select(struct oracle *oracle, uint64_t size)
{
    size_t specs = oracle->spec_count < ORACLE_RANGES ? oracle->spec_count : ORACLE_RANGES;
    for (size_t i = 0; i < specs; i++) {
        const struct oracle_spec *spec = &oracle->specs[i];
        struct oracle_range *range = &oracle->ranges[oracle->count];
        if (spec->is_suffix) {
            range->len = oracle_number(spec->last, spec->last_len, size);
            range->off = size - range->len;
        } else {
            range->off = oracle_number(spec->first, spec->first_len, size);
            if (range->off == size)
                continue;
            uint64_t last = spec->last == NULL ? size - 1 : oracle_number(spec->last, spec->last_len, size - 1);
            range->len = last - range->off + 1;
        }
        if (range->len > 0)
            oracle->count++;
    }
}

static inline bool oracle_is_ows(char c)
{
    return c == ' ' || c == '\t';
}

static inline void oracle_run(struct oracle *oracle, const char *value, size_t len, uint64_t size)
{
    static const char unit[] = "bytes";
    oracle->verdict = ORACLE_NONE;
    oracle->spec_count = oracle->count = 0;
    if (len < 6 || value[5] != '=')
        return;
    for (size_t i = 0; i < 5; i++)
        if ((value[i] | 0x20) != unit[i])
            return;
    oracle->verdict = ORACLE_INVALID;
    const char *end = value + len;
    for (const char *p = value + 6;;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma == NULL ? end : comma;
        const char *a = p;
        const char *z = stop;
        while (a < z && oracle_is_ows(*a))
            a++;
        while (z > a && oracle_is_ows(z[-1]))
            z--;
        if (a < z && !oracle_spec(oracle, a, (size_t)(z - a)))
            return;
        if (comma == NULL)
            break;
        p = comma + 1;
    }
    if (oracle->spec_count == 0)
        return; /* 1#: at least one */
    oracle->verdict = ORACLE_VALID;
    oracle_select(oracle, size);
}

#endif
