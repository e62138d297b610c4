#include "core/log.h"
#include "tests/unit/unit.h"

#include <unistd.h>

/* Writes to `out` what `write_lines` logs to standard error. */
static void capture(void (*write_lines)(void), char *out, size_t capacity)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    write_lines();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    (void)close(ends[1]);
    size_t used = 0;
    ssize_t n;
    while (used + 1 < capacity && (n = read(ends[0], out + used, capacity - 1 - used)) > 0)
        used += (size_t)n;
    out[used] = '\0';
    (void)close(ends[0]);
}

static void one_of_each(void)
{
    td_log(TD_LOG_ERROR, "e %d", 1);
    td_log(TD_LOG_WARN, "w");
    td_log(TD_LOG_INFO, "i");
    td_log(TD_LOG_DEBUG, "d");
}

static void hostile(void)
{
    td_log(TD_LOG_WARN, "%s", "name\n2026-01-01T00:00:00.000Z error forged\x1b[2J\xff");
}

static void endless(void)
{
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    td_log(TD_LOG_WARN, "%s", text);
    memset(text, '\n', sizeof text - 1);
    td_log(TD_LOG_WARN, "%s", text);
}

static void lines_have_time_level_and_text(void **state)
{
    (void)state;
    char out[4096];
    capture(one_of_each, out, sizeof out); /* the initial level is info */
    static const char *const wanted[] = {"error e 1", "warn  w", "info  i"};
    char *line = out;
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        assert_int_equal(line[4], '-');
        assert_int_equal(line[10], 'T');
        assert_int_equal(line[23], 'Z');
        assert_string_equal(line + 25, wanted[i]);
        line = end + 1;
    }
    assert_string_equal(line, "");
}

static void level_drops_what_is_above(void **state)
{
    (void)state;
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        enum td_log_level level;
        char out[4096];
        assert_true(td_log_parse_level(names[i], &level));
        td_log_set_level(level);
        capture(one_of_each, out, sizeof out);
        size_t lines = 0;
        for (const char *p = out; (p = strchr(p, '\n')) != NULL; p++)
            lines++;
        assert_int_equal(lines, i + 1);
    }
    td_log_set_level(TD_LOG_INFO);
    enum td_log_level level;
    assert_false(td_log_parse_level("", &level));
    assert_false(td_log_parse_level("INFO", &level));
    assert_false(td_log_parse_level("trace", &level));
}

/* shows: security.md file-odd-names */
static void hostile_names_forge_no_line(void **state)
{
    (void)state;
    char out[4096];
    capture(hostile, out, sizeof out);
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    assert_null(strchr(out, '\x1b'));
    assert_true(td_utf8_valid(out, strlen(out)));
    assert_non_null(strstr(out, "name\\x0a2026"));
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    char out[8192];
    capture(endless, out, sizeof out);
    char *first = strchr(out, '\n');
    assert_non_null(first);
    assert_true(first - out > 900 && first - out < 1200);
    assert_ptr_equal(strchr(first + 1, '\n'), out + strlen(out) - 1);
    assert_true(strlen(first + 1) < 1200);
}

static void quoted(void)
{
    td_log(TD_LOG_WARN, "a \"b\" \\ \xff\n\xe2\x80\xa8");
}

/* The escapes are those of RFC 8259 section 7, over the text that the other form shows. */
static void a_line_of_json_is_an_object(void **state)
{
    (void)state;
    char out[16384];
    td_log_set_form(TD_LOG_JSON);
    capture(one_of_each, out, sizeof out);
    static const char *const wanted[] = {"\"level\":\"error\",\"message\":\"e 1\"}",
                                         "\"level\":\"warn\",\"message\":\"w\"}",
                                         "\"level\":\"info\",\"message\":\"i\"}"};
    char *line = out;
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        assert_true(strncmp(line, "{\"time\":\"2", 10) == 0 && strncmp(line + 32, "Z\",", 3) == 0);
        assert_string_equal(line + 35, wanted[i]);
        line = end + 1;
    }
    assert_string_equal(line, "");
    capture(quoted, out, sizeof out);
    assert_string_equal(out + 35,
                        "\"level\":\"warn\",\"message\":\"a \\\"b\\\" \\\\ \\\\xff\\\\x0a\\\\xe2\\\\x80\\\\xa8\"}\n");
    capture(endless, out, sizeof out);
    char *first = strchr(out, '\n');
    assert_non_null(first);
    assert_true(first - out > 900 && first - out < 2400);
    assert_true(strlen(first + 1) > 900 && strlen(first + 1) <= 2400);
    assert_string_equal(out + strlen(out) - 3, "\"}\n");
    td_log_set_form(TD_LOG_TEXT);
}

static void forms_have_names(void **state)
{
    (void)state;
    enum td_log_form form;
    assert_true(td_log_parse_form("json", &form) && form == TD_LOG_JSON);
    assert_true(td_log_parse_form("text", &form) && form == TD_LOG_TEXT);
    assert_false(td_log_parse_form("", &form) || td_log_parse_form("JSON", &form) || td_log_parse_form("xml", &form));
    assert_int_equal(td_log_get_form(), TD_LOG_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_time_level_and_text), cmocka_unit_test(level_drops_what_is_above),
        cmocka_unit_test(hostile_names_forge_no_line),    cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(a_line_of_json_is_an_object),    cmocka_unit_test(forms_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
