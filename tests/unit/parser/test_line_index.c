/* Rows of text files: beside an oracle that is written the other way round, with hand-made texts, in parts of any
 * size, with failing allocations and files that change. */
#include "tests/fuzz/line_oracle.h"
#include "tests/unit/alloc_trials.h"

#include <stdlib.h>
#include <string.h>

/* Makes the index of a text that comes in parts of `part` bytes. */
static struct td_line_index index_of(const char *text, size_t len, size_t part)
{
    struct td_line_indexer indexer = {0};
    struct td_line_index index;
    struct td_error err = TD_ERROR_INIT;
    for (size_t at = 0; at < len; at += part) {
        size_t bytes = len - at < part ? len - at : part;
        assert_true(td_line_indexer_add(&indexer, (const uint8_t *)text + at, bytes, &err));
        assert_int_equal(indexer.index.size_bytes, at + bytes);
    }
    assert_true(td_line_indexer_finish(&indexer, &index, &err));
    assert_int_equal(index.size_bytes, len);
    return index;
}

static void check_rows(const struct td_line_index *index, const char *text, size_t len, uint64_t first, size_t count,
                       const struct td_row *expected)
{
    struct td_input input = td_input_memory(text, len);
    struct td_error err = TD_ERROR_INIT;
    struct td_row *rows = calloc(count + 1, sizeof *rows);
    bool ok = td_line_index_find(index, &input, first, count, rows, &err);
    CHECK(ok, "%s", err.message);
    for (size_t i = 0; i < count; i++)
        CHECK(rows[i].offset == expected[i].offset && rows[i].bytes == expected[i].bytes, "row %d: %d+%d, not %d+%d",
              (int)(first + i), (int)rows[i].offset, (int)rows[i].bytes, (int)expected[i].offset,
              (int)expected[i].bytes);
    assert_true(rows[count].offset == 0 && rows[count].bytes == 0);
    free(rows);
}

static void check_text(const char *text, size_t len)
{
    struct td_row *expected = calloc(len + 1, sizeof *expected);
    size_t count = line_oracle(text, len, expected);
    for (size_t part = 1; part <= len + 1; part += part < 8 ? 1 : len) {
        struct td_line_index index = index_of(text, len, part);
        CHECK(index.row_count == count, "%d rows, not %d", (int)index.row_count, (int)count);
        check_rows(&index, text, len, 0, count, expected);
        for (size_t i = 0; i < count; i++)
            check_rows(&index, text, len, i, 1, expected + i);
        check_rows(&index, text, len, count, 0, expected);
        td_line_index_fini(&index);
    }
    free(expected);
}

static void lines_are_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t rows;
    } cases[] = {
        {"", 0},
        {"\n", 0},
        {"\r\n \t\n\v\f\n\n", 0},
        {"a", 1},
        {"a\n", 1},
        {"a\r\nb\r\n", 2},
        {"{\"a\": 1}\n\n\r\n  \n{\"b\": 2}", 2},
        {"a\rb\nc", 2}, /* a CR within a line is text */
        {"a\r", 1},     /* and so is one that no LF follows */
        {"a\r\r\n", 1}, /* one CR belongs to the line end */
        {" \r", 0},
        {"\xef\xbb\xbf{}\n{}", 2}, /* a byte order mark */
        {"\xef\xbb\xbf\n", 0},
        {"\xef\xbb\n", 1}, /* what only begins as one */
        {"\xef\xbb", 1},
        {"\xef\xbb\xbf", 0},
        {"\xef\xbb\xbf\xef\xbb\xbf", 1},
        {"\xefx\n", 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_line_index index = index_of(cases[i].text, strlen(cases[i].text), 1);
        CHECK(index.row_count == cases[i].rows, "case %d: %d rows", (int)i, (int)index.row_count);
        td_line_index_fini(&index);
        check_text(cases[i].text, strlen(cases[i].text));
    }
    check_text("a\0b\n\0\n", 6); /* NUL is text */
}

static void random_texts(void **state)
{
    (void)state;
    static const char letters[] = "ab\n\n\r \t\xef\xbb\xbf";
    uint64_t random = 16;
    for (int round = 0; round < 3000; round++) {
        char text[64];
        size_t len = random_below(&random, sizeof text);
        for (size_t i = 0; i < len; i++)
            text[i] = letters[random_below(&random, sizeof letters - 1)];
        check_text(text, len);
    }
}

/* Writes `count` rows of about `bytes` to new memory. */
static char *make_text(size_t count, size_t bytes, size_t *len)
{
    char *text = malloc(count * (bytes + 24)), *at = text;
    for (size_t i = 0; i < count; i++) {
        at += sprintf(at, "%s%zu ", i % 7 == 3 ? "  \r\n" : "", i);
        memset(at, 'x', bytes);
        at += bytes;
        at += sprintf(at, i % 2 == 0 ? "\n" : "\r\n");
    }
    *len = (size_t)(at - text);
    return text;
}

/* Checks that each kept place is that of its row, and that it is less than TD_LINE_STEP_BYTES after every row that is
 * found from it, unless that is its neighbour. */
static void check_kept(const struct td_line_index *index, const struct td_row *expected, size_t rows)
{
    size_t kept = 0, extra = 0;
    for (size_t row = 0; row < rows; row++) {
        bool is_extra = extra < index->extra_count && index->extras[extra].row == row;
        if (row % TD_LINE_STEP_ROWS == 0)
            assert_int_equal(index->steps[row / TD_LINE_STEP_ROWS], expected[row].offset);
        if (is_extra)
            assert_int_equal(index->extras[extra++].offset, expected[row].offset);
        if (row % TD_LINE_STEP_ROWS == 0 || is_extra)
            kept = row;
        else
            assert_true(expected[row].offset - expected[kept].offset < TD_LINE_STEP_BYTES);
    }
    assert_int_equal(extra, index->extra_count);
}

/* A row is found by a scan of less than TD_LINE_STEP_BYTES and one row, and an index takes 8 bytes for 16 short rows.
 */
static void steps_are_near_and_few(void **state)
{
    (void)state;
    static const struct {
        size_t rows, bytes;
    } cases[] = {{20000, 10}, {5000, 1000}, {300, 20000}, {12, 300000}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t len, rows = cases[i].rows;
        char *text = make_text(rows, cases[i].bytes, &len);
        struct td_row *expected = calloc(len + 1, sizeof *expected);
        assert_int_equal(line_oracle(text, len, expected), rows);
        struct td_line_index index = index_of(text, len, 65536);
        assert_int_equal(index.row_count, rows);
        assert_int_equal(index.step_count, (rows + TD_LINE_STEP_ROWS - 1) / TD_LINE_STEP_ROWS);
        assert_true(index.extra_count <= len / TD_LINE_STEP_BYTES);
        check_kept(&index, expected, rows);
        for (size_t row = 0; row < rows; row += rows / 12)
            check_rows(&index, text, len, row, rows - row < 200 ? rows - row : 200, expected + row);
        td_line_index_fini(&index);
        free(expected);
        free(text);
    }
}

static void fails(const struct td_line_index *index, const char *text, uint64_t first, size_t count, enum td_code code)
{
    struct td_input input = td_input_memory(text, strlen(text));
    struct td_row rows[4];
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_line_index_find(index, &input, first, count, rows, &err));
    CHECK(err.code == code, "%d %s", (int)err.code, err.message);
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    struct td_line_index index = index_of("a\nb\nc\n", 6, 6);
    fails(&index, "a\nb\nc\n", 3, 1, TD_INVALID_ARGUMENT);
    fails(&index, "a\nb\nc\n", 1, 3, TD_INVALID_ARGUMENT);
    fails(&index, "a\nb\nc\n", UINT64_MAX, 2, TD_INVALID_ARGUMENT);
    fails(&index, "a\nb\nc\nd", 0, 1, TD_UNAVAILABLE);
    fails(&index, "a\nb\n \n", 2, 1, TD_UNAVAILABLE); /* the file has changed */
    td_line_index_fini(&index);
    struct td_line_index none = {0};
    fails(&none, "", 0, 1, TD_INVALID_ARGUMENT);
    td_line_index_fini(&none);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t len;
    char *text = make_text(1000, 20, &len);
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_line_indexer indexer = {0};
        struct td_line_index index = {0};
        struct td_error err = TD_ERROR_INIT;
        struct td_row row;
        struct td_input input = td_input_memory(text, len);
        bool ok = td_line_indexer_add(&indexer, (const uint8_t *)text, len, &err) &&
                  td_line_indexer_finish(&indexer, &index, &err) &&
                  td_line_index_find(&index, &input, 999, 1, &row, &err);
        alloc_tried(&trials, ok, &err);
        td_line_index_fini(&indexer.index);
        td_line_index_fini(&index);
    }
    assert_true(trials.k > 3);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_rows),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(steps_are_near_and_few),
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
