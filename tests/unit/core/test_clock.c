#include "core/clock.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <time.h>

/* shows: security.md host-clock */
static void monotonic_never_steps_back(void **state)
{
    (void)state;
    uint64_t before = td_clock_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t now = td_clock_ns();
        assert_true(now >= before);
        before = now;
    }
    nap_ms(2);
    assert_true(td_clock_ns() - before >= 2000000);
}

/* By the realtime clock, whose value is larger, the wait would end at once. */
static void conditions_wait_by_the_monotonic_clock(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    assert_true(td_clock_condition_init(&condition));
    uint64_t due = td_clock_ns() + 20000000;
    struct timespec until = td_clock_timespec(due);
    int status = 0;
    pthread_mutex_lock(&lock);
    while (status == 0) /* a wait may end spuriously */
        status = pthread_cond_timedwait(&condition, &lock, &until);
    pthread_mutex_unlock(&lock);
    assert_int_equal(status, ETIMEDOUT);
    assert_true(td_clock_ns() >= due);
    assert_int_equal(pthread_cond_destroy(&condition), 0);
}

static void wall_is_the_hosts(void **state)
{
    (void)state;
    time_t before = time(NULL);
    struct td_wall now = td_wall_now();
    assert_true(now.seconds >= before - 1 && now.seconds <= time(NULL) + 1);
    assert_true(now.nanoseconds < 1000000000);
}

static void rfc3339_in_utc(void **state)
{
    (void)state;
    static const struct {
        struct td_wall wall;
        const char *wanted;
    } cases[] = {
        {{0, 0}, "1970-01-01T00:00:00.000Z"},
        {{1767323045, 678999999}, "2026-01-02T03:04:05.678Z"},
        {{951782400, 1000000}, "2000-02-29T00:00:00.001Z"},
        {{4102444799, 999999999}, "2099-12-31T23:59:59.999Z"},
        {{-1, 0}, "1969-12-31T23:59:59.000Z"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[40];
        assert_int_equal(td_wall_rfc3339(cases[i].wall, out, sizeof out), 24);
        assert_string_equal(out, cases[i].wanted);
    }
}

static void nanoseconds_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        struct td_wall wall;
    } cases[] = {
        {0, {0, 0}},
        {999999999, {0, 999999999}},
        {1767323045678999999, {1767323045, 678999999}},
        {INT64_MAX, {9223372036, 854775807}},
        {-1, {0, 0}} /* before 1970 */,
        {INT64_MIN, {0, 0}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_wall wall = td_wall_of_ns(cases[i].ns);
        assert_int_equal(wall.seconds, cases[i].wall.seconds);
        assert_int_equal(wall.nanoseconds, cases[i].wall.nanoseconds);
    }
    struct timespec wait = td_clock_timespec(UINT64_C(12345678901));
    assert_true(wait.tv_sec == 12 && wait.tv_nsec == 345678901);
}

/* The seconds are those of `date -u -d TEXT +%s`; the examples are those of RFC 3339 section 5.8. */
static void rfc3339_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds;
    } cases[] = {
        {"1985-04-12T23:20:50.52Z", 482196050},
        {"1996-12-19T16:39:57-08:00", 851042397},
        {"1990-12-31T23:59:60Z", 662688000},
        {"1990-12-31T15:59:60-08:00", 662688000},
        {"1937-01-01T12:00:27.87+00:20", -1041337173},
        {"2000-02-29t00:00:00z", 951782400},
        {"1970-01-01T00:00:00Z", 0},
        {"9999-12-31T23:59:59Z", 253402300799},
        {"9999-12-31T23:59:59+00:01", 253402300739},
        {"0001-01-01T00:00:00Z", -62135596800},
        {"2016-12-31T23:59:60Z", 1483228800},
        {"2017-01-01T05:29:60+05:30", 1483228800},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t seconds = 7;
        CHECK(td_wall_read_rfc3339(td_text_of(cases[i].text), &seconds), "%s", cases[i].text);
        CHECK(seconds == cases[i].seconds, "%s: %lld", cases[i].text, (long long)seconds);
    }
}

/* shows: security.md token-bad-commands */
static void other_texts_are_no_times(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04Z",
        "2026-00-02T03:04:05Z",
        "2026-13-02T03:04:05Z",
        "2026-01-00T03:04:05Z",
        "2026-01-32T03:04:05Z",
        "2026-02-29T03:04:05Z",
        "2100-02-29T03:04:05Z",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:60:05Z",
        "2026-01-02T03:04:61Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05+1:00",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T03:04:05+01:60",
        "2026-01-02T03:04:05+0100",
        "2026-01-02T03:04:05Zx",
        "+2026-01-02T03:04:05Z",
        "20260102T030405Z",
        "-026-01-02T03:04:05Z",
        "2026-1-02T03:04:05Z",
        "9999-12-31T23:59:59-00:01", /* in the year 10000 */
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:60Z",
        "0000-12-31T23:59:59Z", /* in the year 0 */
        "0001-01-01T00:00:00+00:01",
        "2026-01-02T03:04:60Z", /* leap seconds are at 23:59:60 UTC */
        "2026-12-31T23:59:60-05:00",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        int64_t seconds = 7;
        CHECK(!td_wall_read_rfc3339(td_text_of(texts[i]), &seconds) && seconds == 7, "%s", texts[i]);
    }
    static const char whole[] = "2026-01-02T03:04:05.6+01:00";
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        int64_t seconds;
        CHECK(!td_wall_read_rfc3339(td_text_n(whole, len), &seconds), "%zu", len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monotonic_never_steps_back),  cmocka_unit_test(conditions_wait_by_the_monotonic_clock),
        cmocka_unit_test(wall_is_the_hosts),           cmocka_unit_test(rfc3339_in_utc),
        cmocka_unit_test(nanoseconds_are_taken_apart), cmocka_unit_test(rfc3339_is_read),
        cmocka_unit_test(other_texts_are_no_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
