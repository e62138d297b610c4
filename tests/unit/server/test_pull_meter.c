#include "server/cmd/shared/progress.h"

#include "tests/unit/unit.h"

static const uint64_t S = 1000000000;
static const uint64_t M = 1 << 20;

static void the_line_tells_rate_and_time_left(void **state)
{
    (void)state;
    struct td_meter meter = {0};
    char text[120];
    td_meter_write(&meter, 5 * S, 0, 100 * M, true, text, sizeof text);
    assert_string_equal(text, "[>                   ]   0%, 0 B of 100.00 MiB");
    td_meter_write(&meter, 6 * S, 10 * M, 100 * M, true, text, sizeof text);
    assert_string_equal(text, "[==>                 ]  10%, 10.00 MiB of 100.00 MiB, 10.00 MiB/s, 9 s left");
    td_meter_write(&meter, 7 * S, 100 * M, 100 * M, true, text, sizeof text);
    assert_string_equal(text, "[====================] 100%, 100.00 MiB of 100.00 MiB, 50.00 MiB/s, 0 s left");
}

/* The rate is that of the last points, not of the whole time. */
static void the_rate_is_the_latest(void **state)
{
    (void)state;
    struct td_meter meter = {0};
    char text[120];
    for (uint64_t i = 0; i < 100; i++)
        td_meter_write(&meter, i * S, i * M, 1000 * M, true, text, sizeof text);
    for (uint64_t i = 0; i < 100; i++)
        td_meter_write(&meter, (100 + i) * S, (100 + 4 * i) * M, 1000 * M, true, text, sizeof text);
    assert_non_null(strstr(text, ", 4.00 MiB/s, 2 min left"));
}

static void odd_numbers(void **state)
{
    (void)state;
    struct td_meter meter = {0};
    char text[120];
    td_meter_write(&meter, 0, 0, 0, true, text, sizeof text);
    assert_non_null(strstr(text, "100%"));
    td_meter_write(&meter, S, 5 * M, M, true, text, sizeof text); /* more than there should be */
    assert_non_null(strstr(text, "[====================] 100%"));
    td_meter_write(&meter, 2 * S, 0, UINT64_MAX, true, text, sizeof text); /* all was thrown away */
    assert_non_null(strstr(text, "0 B/s"));
    td_meter_write(&meter, 1000 * S, M, UINT64_MAX, true, text, sizeof text);
    assert_non_null(strstr(text, "100 h left"));
}

/* A terminal's line says for how long no bytes have come, from 3 s on, until some come. */
static void silence_is_told(void **state)
{
    (void)state;
    struct td_meter meter = {0};
    char text[120];
    for (uint64_t i = 0; i < 3; i++) {
        td_meter_write(&meter, (10 + i) * S, 5 * M, 10 * M, true, text, sizeof text);
        CHECK(strstr(text, "no bytes") == NULL, "%s", text);
    }
    td_meter_write(&meter, 13 * S, 5 * M, 10 * M, true, text, sizeof text);
    assert_string_equal(text, "[==========>         ]  50%, 5.00 MiB of 10.00 MiB, no bytes for 3 s");
    td_meter_write(&meter, 73 * S + S / 2, 5 * M, 10 * M, true, text, sizeof text);
    assert_non_null(strstr(text, ", no bytes for 63 s"));
    td_meter_write(&meter, 74 * S, 6 * M, 10 * M, true, text, sizeof text);
    assert_non_null(strstr(text, "/s, "));
    td_meter_write(&meter, 76 * S, 6 * M, 10 * M, true, text, sizeof text);
    assert_null(strstr(text, "no bytes"));
}

/* While existing files are being checked, the pull does not wait for bytes. */
static void only_who_waits_for_bytes_is_told(void **state)
{
    (void)state;
    struct td_meter meter = {0};
    char text[120];
    for (uint64_t i = 0; i < 20; i++) {
        td_meter_write(&meter, (10 + i) * S, 5 * M, 10 * M, false, text, sizeof text);
        assert_null(strstr(text, "no bytes"));
    }
    td_meter_write(&meter, 31 * S, 5 * M, 10 * M, true, text, sizeof text);
    assert_null(strstr(text, "no bytes"));
    td_meter_write(&meter, 32 * S, 5 * M, 10 * M, true, text, sizeof text);
    assert_non_null(strstr(text, "no bytes for 3 s"));
}

static void a_log_is_told_once_of_each_silence(void **state)
{
    (void)state;
    struct td_meter meter = {.is_log = true};
    char text[120];
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t now = (100 + 20 * i) * S;
        td_meter_write(&meter, now, (1 + i) * M, 10 * M, true, text, sizeof text);
        assert_non_null(strstr(text, " of 10.00 MiB"));
        assert_null(strstr(text, "no bytes"));
        td_meter_write(&meter, now + 5 * S, (1 + i) * M, 10 * M, true, text, sizeof text);
        assert_non_null(strstr(text, "no bytes for 5 s"));
        td_meter_write(&meter, now + 10 * S, (1 + i) * M, 10 * M, true, text, sizeof text);
        assert_string_equal(text, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_tells_rate_and_time_left),
        cmocka_unit_test(the_rate_is_the_latest),
        cmocka_unit_test(odd_numbers),
        cmocka_unit_test(silence_is_told),
        cmocka_unit_test(only_who_waits_for_bytes_is_told),
        cmocka_unit_test(a_log_is_told_once_of_each_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
