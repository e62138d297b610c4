#include "tests/unit/unit.h"

#include <errno.h>

static void starts_empty(void **state)
{
    (void)state;
    struct td_error err;
    memset(&err, 0xAB, sizeof err);
    td_error_init(&err);
    assert_int_equal(err.code, TD_OK);
    assert_int_equal(err.sys, 0);
    assert_true(err.pos == TD_ERROR_POS_NONE);
    assert_string_equal(err.message, "");
}

static void first_failure_wins(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_error_at(&err, TD_NOT_FOUND, 42, "no tensor \"%s\"", "a"));
    assert_false(td_error_set(&err, TD_INTERNAL, "later"));
    assert_false(td_error_at(&err, TD_INTERNAL, 43, "later"));
    assert_false(td_error_sys(&err, TD_IO, EIO, "later"));
    assert_false(td_error_no_memory(&err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    assert_int_equal(err.sys, 0);
    assert_true(err.pos == 42);
    assert_string_equal(err.message, "no tensor \"a\"");
}

static void null_is_allowed(void **state)
{
    (void)state;
    assert_false(td_error_set(NULL, TD_INTERNAL, "x"));
    assert_false(td_error_at(NULL, TD_INTERNAL, 1, "x"));
    assert_false(td_error_sys(NULL, TD_IO, EIO, "x"));
    assert_false(td_error_no_memory(NULL));
}

static void sys_appends_the_hosts_words(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_error_sys(&err, TD_NOT_FOUND, ENOENT, "open \"%s\"", "x"));
    assert_int_equal(err.sys, ENOENT);
    assert_true(err.pos == TD_ERROR_POS_NONE);
    assert_string_equal(err.message, "open \"x\": No such file or directory");
}

static void out_of_memory_has_a_code(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_error_no_memory(&err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_error(&err, 0, false, "no memory");
}

/* A file's name must not be able to forge a log line or speak to a terminal. */
static void control_bytes_are_escaped(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_set(&err, TD_INTERNAL, "%s",
                       "a\nb\x1b[31m\x7f\xc2\x9b"
                       "1m\xff\xc3\xa9");
    assert_string_equal(err.message, "a\\x0ab\\x1b[31m\\x7f\\xc2\\x9b1m\\xff\xc3\xa9");
}

static void long_messages_are_cut_to_utf8(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80", "\x01", "\xff"};
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        for (size_t shift = 0; shift < 5; shift++) {
            char text[4096] = "";
            for (size_t n = 0; n < shift; n++)
                strcat(text, "x");
            while (strlen(text) + 8 < sizeof text)
                strcat(text, units[i]);
            struct td_error err = TD_ERROR_INIT;
            (void)td_error_sys(&err, TD_INTERNAL, ENOENT, "%s", text);
            check_error(&err, 0, false, units[i]);
            assert_true(strlen(err.message) > TD_ERROR_MESSAGE_BYTES - 12);
            assert_string_equal(err.message + strlen(err.message) - 3, "...");
        }
    }
}

/* Only what does not fit is cut. */
static void messages_that_fit_have_no_dots(void **state)
{
    (void)state;
    char text[TD_ERROR_MESSAGE_BYTES + 1];
    for (size_t len = TD_ERROR_MESSAGE_BYTES - 2; len <= TD_ERROR_MESSAGE_BYTES; len++) {
        struct td_error err = TD_ERROR_INIT;
        memset(text, 'x', len);
        text[len] = '\0';
        (void)td_error_set(&err, TD_INTERNAL, "%s", text);
        bool fits = len < TD_ERROR_MESSAGE_BYTES;
        CHECK((strcmp(err.message, text) == 0) == fits, "%zu bytes", len);
        CHECK((strstr(err.message, "x...") == NULL) == fits, "%zu bytes", len);
    }
    struct td_error err = TD_ERROR_INIT; /* the text of the system counts, too */
    text[TD_ERROR_MESSAGE_BYTES - 10] = '\0';
    (void)td_error_sys(&err, TD_IO, EIO, "%s", text);
    assert_string_equal(err.message + strlen(err.message) - 3, "...");
}

static void a_path_is_named_it(void **state)
{
    (void)state;
    static const struct {
        const char *path, *message, *wanted;
    } cases[] = {
        {"a/b", "cannot open \"a/b\": Permission denied", "cannot open it: Permission denied"},
        {"a\nb", "\"a\nb\" does not exist", "it does not exist"},
        {"a", "no tensor \"a/b\"", "no tensor \"a/b\""},
        {"x", "\"x\"", "it"},
        {"", "out of memory", "out of memory"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        (void)td_error_set(&err, TD_NOT_FOUND, "%s", cases[i].message);
        td_error_name_it(&err, cases[i].path);
        assert_string_equal(err.message, cases[i].wanted);
    }
    char path[2 * TD_ERROR_MESSAGE_BYTES];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_set(&err, TD_NOT_FOUND, "cannot open \"%s\"", path);
    struct td_error before = err;
    td_error_name_it(&err, path); /* the message was cut */
    assert_string_equal(err.message, before.message);
    td_error_name_it(NULL, "x");
}

static void a_text_has_the_position(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    char text[TD_ERROR_TEXT_BYTES];
    (void)td_error_set(&err, TD_IO, "cut off");
    assert_string_equal(td_error_text(&err, text), "cut off");
    td_error_init(&err);
    (void)td_error_at(&err, TD_IO, UINT64_MAX - 1, "cut off");
    assert_ptr_equal(td_error_text(&err, text), text);
    assert_string_equal(text, "cut off (at byte 18446744073709551614)");
    memset(err.message, 'x', sizeof err.message - 1); /* the longest message */
    assert_int_equal(strlen(td_error_text(&err, text)),
                     sizeof err.message - 1 + strlen(" (at byte 18446744073709551614)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_empty),
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(null_is_allowed),
        cmocka_unit_test(sys_appends_the_hosts_words),
        cmocka_unit_test(out_of_memory_has_a_code),
        cmocka_unit_test(control_bytes_are_escaped),
        cmocka_unit_test(long_messages_are_cut_to_utf8),
        cmocka_unit_test(messages_that_fit_have_no_dots),
        cmocka_unit_test(a_path_is_named_it),
        cmocka_unit_test(a_text_has_the_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
