#include "core/digits.h"

#include "tests/unit/unit.h"

enum { KEPT = 77 };

static void decimal_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max, value;
        bool ok, strict;
    } cases[] = {
        {"0", 0, 0, true, true},
        {"7", 9, 7, true, true},
        {"10", 10, 10, true, true},
        {"11", 10, KEPT, false, false},
        {"00", 0, 0, true, false},
        {"007", 7, 7, true, false},
        {"0000000000000000000000000000000000000000001", 1, 1, true, false},
        {"18446744073709551615", UINT64_MAX, UINT64_MAX, true, true},
        {"18446744073709551616", UINT64_MAX, KEPT, false, false},
        {"18446744073709551625", UINT64_MAX, KEPT, false, false},
        {"184467440737095516150", UINT64_MAX, KEPT, false, false},
        {"", 9, KEPT, false, false},
        {"-1", 9, KEPT, false, false},
        {"+1", 9, KEPT, false, false},
        {" 1", 9, KEPT, false, false},
        {"1 ", 9, KEPT, false, false},
        {"1.0", 99, KEPT, false, false},
        {"1e2", 999, KEPT, false, false},
        {"0x1", 9, KEPT, false, false},
        {"/", 99, KEPT, false, false},
        {":", 99, KEPT, false, false},
        {"1\xc2\xb2", 99, KEPT, false, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t len = strlen(cases[i].text);
        uint64_t value = KEPT;
        uint64_t strict = KEPT;
        CHECK(td_number_read(td_text_n(cases[i].text, len), cases[i].max, &value) == cases[i].ok, "%s", cases[i].text);
        CHECK(value == cases[i].value, "%s", cases[i].text);
        CHECK(td_number_read_strict(td_text_n(cases[i].text, len), cases[i].max, &strict) == cases[i].strict, "%s",
              cases[i].text);
        CHECK(strict == (cases[i].strict ? cases[i].value : KEPT), "%s", cases[i].text);
    }
    uint64_t value;
    assert_true(td_number_read(td_text_n("12x", 2), 99, &value) && value == 12); /* nothing past the length is read */
    assert_false(td_number_read(td_text_n(NULL, 0), 99, &value));
    assert_false(td_number_read(TD_TEXT("1\0"), 99, &value));
}

static void digits_at_the_beginning(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rest;
        size_t count;
        uint64_t value;
        bool fits;
    } cases[] = {
        {"12:34", ":34", 2, 12, true},
        {"007", "", 3, 7, true},
        {"", "", 0, 0, true},
        {"-1", "-1", 0, 0, true},
        {"18446744073709551615-", "-", 20, UINT64_MAX, true},
        {"18446744073709551616-", "-", 20, UINT64_MAX, false},
        {"184467440737095516150000x", "x", 24, UINT64_MAX, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text text = td_text_of(cases[i].text);
        uint64_t value = KEPT;
        bool fits = !cases[i].fits;
        CHECK(td_digits_take(&text, &value, &fits) == cases[i].count, "%s", cases[i].text);
        CHECK(value == cases[i].value && fits == cases[i].fits, "%s", cases[i].text);
        CHECK(td_text_equals(text, cases[i].rest), "%s", cases[i].text);
    }
}

static void hexadecimal_digits(void **state)
{
    (void)state;
    static const char digits[] = "0123456789abcdef";
    for (int c = -128; c < 128; c++) {
        const char *lower = c > 0 ? strchr(digits, c) : NULL;
        const char *upper = c >= 'A' && c <= 'F' ? strchr(digits, c + 'a' - 'A') : NULL;
        char text = (char)c;
        CHECK(td_hex_digit(text) == (lower != NULL   ? (int)(lower - digits)
                                     : upper != NULL ? (int)(upper - digits)
                                                     : -1),
              "%d", c);
        CHECK(td_hex_is_lower(td_text_n(&text, 1)) == (lower != NULL), "%d", c);
    }
    assert_true(td_hex_is_lower(td_text_n(digits, 16)) && td_hex_is_lower(TD_TEXT("")));
    assert_false(td_hex_is_lower(TD_TEXT("00g0")) || td_hex_is_lower(TD_TEXT("000A")) ||
                 td_hex_is_lower(TD_TEXT("00\0")));
}

static void hexadecimal_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
        bool ok;
    } cases[] = {
        {"0", 0, true},
        {"f", 15, true},
        {"00ff", 255, true},
        {"deadbeef", 0xdeadbeef, true},
        {"ffffffffffffffff", UINT64_MAX, true},
        {"00000000000000000", KEPT, false},
        {"", KEPT, false},
        {"FF", KEPT, false},
        {"0x1", KEPT, false},
        {"-1", KEPT, false},
        {"1 ", KEPT, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = KEPT;
        CHECK(td_hex_read(td_text_of(cases[i].text), &value) == cases[i].ok, "%s", cases[i].text);
        CHECK(value == cases[i].value, "%s", cases[i].text);
    }
}

static void bytes_in_hexadecimal(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x00, 0x01, 0x9a, 0xbc, 0xff};
    char text[11];
    td_hex_write(bytes, sizeof bytes, text);
    assert_string_equal(text, "00019abcff");
    td_hex_write(bytes, 0, text);
    assert_string_equal(text, "");
    uint8_t read[5] = {7, 7, 7, 7, 7};
    const char *const wrong[] = {"", "00019abcf", "00019abcff0", "00019Abcff", "00019abcfg"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        CHECK(!td_hex_read_bytes(td_text_of(wrong[i]), read, sizeof read) && read[0] == 7, "%s", wrong[i]);
    assert_true(td_hex_read_bytes(TD_TEXT("00019abcff"), read, sizeof read));
    assert_memory_equal(read, bytes, sizeof bytes);
    assert_true(td_hex_read_bytes(TD_TEXT(""), read, 0));
}

static void numbers_are_written(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        const char *text;
    } cases[] = {
        {0, "0"}, {9, "9"}, {10, "10"}, {4096, "4096"}, {100000, "100000"}, {UINT64_MAX, "18446744073709551615"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[TD_NUMBER_BYTES + 1] = "";
        size_t len = td_number_write(cases[i].number, text);
        CHECK(len == strlen(cases[i].text) && memcmp(text, cases[i].text, len) == 0 && text[len] == '\0', "%s",
              cases[i].text);
    }
}

static void numbers_are_written_in_hexadecimal(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        const char *text;
    } cases[] = {
        {0, "0"},
        {9, "9"},
        {10, "a"},
        {0xff, "ff"},
        {0x100, "100"},
        {UINT64_C(0xfedcba9876543210), "fedcba9876543210"},
        {1 << 28, "10000000"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[TD_HEX_NUMBER_BYTES + 1] = "";
        size_t len = td_hex_write_number(cases[i].number, text);
        CHECK(len == strlen(cases[i].text) && memcmp(text, cases[i].text, len) == 0 && text[len] == '\0', "%s",
              cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_in_hexadecimal),
        cmocka_unit_test(numbers_are_written),
        cmocka_unit_test(decimal_numbers),
        cmocka_unit_test(digits_at_the_beginning),
        cmocka_unit_test(hexadecimal_digits),
        cmocka_unit_test(hexadecimal_numbers),
        cmocka_unit_test(bytes_in_hexadecimal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
