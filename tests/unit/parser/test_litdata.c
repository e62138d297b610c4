/* Chunks of LitData, made by hand by the layout of BinaryWriter, and by the library. */
#include "parser/rows/litdata.h"

#include "tests/unit/parser/row_fixture.h"

/* A chunk of three rows: 1, 0 and 3 bytes. */
static const uint8_t chunk[] = {3, 0, 0, 0, 20, 0, 0, 0, 21, 0, 0, 0, 21, 0, 0, 0, 24, 0, 0, 0, 'a', 'b', 'c', 'd'};

static struct row_case chunk_case(const void *bytes, size_t len)
{
    return (struct row_case){.format = &td_row_format_litdata, .name = "chunk-0-0.bin", .bytes = bytes, .len = len};
}

static void rows_lie_between_offsets(void **state)
{
    (void)state;
    static const struct td_row rows[] = {{20, 1}, {21, 0}, {21, 3}};
    struct row_case c = chunk_case(chunk, sizeof chunk);
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.row_count, 3);
    assert_true(index.layout == TD_ROWS_OFFSETS && index.word_count == 0 && index.reason == NULL);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct td_row row = row_case_find(&c, &index, i);
        assert_true(row.offset == rows[i].offset && row.bytes == rows[i].bytes);
    }
    td_row_index_fini(&index);
}

static void wrong_ends_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        uint64_t pos;
        const char *says;
    } cases[] = {
        {0, 5, 0, "a table for 5 rows would end at byte 28, but the file has 24"},
        {4, 19, 4, "its first row begins at byte 19, within the table"},
        {4, 21, 4, "its first row begins at byte 21, not after the table at 20"},
        {16, 25, 16, "its rows are from byte 20 to 25, but the file has 24"},
        {16, 23, 23, "its last row ends at byte 23, but the file has 24"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t bytes[sizeof chunk];
        memcpy(bytes, chunk, sizeof bytes);
        bytes[cases[i].at] = cases[i].value;
        struct row_case c = chunk_case(bytes, sizeof bytes);
        row_case_refused(&c, cases[i].pos, cases[i].says);
    }
}

/* Bytes after the rows are an Arrow file, its length and a magic, or wrong. */
static void an_arrow_file_may_follow(void **state)
{
    (void)state;
    static const char tail[] = "ARROW1\6\0\0\0LDARW01"; /* with the NUL */
    uint8_t bytes[sizeof chunk + sizeof tail];
    memcpy(bytes, chunk, sizeof chunk);
    memcpy(bytes + sizeof chunk, tail, sizeof tail);
    struct row_case c = chunk_case(bytes, sizeof bytes);
    struct td_row_index index = row_case_index(&c);
    assert_true(index.row_count == 3 && index.reason == NULL); /* the rows are there as well */
    assert_int_equal(row_case_find(&c, &index, 2).bytes, 3);
    td_row_index_fini(&index);
    static const size_t changes[] = {6, 10, 17}; /* the length, the magic's first and last byte */
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        bytes[sizeof chunk + changes[i]] ^= 1;
        row_case_refused(&c, sizeof chunk, "its last row ends at byte 24, but the file has 42");
        bytes[sizeof chunk + changes[i]] ^= 1;
    }
    memset(bytes + 8, 0, 12); /* all rows empty */
    bytes[8] = bytes[12] = bytes[16] = 20;
    memcpy(bytes + 20, tail, sizeof tail);
    c.len = 20 + sizeof tail;
    index = row_case_index(&c);
    assert_int_equal(index.row_count, 3);
    struct td_error err = row_case_error(&c, &index, 1);
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "its rows are in an Arrow file", "slim chunk");
    td_row_index_fini(&index);
}

static void frames_are_counted_only(void **state)
{
    (void)state;
    uint8_t bytes[24 + 4 * 3 + 24] = "LDFZ01\0\0\1";
    bytes[12] = 2; /* rows */
    bytes[20] = 1; /* frames */
    struct row_case c = chunk_case(bytes, sizeof bytes);
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.row_count, 2);
    struct td_error err = row_case_error(&c, &index, 0);
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "packed in frames", "frames");
    td_row_index_fini(&index);
    row_case_prefixes(&c);
    bytes[12] = 3;
    row_case_refused(&c, 12, "its tables would end at byte 64, but the file has 60");
    bytes[12] = 2;
    bytes[8] = 2;
    row_case_refused(&c, 8, "version 2 is unknown");
    c.len = 20;
    row_case_refused(&c, 20, "it has 20 bytes, fewer than its head of 24");
}

static void as_the_library_reads(void **state)
{
    (void)state;
    row_fixtures_check("litdata", 4, SIZE_MAX, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_lie_between_offsets), cmocka_unit_test(wrong_ends_are_refused),
        cmocka_unit_test(an_arrow_file_may_follow), cmocka_unit_test(frames_are_counted_only),
        cmocka_unit_test(as_the_library_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
