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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_time_level_and_text),
        cmocka_unit_test(level_drops_what_is_above),
        cmocka_unit_test(hostile_names_forge_no_line),
        cmocka_unit_test(long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
