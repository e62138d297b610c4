#include "http/http_date.h"

#include "core/clock.h"
#include "tests/unit/unit.h"

#include <time.h>

/* RFC 9110 section 5.6.7; values by `date -u -d ... +%s`. */
static const struct {
    const char *text;
    int64_t seconds;
} good_dates[] = {
    {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777}, /* the RFC's three examples */
    {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
    {"Sun Nov  6 08:49:37 1994", 784111777},
    {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
    {"Thu Jan  1 00:00:00 1970", 0},
    {"Tue, 29 Feb 2000 12:00:00 GMT", 951825600}, /* leap: divisible by 400 */
    {"Thu, 29 Feb 2024 23:59:59 GMT", 1709251199},
    {"Fri, 01 Mar 2024 00:00:00 GMT", 1709251200},
    {"Mon, 01 Mar 2100 00:00:00 GMT", 4107542400}, /* 2100 is no leap year */
    {"Tue, 19 Jan 2038 03:14:08 GMT", 2147483648}, /* past 32 bits */
    {"Sat, 31 Dec 2016 23:59:60 GMT", 1483228800}, /* a leap second */
    {"Wed Dec 31 23:59:59 2025", 1767225599},
    {"Wednesday, 31-Dec-25 23:59:59 GMT", 1767225599},
    {"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
};

static const char *const bad_dates[] = {
    "",
    "x",
    "784111777",
    "1994-11-06T08:49:37Z",
    "Sun, 06 Nov 1994 08:49:37",
    "Sun, 06 Nov 1994 08:49:37 UTC",
    "Sun, 06 Nov 1994 08:49:37 +0000",
    "Sun, 06 Nov 1994 08:49:37 GMT ",
    " Sun, 06 Nov 1994 08:49:37 GMT",
    "Sun,  06 Nov 1994 08:49:37 GMT",
    "Sun, 6 Nov 1994 08:49:37 GMT",
    "Sun, 06 Nov 94 08:49:37 GMT",
    "Sun, 06 Nov 19940 08:49:37 GMT",
    "Sun 06 Nov 1994 08:49:37 GMT",
    "sun, 06 nov 1994 08:49:37 gmt", /* the grammar is case-sensitive */
    "Xxx, 06 Nov 1994 08:49:37 GMT",
    "Sun, 06 Xxx 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 8:49:37 GMT",
    "Sun, 06 Nov 1994 08:49 GMT",
    "Sun, 06 Nov 1994 24:00:00 GMT",
    "Sun, 06 Nov 1994 08:60:00 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT",
    "Sun, 00 Nov 1994 08:49:37 GMT",
    "Sun, 32 Nov 1994 08:49:37 GMT",
    "Sun, 31 Nov 1994 08:49:37 GMT", /* November has 30 days */
    "Wed, 29 Feb 2023 00:00:00 GMT",
    "Mon, 29 Feb 2100 00:00:00 GMT",
    "Fri, 30 Feb 2024 00:00:00 GMT",
    "Sun, -6 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-1994 08:49:37 GMT",
    "Sunday, 06 Nov 94 08:49:37 GMT",
    "Sun, 06-Nov-94 08:49:37 GMT",
    "Sunday, 31-Jun-94 08:49:37 GMT",
    "Sun Nov 6 08:49:37 1994",
    "Sun Nov 06 08:49:37 94",
    "Sun Nov  6 08:49:37 1994 GMT",
    "Sun Nov  31 08:49:37 1994",
    "Sun Nov 31 08:49:37 1994",
};

static void every_http_date_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good_dates); i++) {
        int64_t seconds = -7;
        CHECK(td_http_date_parse(td_text_of(good_dates[i].text), &seconds), "%s", good_dates[i].text);
        CHECK(seconds == good_dates[i].seconds, "%s: %lld", good_dates[i].text, (long long)seconds);
    }
    for (size_t i = 0; i < COUNT_OF(bad_dates); i++) {
        int64_t seconds = -7;
        CHECK(!td_http_date_parse(td_text_of(bad_dates[i]), &seconds), "%s", bad_dates[i]);
        assert_true(seconds == -7);
    }
}

/* The prefixes are in blocks of exactly their size, so that the sanitizer sees a read past the end. */
static void every_prefix_is_no_date(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (size_t len = 0; len < strlen(good_dates[i].text); len++) {
            char *text = malloc(len + (len == 0));
            int64_t seconds;
            assert_non_null(text);
            memcpy(text, good_dates[i].text, len);
            CHECK(!td_http_date_parse(td_text_n(text, len), &seconds), "%zu bytes of %s", len, good_dates[i].text);
            free(text);
        }
    }
}

/* RFC 9110 section 5.6.7: "a timestamp that appears to be more than 50 years in the future" is in the past century. */
static void two_digit_years_look_back(void **state)
{
    (void)state;
    time_t now = time(NULL);
    struct tm tm;
    assert_non_null(gmtime_r(&now, &tm));
    int this_year = tm.tm_year + 1900;
    for (int ahead = -49; ahead <= 50; ahead++) {
        if (ahead == 50 || (this_year + ahead) / 100 > this_year / 100)
            continue; /* 50 years depend on the day; years of the next century are not tested */
        char text[64];
        int64_t seconds;
        (void)snprintf(text, sizeof text, "Monday, 15-Jun-%02d 12:00:00 GMT", (this_year + ahead) % 100);
        assert_true(td_http_date_parse(td_text_of(text), &seconds));
        time_t when = (time_t)seconds;
        assert_non_null(gmtime_r(&when, &tm));
        CHECK(tm.tm_year + 1900 == this_year + ahead, "%s read as %d, %d expected", text, tm.tm_year + 1900,
              this_year + ahead);
    }
}

static void formats_as_imf_fixdate(void **state)
{
    (void)state;
    char out[30];
    td_http_date_format(784111777, out);
    assert_string_equal(out, "Sun, 06 Nov 1994 08:49:37 GMT");
    td_http_date_format(0, out);
    assert_string_equal(out, "Thu, 01 Jan 1970 00:00:00 GMT");
    td_http_date_format(253402300799, out);
    assert_string_equal(out, "Fri, 31 Dec 9999 23:59:59 GMT");
    td_http_date_format(253402300800, out); /* a year of five digits: 1970 in its place */
    assert_string_equal(out, "Thu, 01 Jan 1970 00:00:00 GMT");
    td_http_date_format(INT64_MAX, out);
    assert_string_equal(out, "Thu, 01 Jan 1970 00:00:00 GMT");
}

/* Every day of 400 years, the whole cycle of leap years, against a calendar that this test counts up. */
static void every_day_of_the_cycle(void **state)
{
    (void)state;
    static const int days_in[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = 1970, month = 0, day = 1;
    for (int64_t n = 0; n < 146097; n++) {
        char out[30], wanted[16];
        int64_t back;
        td_http_date_format(n * 86400 + 86399, out);
        (void)snprintf(wanted, sizeof wanted, "%02d", day);
        CHECK(strncmp(out + 5, wanted, 2) == 0 && atoi(out + 12) == year, "%s, not %d-%d-%d", out, year, month + 1,
              day);
        CHECK(td_http_date_parse(td_text_n(out, 29), &back) && back == n * 86400 + 86399, "%s", out);
        bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        if (++day > days_in[month] + (month == 1 && leap)) {
            day = 1;
            if (++month == 12) {
                month = 0;
                year++;
            }
        }
    }
    assert_int_equal(year, 2370);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_http_date_form),      cmocka_unit_test(every_prefix_is_no_date),
        cmocka_unit_test(two_digit_years_look_back), cmocka_unit_test(formats_as_imf_fixdate),
        cmocka_unit_test(every_day_of_the_cycle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
