/* Expectations: RFC 9110 section 14, and the policy of http/range.h where the RFC leaves a choice. Whole answers to
 * Range requests are in test_api_bytes.c. */
#include "http/range.h"

#include "tests/kit/range_oracle.h"
#include "tests/unit/unit.h"

#include <inttypes.h>

struct outcome {
    enum td_range_result result;
    struct td_byte_range ranges[TD_MAX_RANGES];
    size_t count;
};

static struct outcome parse(const char *value, uint64_t size)
{
    struct outcome out;
    char *exact = malloc(strlen(value) + 1); /* so that the sanitizer sees a read past the end */
    assert_non_null(exact);
    memcpy(exact, value, strlen(value));
    out.result = td_range_parse(td_text_n(exact, strlen(value)), size, out.ranges, &out.count);
    free(exact);
    return out;
}

/* Writes "ignore", "416", or the ranges as "off+len off+len". */
static void describe(const struct outcome *out, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    if (out->result != TD_RANGE_PARTIAL)
        (void)snprintf(text, capacity, "%s", out->result == TD_RANGE_IGNORE ? "ignore" : "416");
    else
        for (size_t i = 0; i < out->count; i++)
            used += (size_t)snprintf(text + used, capacity - used, "%s%" PRIu64 "+%" PRIu64, i > 0 ? " " : "",
                                     out->ranges[i].off, out->ranges[i].len);
}

static void values_of_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        uint64_t size;
        const char *wanted;
        const char *section;
    } cases[] = {
        {"bytes=0-499", 10000, "0+500", "14.1.2, the RFC's own examples"},
        {"bytes=500-999", 10000, "500+500", "14.1.2"},
        {"bytes=-500", 10000, "9500+500", "14.1.2"},
        {"bytes=9500-", 10000, "9500+500", "14.1.2"},
        {"bytes=0-0,-1", 10000, "0+1 9999+1", "14.1.2"},
        {"bytes= 0-999, 4500-5499, -1000", 10000, "0+1000 4500+1000 9000+1000", "14.1.2, so printed in it"},
        {"bytes=500-600,601-999", 10000, "500+101 601+399", "14.1.2"},
        {"bytes=500-700,601-999", 10000, "500+201 601+399", "14.1.2"},
        {"bytes=0-0", 1, "0+1", "14.1.2"},
        {"bytes=0-", 1, "0+1", "14.1.2"},
        {"bytes=-1", 1, "0+1", "14.1.2"},
        {"bytes=0-9", 10, "0+10", "14.1.2"},
        {"bytes=0-10", 10, "0+10", "14.1.2: a last-pos beyond the end is clipped"},
        {"bytes=9-9", 10, "9+1", "14.1.2"},
        {"bytes=9-99999999999999999999", 10, "9+1", "14.1.2: digits of any number"},
        {"bytes=-10", 10, "0+10", "14.1.2"},
        {"bytes=-11", 10, "0+10", "14.1.2: a suffix longer than the representation is the whole"},
        {"bytes=-99999999999999999999", 10, "0+10", "14.1.2"},
        {"bytes=00000000000000000000003-000000000000000000004", 10, "3+2", "14.1.1: leading zeros are digits"},
        {"bytes=18446744073709551614-", UINT64_MAX, "18446744073709551614+1", "14.1.2"},
        {"bytes=0-18446744073709551615", UINT64_MAX, "0+18446744073709551615", "14.1.2"},
        {"bytes=-18446744073709551615", UINT64_MAX, "0+18446744073709551615", "14.1.2"},
        {"bytes=-18446744073709551616", UINT64_MAX, "0+18446744073709551615", "14.1.2"},
        {"bytes=18446744073709551615-", UINT64_MAX, "416", "14.1.2"},
        {"bytes=4294967296-4294967297", UINT64_C(8589934592), "4294967296+2", "14.1.2"},
        {"bytes=10-", 10, "416", "14.1.2: first-pos at the length"},
        {"bytes=10-10", 10, "416", "14.1.2"},
        {"bytes=11-20", 10, "416", "14.1.2"},
        {"bytes=99999999999999999999-", 10, "416", "14.1.2"},
        {"bytes=18446744073709551616-", 10, "416", "14.1.2: 2^64 is not 0"},
        {"bytes=18446744073709551616-18446744073709551617", 10, "416", "14.1.2"},
        {"bytes=-0", 10, "416", "14.1.2: a suffix-length of 0"},
        {"bytes=-00", 10, "416", "14.1.2"},
        {"bytes=20-,-0,30-40", 10, "416", "14.1.2: none satisfiable"},
        {"bytes=20-30,0-1", 10, "0+2", "15.3.7.2: one satisfiable range needs no multipart"},
        {"bytes=0-1,20-30", 10, "0+2", "15.3.7.2"},
        {"bytes=-0,5-", 10, "5+5", "14.1.2"},
        {"bytes=5-6,0-1", 10, "5+2 0+2", "15.3.7.2: parts in the order asked for"},
        {"bytes=,0-1", 10, "0+2", "5.6.1.2: empty elements"},
        {"bytes=0-1,", 10, "0+2", "5.6.1.2"},
        {"bytes=,,0-1,,3-4,,", 10, "0+2 3+2", "5.6.1.2"},
        {"bytes=0-1 ,\t3-4", 10, "0+2 3+2", "5.6.1.2: OWS"},
        {"bytes= ,0-1", 10, "0+2", "5.6.1.2"},
        {"BYTES=0-1", 10, "0+2", "14.1: units are case-insensitive"},
        {"Bytes=0-1", 10, "0+2", "14.1"},
        {"", 10, "ignore", "14.1.1"},
        {"bytes", 10, "ignore", "14.1.1"},
        {"bytes=", 10, "ignore", "14.1.1: 1#"},
        {"bytes=,", 10, "ignore", "5.6.1"},
        {"bytes= , ,", 10, "ignore", "5.6.1"},
        {"bytes 0-1", 10, "ignore", "14.1.1"},
        {"bytes =0-1", 10, "ignore", "14.1.1"},
        {"bytes:0-1", 10, "ignore", "14.1.1"},
        {"byte=0-1", 10, "ignore", "14.2: unknown unit"},
        {"bytess=0-1", 10, "ignore", "14.2"},
        {"items=0-1", 10, "ignore", "14.2"},
        {"none", 10, "ignore", "14.3: only Accept-Ranges has it"},
        {"0-1", 10, "ignore", "14.1.1"},
        {"=0-1", 10, "ignore", "14.1.1"},
        {"bytes=1-0", 10, "ignore", "14.1.1: last-pos less than first-pos is invalid"},
        {"bytes=100-99", 10, "ignore", "14.1.1"},
        {"bytes=99999999999999999999-99999999999999999998", 10, "ignore", "14.1.1: beyond 64 bits too"},
        {"bytes=0-1,5-4", 10, "ignore", "14.1.1: one invalid spec spoils the set"},
        {"bytes=5-4,0-1", 10, "ignore", "14.1.1"},
        {"bytes=-", 10, "ignore", "14.1.1"},
        {"bytes=--1", 10, "ignore", "14.1.1"},
        {"bytes=1--2", 10, "ignore", "14.1.1"},
        {"bytes=-1-", 10, "ignore", "14.1.1"},
        {"bytes=-1-2", 10, "ignore", "14.1.1"},
        {"bytes=1-2-3", 10, "ignore", "14.1.1"},
        {"bytes=5", 10, "ignore", "14.1.1"},
        {"bytes=a-b", 10, "ignore", "14.1.1"},
        {"bytes=0x0-1", 10, "ignore", "14.1.1"},
        {"bytes=0-1x", 10, "ignore", "14.1.1"},
        {"bytes=+0-1", 10, "ignore", "14.1.1"},
        {"bytes=0-+1", 10, "ignore", "14.1.1"},
        {"bytes=1.0-2", 10, "ignore", "14.1.1"},
        {"bytes=0 -1", 10, "ignore", "14.1.1: no blanks within"},
        {"bytes=0- 1", 10, "ignore", "14.1.1"},
        {"bytes=- 1", 10, "ignore", "14.1.1"},
        {"bytes=0-1 3-4", 10, "ignore", "14.1.1"},
        {"bytes=0-1;3-4", 10, "ignore", "14.1.1"},
        {"bytes=0-1\n,3-4", 10, "ignore", "5.6.3: OWS is blank and tab"},
        {"bytes=0-1, ,bogus", 10, "ignore", "14.1.1"},
        {"bytes=0-1,items=3-4", 10, "ignore", "14.1.1"},
        {"bytes=\xef\xbc\x90-1", 10, "ignore", "14.1.1: DIGIT is ASCII"},
        {"bytes=0-0", 0, "ignore", "14.2: policy for the empty representation"},
        {"bytes=0-", 0, "ignore", "14.2"},
        {"bytes=-1", 0, "ignore", "14.2"},
        {"bytes=5-4", 0, "ignore", "14.2"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct outcome out = parse(cases[i].value, cases[i].size);
        char got[256];
        describe(&out, got, sizeof got);
        CHECK(strcmp(got, cases[i].wanted) == 0, "\"%s\" of %" PRIu64 " (%s): %s, wanted %s", cases[i].value,
              cases[i].size, cases[i].section, got, cases[i].wanted);
    }
}

/* RFC 9110 sections 14.2 and 17.15: many small or overlapping ranges may be refused. */
static void excess_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *value, *wanted;
    } cases[] = {
        {"bytes=0-9,0-9", "0+10 0+10"},
        {"bytes=0-9,5-14,10-19", "0+10 5+10 10+10"} /* two overlaps */,
        {"bytes=0-9,5-14,10-19,15-24", "416"} /* three */,
        {"bytes=0-,0-,0-,0-", "416"},
        {"bytes=0-9,20-29,40-49,60-69,80-89", "0+10 20+10 40+10 60+10 80+10"},
        {"bytes=80-89,60-69,40-49,20-29,0-9", "80+10 60+10 40+10 20+10 0+10"},
        {"bytes=0-9,10-19,20-29,30-39,40-49", "0+10 10+10 20+10 30+10 40+10"} /* side by side is no overlap */,
        {"bytes=0-99,10-11,20-21,30-31", "416"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct outcome out = parse(cases[i].value, 100);
        char got[256];
        describe(&out, got, sizeof got);
        CHECK(strcmp(got, cases[i].wanted) == 0, "\"%s\": %s", cases[i].value, got);
    }
}

/* The most ranges allowed, and one more. Unsatisfiable ranges count too. */
static void ranges_are_limited(void **state)
{
    (void)state;
    for (size_t count = TD_MAX_RANGES - 1; count <= TD_MAX_RANGES + 1; count++) {
        for (int beyond = 0; beyond <= 1; beyond++) {
            char value[8000] = "bytes=";
            size_t used = strlen(value);
            for (size_t i = 0; i < count; i++)
                used += (size_t)snprintf(value + used, sizeof value - used, "%s%zu-%zu", i > 0 ? "," : "",
                                         10 * i + (beyond != 0 && i > 0 ? 100000 : 0),
                                         10 * i + (beyond != 0 && i > 0 ? 100000 : 0) + 1);
            struct outcome out = parse(value, 10 * (TD_MAX_RANGES + 1));
            CHECK(out.result == (count > TD_MAX_RANGES ? TD_RANGE_UNSATISFIABLE : TD_RANGE_PARTIAL), "%zu", count);
            CHECK(count > TD_MAX_RANGES || out.count == (beyond != 0 ? 1 : count), "%zu: %zu", count, out.count);
        }
    }
}

/* Checks the parser's verdict on a value against the oracle's. */
static void compare(const char *value, uint64_t size)
{
    static struct oracle oracle;
    struct outcome out = parse(value, size);
    oracle_run(&oracle, value, strlen(value), size);
    if (oracle.verdict != ORACLE_VALID || size == 0) {
        CHECK(out.result == TD_RANGE_IGNORE, "\"%s\" of %" PRIu64 ": result %d", value, size, (int)out.result);
    } else if (out.result == TD_RANGE_PARTIAL) {
        CHECK(out.count == oracle.count, "\"%s\" of %" PRIu64 ": %zu, wanted %zu", value, size, out.count,
              oracle.count);
        for (size_t i = 0; i < out.count; i++)
            CHECK(out.ranges[i].off == oracle.ranges[i].off && out.ranges[i].len == oracle.ranges[i].len,
                  "\"%s\" of %" PRIu64 ": range %zu is %" PRIu64 "+%" PRIu64, value, size, i, out.ranges[i].off,
                  out.ranges[i].len);
    } else { /* refused only if no range can be sent or too many are requested */
        CHECK(out.result == TD_RANGE_UNSATISFIABLE, "\"%s\" of %" PRIu64, value, size);
        CHECK(oracle.count == 0 || oracle.count > 3, "\"%s\" of %" PRIu64, value, size);
    }
}

static void random_values_agree_with_the_oracle(void **state)
{
    (void)state;
    static const char *const pieces[] = {"0",   "1",  "5",      "9",       "10", "99", "18446744073709551615",    "-",
                                         "-",   "-",  ",",      ",",       " ",  "\t", "18446744073709551616",    "00",
                                         "0-0", "-1", "3-7",    "bytes=",  "x",  "=",  "99999999999999999999999", "5-",
                                         "-3",  "2-", "0-4,6-", "1-1,2-2", ", ", "7-6"};
    static const uint64_t sizes[] = {0, 1, 2, 10, 100, UINT64_MAX};
    uint64_t seed = 8;
    for (int round = 0; round < 300000 / (SANITIZED ? 3 : 1); round++) {
        char value[512] = "bytes=";
        size_t used = random_below(&seed, 50) == 0 ? 0 : strlen(value);
        for (size_t n = random_below(&seed, 10); n > 0; n--)
            used += (size_t)snprintf(value + used, sizeof value - used, "%s",
                                     pieces[random_below(&seed, COUNT_OF(pieces))]);
        value[used] = '\0';
        compare(value, sizes[random_below(&seed, COUNT_OF(sizes))]);
    }
}

/* Every value of 0, 3 and 6 letters of a small alphabet. */
static void all_short_values_agree_with_the_oracle(void **state)
{
    (void)state;
    static const char alphabet[] = "019-, ";
    enum { LETTERS = sizeof alphabet - 1, LENGTH = 6 };
    size_t all = 1;
    for (int i = 0; i < LENGTH; i++)
        all *= LETTERS;
    for (size_t number = 0; number < all; number++) {
        char value[32] = "bytes=";
        size_t rest = number;
        for (size_t i = 0; i < LENGTH; i++, rest /= LETTERS)
            value[6 + i] = alphabet[rest % LETTERS];
        for (size_t len = 0; len <= LENGTH; len += LENGTH - 3) { /* also cut to 3 and to 0 letters */
            char cut[32];
            memcpy(cut, value, 6 + len);
            cut[6 + len] = '\0';
            compare(cut, 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_the_field),
        cmocka_unit_test(excess_is_refused),
        cmocka_unit_test(ranges_are_limited),
        cmocka_unit_test(random_values_agree_with_the_oracle),
        cmocka_unit_test(all_short_values_agree_with_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
