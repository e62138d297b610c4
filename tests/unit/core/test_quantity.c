#include "core/quantity.h"

#include "tests/unit/unit.h"

#include <inttypes.h>

enum { KEPT = 77 };
#define S UINT64_C(1000000000)

static void times_have_units_or_are_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns; /* KEPT: refused */
    } cases[] = {
        {"0", 0},
        {"0s", 0},
        {"0d", 0},
        {"1", S},
        {"90", 90 * S},
        {"90s", 90 * S},
        {"3m", 180 * S},
        {"2h", 7200 * S},
        {"7d", 604800 * S},
        {"604800s", 604800 * S},
        {"168h", 604800 * S},
        {"0.5", S / 2},
        {".5", S / 2},
        {"1.", S},
        {"1.s", S},
        {"500ms", S / 2},
        {"1.5ms", 1500000},
        {"1.5h", 5400 * S},
        {"0.25d", 21600 * S},
        {"0.000000001", 1},
        {"0.0000005ms", 0},
        {"007s", 7 * S},
        {"8d", KEPT},
        {"604801s", KEPT},
        {"604800.1", KEPT},
        {"", KEPT},
        {"s", KEPT},
        {".", KEPT},
        {".s", KEPT},
        {"7w", KEPT},
        {"7 d", KEPT},
        {" 7", KEPT},
        {"-1d", KEPT},
        {"+1", KEPT},
        {"1D", KEPT},
        {"1S", KEPT},
        {"1dd", KEPT},
        {"1min", KEPT},
        {"1us", KEPT},
        {"1,5", KEPT},
        {"1e3", KEPT},
        {"0x1", KEPT},
        {"1.5.5", KEPT},
        {"nan", KEPT},
        {"inf", KEPT},
        {"1G", KEPT},
        {"0.0000000001", KEPT},
        {"213503982334602d", KEPT},
        {"18446744073709551617s", KEPT},
        {"18446744073.709551616", KEPT},
        {"99999999999999999999", KEPT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t ns = KEPT;
        bool ok = td_duration_read(td_text_of(cases[i].text), 604800 * S, &ns);
        CHECK(ok == (cases[i].ns != KEPT) && ns == cases[i].ns, "%s: %" PRIu64, cases[i].text, ns);
    }
    uint64_t ns = 0;
    assert_true(td_duration_read(td_text_of("18446744073.709551615"), UINT64_MAX, &ns) && ns == UINT64_MAX);
    assert_false(td_duration_read(td_text_of("18446744073.709551616"), UINT64_MAX, &ns));
    assert_false(td_duration_read(td_text_of("213504d"), UINT64_MAX, &ns));
}

static void whole_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t seconds; /* KEPT: refused */
    } cases[] = {{"1", 1},    {"1s", 1},     {"1000ms", 1},  {"0.5m", 30}, {"7d", 604800},
                 {"0", KEPT}, {"0.5", KEPT}, {"1.5s", KEPT}, {"8d", KEPT}, {"604801", KEPT}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t seconds = KEPT;
        bool ok = td_duration_read_s(td_text_of(cases[i].text), 1, 604800, &seconds);
        CHECK(ok == (cases[i].seconds != KEPT) && seconds == cases[i].seconds, "%s: %" PRIu64, cases[i].text, seconds);
    }
    uint64_t seconds = KEPT;
    assert_true(td_duration_read_s(td_text_of("0"), 0, 9, &seconds) && seconds == 0);
}

/* The suffixes are those of GNU coreutils ("Block size"), and Ki, Mi ... of Kubernetes. */
static void sizes_have_suffixes_or_are_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes; /* KEPT: refused */
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"1K", 1024},
        {"1k", 1024},
        {"1Ki", 1024},
        {"1KiB", 1024},
        {"1kib", 1024},
        {"1kB", 1000},
        {"1KB", 1000},
        {"64M", 67108864},
        {"4G", 4294967296},
        {"4g", 4294967296},
        {"4GiB", 4294967296},
        {"4GB", 4000000000},
        {"1T", 1099511627776},
        {"1TB", 1000000000000},
        {"0T", 0},
        {"1025G", KEPT},
        {"2T", KEPT},
        {"1099511627777", KEPT},
        {"", KEPT},
        {"G", KEPT},
        {"1 G", KEPT},
        {"1.5G", KEPT},
        {"-1", KEPT},
        {"+1", KEPT},
        {"1B", KEPT},
        {"1P", KEPT},
        {"1GG", KEPT},
        {"1Gb/s", KEPT},
        {"1iB", KEPT},
        {"1s", KEPT},
        {"1e9", KEPT},
        {"0x10", KEPT},
        {"18446744073709551616", KEPT},
        {"18014398509481984K", KEPT},
        {"16777216T", KEPT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t bytes = KEPT;
        bool ok = td_size_read(td_text_of(cases[i].text), UINT64_C(1) << 40, &bytes);
        CHECK(ok == (cases[i].bytes != KEPT) && bytes == cases[i].bytes, "%s: %" PRIu64, cases[i].text, bytes);
    }
    uint64_t bytes = 0;
    static const char with_nul[] = {'1', '\0'};
    assert_true(td_size_read(td_text_of("18446744073709551615"), UINT64_MAX, &bytes) && bytes == UINT64_MAX);
    assert_false(td_size_read(td_text_of("18014398509481984K"), UINT64_MAX, &bytes));
    assert_false(td_size_read(td_text_n(with_nul, sizeof with_nul), UINT64_MAX, &bytes));
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const struct {
        uint64_t value;
        const char *time, *size;
    } cases[] = {
        {0, "0s", "0"},
        {1, "0.000000001", "1"},
        {1024, "0.000001024", "1K"},
        {1500000, "0.0015", "1500000"},
        {S / 2, "500ms", "500000000"},
        {S, "1s", "1000000000"},
        {90 * S, "90s", "87890625K"},
        {3600 * S, "1h", "3515625000K"},
        {86400 * S, "1d", "84375000000K"},
        {UINT64_C(4) << 30, "4.294967296", "4G"},
        {UINT64_C(4) << 40, "4398.046511104", "4T"},
        {UINT64_C(1) << 50, "1125899.906842624", "1024T"},
        {UINT64_MAX, "18446744073.709551615", "18446744073709551615"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[TD_QUANTITY_BYTES];
        uint64_t value = KEPT;
        td_duration_write(cases[i].value, text);
        CHECK(strcmp(text, cases[i].time) == 0, "%s", text);
        CHECK(td_duration_read(td_text_of(text), UINT64_MAX, &value) && value == cases[i].value, "%s", text);
        td_size_write(cases[i].value, text);
        CHECK(strcmp(text, cases[i].size) == 0, "%s", text);
        CHECK(td_size_read(td_text_of(text), UINT64_MAX, &value) && value == cases[i].value, "%s", text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_have_units_or_are_seconds),
        cmocka_unit_test(whole_seconds),
        cmocka_unit_test(sizes_have_suffixes_or_are_bytes),
        cmocka_unit_test(what_is_written_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
