/* Numbers for people: those of printf, whose digits the tests group by hand. */
#include "api/html/shown.h"
#include "tests/unit/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 64 };

/* Calls `shown` with the number, and checks the text. */
static void check(void (*shown)(struct td_buffer *out, uint64_t number), uint64_t number, const char *want)
{
    struct td_buffer out;
    td_buffer_init(&out);
    shown(&out, number);
    assert_non_null(td_buffer_terminate(&out));
    assert_string_equal(out.data, want);
    td_buffer_fini(&out);
}

static void numbers_have_groups_of_three_digits(void **state)
{
    (void)state;
    check(td_shown_number, 0, "0");
    check(td_shown_number, 12, "12");
    check(td_shown_number, 999, "999");
    check(td_shown_number, 1000, "1,000");
    check(td_shown_number, 45678, "45,678");
    check(td_shown_number, 123456, "123,456");
    check(td_shown_number, 1048576, "1,048,576");
    check(td_shown_number, UINT64_MAX, "18,446,744,073,709,551,615");
}

/* Checks a size against printf. A long double holds each number of bytes, and its quotient, exactly. */
static void check_bytes(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char want[TEXT_BYTES];
    (void)snprintf(want, sizeof want, "%" PRIu64 " B", bytes);
    for (int unit = 0; bytes >= 1024 && unit < 6; unit++) {
        const long double one = (long double)(UINT64_C(1) << (10 * (unit + 1)));
        (void)snprintf(want, sizeof want, "%.1Lf %s", (long double)bytes / one, units[unit]);
        if ((long double)bytes / one < 1024 && strncmp(want, "1024.0 ", 7) != 0)
            break;
    }
    check(td_shown_bytes, bytes, want);
}

static void sizes_are_rounded_as_by_printf(void **state)
{
    (void)state;
    check(td_shown_bytes, 0, "0 B");
    check(td_shown_bytes, 1023, "1023 B");
    check(td_shown_bytes, 1024, "1.0 KiB");
    check(td_shown_bytes, 1280, "1.2 KiB"); /* 1.25 */
    check(td_shown_bytes, 1792, "1.8 KiB"); /* 1.75 */
    check(td_shown_bytes, 1048524, "1023.9 KiB");
    check(td_shown_bytes, 1048525, "1.0 MiB");
    check(td_shown_bytes, UINT64_MAX, "16.0 EiB");
    for (unsigned shift = 0; shift < 64; shift++)
        for (uint64_t i = 0; i <= 4096; i++) {
            const uint64_t bytes = (UINT64_C(1) << shift) + (i << (shift > 11 ? shift - 11 : 0)) - i % 3;
            check_bytes(bytes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_groups_of_three_digits),
        cmocka_unit_test(sizes_are_rounded_as_by_printf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
