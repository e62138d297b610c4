/* Rows of CSV: beside an oracle that goes field by field, beside Python's csv module, in parts of any size. */
#include "parser/rows/text_rows.h"

#include "parser/rows/index/line_index.h"
#include "tests/fuzz/csv_oracle.h"
#include "tests/unit/parser/row_fixture.h"

/* Counts the bytes that memchr looks at. */
static uint64_t looked_at;

void *__wrap_memchr(const void *bytes, int byte, size_t len);
void *__real_memchr(const void *bytes, int byte, size_t len);

void *__wrap_memchr(const void *bytes, int byte, size_t len)
{
    void *found = __real_memchr(bytes, byte, len);
    looked_at += found == NULL ? len : (size_t)((const char *)found - (const char *)bytes) + 1;
    return found;
}

static struct row_case csv_case(const char *text, size_t len, char delimiter)
{
    return (struct row_case){
        .format = &td_row_format_csv, .name = delimiter == '\t' ? "a.tsv" : "a.csv", .bytes = text, .len = len};
}

static void check_rows(const struct td_row *rows, const struct td_row *expected, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        CHECK(rows[i].offset == expected[i].offset && rows[i].bytes == expected[i].bytes,
              "row %d of %s: %d+%d, not %d+%d", (int)i, text, (int)rows[i].offset, (int)rows[i].bytes,
              (int)expected[i].offset, (int)expected[i].bytes);
}

/* Makes an index of a text that comes in parts, and compares it and each of its rows with the oracle. */
static void check_text(const char *text, size_t len, char delimiter)
{
    struct td_row *expected = calloc(len + 1, sizeof *expected), *rows = calloc(len + 1, sizeof *rows);
    size_t count = csv_oracle(text, len, delimiter, expected);
    struct td_input input = td_input_memory(text, len);
    for (size_t part = 1; part <= len + 1; part += part < 4 ? 1 : len) {
        struct td_line_indexer indexer = {.index.delimiter = (uint8_t)delimiter, .wants_header = true};
        struct td_line_index index;
        for (size_t at = 0; at < len; at += part)
            assert_true(
                td_line_indexer_add(&indexer, (const uint8_t *)text + at, len - at < part ? len - at : part, NULL));
        assert_true(td_line_indexer_finish(&indexer, &index, NULL));
        CHECK(index.row_count == (count == 0 ? 0 : count - 1), "%s: %d rows", text, (int)index.row_count);
        assert_true((indexer.header.bytes == 0) == (count == 0));
        if (count > 0) {
            assert_int_equal(indexer.header.offset, expected[0].offset);
            assert_true(td_line_index_find(&index, &input, 0, count - 1, rows, NULL));
            check_rows(rows, expected + 1, count - 1, text);
            for (size_t i = 0; i < count - 1; i++) {
                assert_true(td_line_index_find(&index, &input, i, 1, rows, NULL));
                check_rows(rows, expected + 1 + i, 1, text);
            }
        }
        td_line_index_fini(&index);
    }
    free(expected);
    free(rows);
}

/* Numbers of rows, header not counted, as Python's csv module gives them. */
static void quotes_hold_line_ends(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t rows;
        char delimiter;
    } cases[] = {
        {"", 0, ','},
        {"a,b", 0, ','},
        {"a,b\n", 0, ','},
        {"\n \r\na,b\n1,2\n\n3,4", 2, ','},
        {"a\n\"1\n2\"\n3", 2, ','},
        {"a,b\n1,\"\n\n\"\n3,4", 2, ','},
        {"\"a\nb\",c\n1,2", 1, ','},
        {"a\n\"1\"\"\n2\"\n3", 2, ','},  /* "" within */
        {"a\n\"\"\"\n\"\n3", 2, ','},    /* a quote and a line end */
        {"a\n\"\"\n3", 2, ','},          /* an empty field */
        {"a\n1\"\n2\"\n3", 3, ','},      /* quotes in an unquoted field */
        {"a\n \"1\n2\"\n3", 3, ','},     /* a blank before a quote: no quoted field */
        {"a\n\"1\"2\"\n3\n", 2, ','},    /* text after a closing quote, with a quote */
        {"a\n\"1\",\"2\n\"\n3", 2, ','}, /* a quoted field after another */
        {"a\n\"1\n2\n3", 1, ','},        /* never closed */
        {"a\n1,\"", 1, ','},
        {"a\n\"1\r\n2\"\r\n3\r\n", 2, ','},
        {"\xef\xbb\xbf\"a\n\"\n1", 1, ','}, /* a byte order mark before a quote */
        {"\xef\xbb\"a\n1\n", 1, ','},       /* what only begins as one */
        {"a\tb\n1\t\"\n\"\n2\t3\n", 2, '\t'},
        {"a\tb\n\t\n \n1\t\"2\n", 2, '\t'},
        {"a,b\n1,\"\n\",\"", 2, '\t'}, /* commas delimit nothing here */
        {"a\n\n\n,\n", 1, ','},
        {"a,b\r1,2\r3,4\r", 2, ','}, /* CR alone, as old Macs wrote it */
        {"a,b\r1,2\r3,4", 2, ','},
        {"a\r\r \r1\r\n2\n3\r", 3, ','}, /* all three, and blank lines */
        {"a\r\"1\r2\"\r3", 2, ','},
        {"a\n1\r\"2\n\"\n", 2, ','}, /* a quote at the start of a line after a CR */
        {"a\tb\r1\t\r\t2\r", 2, '\t'},
        {"\xef\xbb\xbf\ra\r1", 1, ','},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct row_case c = csv_case(cases[i].text, strlen(cases[i].text), cases[i].delimiter);
        struct td_row_index index = row_case_index(&c);
        CHECK(index.row_count == cases[i].rows, "case %d: %d rows", (int)i, (int)index.row_count);
        td_row_index_fini(&index);
        check_text(cases[i].text, strlen(cases[i].text), cases[i].delimiter);
        row_case_prefixes(&c);
    }
}

static void random_texts(void **state)
{
    (void)state;
    static const char letters[] = "ab\"\"\"\",,\n\n\r \t\xef\xbb\xbf";
    uint64_t random = 17;
    for (int round = 0; round < (SANITIZED ? 1000 : 10000); round++) {
        char text[64];
        size_t len = random_below(&random, sizeof text - 1);
        for (size_t i = 0; i < len; i++)
            text[i] = letters[random_below(&random, sizeof letters - 1)];
        text[len] = '\0';
        check_text(text, len, round % 3 == 0 ? '\t' : ',');
    }
}

/* Rows that are longer than the bytes read at once, with quotes and line ends at the borders of these reads. */
static void long_rows(void **state)
{
    (void)state;
    size_t len = 0, most = 400 * 1000;
    char *text = malloc(most + 1);
    uint64_t random = 18;
    len += (size_t)sprintf(text, "h\n");
    while (len < most - 70000) {
        size_t fill = TD_LINE_READ_BYTES - 3 + random_below(&random, 6);
        len += (size_t)sprintf(text + len, "\"%s", random_below(&random, 2) == 0 ? "\n" : "");
        memset(text + len, 'x', fill);
        len += fill;
        len += (size_t)sprintf(text + len, "\"\"\n\",\"\n%s\r\n", random_below(&random, 2) == 0 ? "\"" : "\"x");
    }
    struct td_row *expected = calloc(len + 1, sizeof *expected);
    size_t count = csv_oracle(text, len, ',', expected);
    assert_true(count > 15);
    struct row_case c = csv_case(text, len, ',');
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.row_count, count - 1);
    for (size_t i = 1; i < count; i++) {
        struct td_row row = row_case_find(&c, &index, i - 1);
        check_rows(&row, expected + i, 1, "long rows");
    }
    td_row_index_fini(&index);
    free(expected);
    free(text);
}

/* Wherever the quotes are, the indexer looks at each byte at most three times: for LF, for CR and for a quote. After
 * each CR it looks for LF in up to 256 bytes. */
static void work_is_linear(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a\"", "\"a\",",   "\"\"", "\"\n",     "a\"\n",
                                           "\n",  "aaaaaaa,", "\"",   ",\"\"\"a", "aa\r\n"};
    size_t len = 300000;
    uint8_t *text = malloc(len);
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        for (size_t at = 0; at < len; at++)
            text[at] = (uint8_t)patterns[i][at % strlen(patterns[i])];
        struct td_line_indexer indexer = {.index.delimiter = ','};
        struct td_line_index index;
        looked_at = 0;
        assert_true(td_line_indexer_add(&indexer, text, len, NULL));
        CHECK(looked_at <= 3 * len + 2, "%s: %d bytes looked at", patterns[i], (int)looked_at);
        assert_true(td_line_indexer_finish(&indexer, &index, NULL));
        td_line_index_fini(&index);
    }
    free(text);
}

static void headers_are_columns(void **state)
{
    (void)state;
    static const struct {
        const char *text, *columns;
        char delimiter;
    } cases[] = {
        {"a,b c,\n", "[{\"name\":\"a\"},{\"name\":\"b c\"},{\"name\":\"\"}]", ','},
        {"a\tb,c\r\n", "[{\"name\":\"a\"},{\"name\":\"b,c\"}]", '\t'},
        {"\"a,\"\"b\"\"\",\"\nc\"\r\n", "[{\"name\":\"a,\\\"b\\\"\"},{\"name\":\"\\nc\"}]", ','},
        {"a\"b\"\"c,\"d\"e\"\n", "[{\"name\":\"a\\\"b\\\"\\\"c\"},{\"name\":\"de\\\"\"}]", ','},
        {"\xef\xbb\xbf\"a\"", "[{\"name\":\"a\"}]", ','},
        {"\xc3\xa9,\xff\n", "[{\"name\":\"\xc3\xa9\"},{\"name\":\"\\\\xff\"}]", ','},
        {",\n", "[{\"name\":\"\"},{\"name\":\"\"}]", ','},
        {"\"a", "[{\"name\":\"a\"}]", ','},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct row_case c = csv_case(cases[i].text, strlen(cases[i].text), cases[i].delimiter);
        struct td_row_index index = row_case_index(&c);
        assert_string_equal(index.columns, cases[i].columns);
        td_row_index_fini(&index);
        row_case_allocations(&c, 1);
    }
    struct row_case none = csv_case(" \n\n", 3, ',');
    struct td_row_index index = row_case_index(&none);
    assert_null(index.columns);
    td_row_index_fini(&index);
}

static void long_headers_are_refused(void **state)
{
    (void)state;
    size_t len = TD_CSV_HEADER_BYTES + 3;
    char *text = malloc(len);
    memset(text, 'x', len);
    text[0] = '\n';
    text[len - 1] = '\n';
    struct row_case c = csv_case(text, len, ',');
    row_case_refused(&c, 1, "the header, has 1048577 bytes; at most 1048576 are read");
    text[1] = '\n';
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.row_count, 0);
    td_row_index_fini(&index);
    memset(text, ',', len); /* columns of 12 bytes for each byte of the header */
    c.len = TD_CSV_HEADER_BYTES;
    struct td_error err;
    assert_false(row_case_build(&c, 3 * 1024 * 1024, &index, &err) || err.code != TD_RESOURCE_EXHAUSTED);
    check_says(&err, "its columns would take more than 3145728 bytes", "columns");
    free(text);
}

/* The index of a text without quoted line ends gives the place of all rows as one piece. */
static void rows_in_one_piece(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t params[3];
    } cases[] = {
        {"h\na\n\"b\n\"\n", {1, 2, ','}},  {"h\na\nb", {1, 2, ','}},
        {"h\r\na\nb\n", {0, 3, ','}}, /* the LF after the CR is an empty line */
        {"h\na\r\nb\n", {0, 2, ','}},      {"h\na\rb\r", {0, 2, ','}},
        {"h\ra\nb\n", {1, 2, ','}},        {"h\na\n\nb\n", {0, 2, ','}},
        {"h\n\na\n", {0, 3, ','}},         {"h\n", {1, 0, ','}},
        {"\xef\xbb\xbfh\na", {0, 5, ','}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct row_case c = csv_case(cases[i].text, strlen(cases[i].text), ',');
        struct td_row_index index = row_case_index(&c);
        for (size_t p = 0; p < 3; p++)
            CHECK(index.params[p] == cases[i].params[p], "case %d: params[%d] is %d", (int)i, (int)p,
                  (int)index.params[p]);
        td_row_index_fini(&index);
    }
}

static void as_python_reads(void **state)
{
    (void)state;
    row_fixtures_check("csv", 7, SIZE_MAX, 3);
    row_fixtures_check("jsonl", 1, SIZE_MAX, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_hold_line_ends),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(work_is_linear),
        cmocka_unit_test(headers_are_columns),
        cmocka_unit_test(long_headers_are_refused),
        cmocka_unit_test(rows_in_one_piece),
        cmocka_unit_test(as_python_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
