/* The first byte says whether tabs delimit, and in which parts the rest, a text, comes. The rows are compared with an
 * oracle that goes field by field, and with those of a text in which one byte is another one. */
#include "parser/rows/text_rows.h"

#include "parser/rows/index/line_index.h"
#include "tests/fuzz/csv_oracle.h"
#include "tests/fuzz/fuzz_rows.h"

/* Makes an index of the text in parts, without the header's columns. */
static void make_lines(const uint8_t *text, size_t len, char delimiter, size_t part, struct td_line_index *index)
{
    struct td_line_indexer indexer = {.index.delimiter = (uint8_t)delimiter, .wants_header = true};
    for (size_t at = 0; at < len; at += part)
        FUZZ_CHECK(td_line_indexer_add(&indexer, text + at, len - at < part ? len - at : part, NULL));
    FUZZ_CHECK(td_line_indexer_finish(&indexer, index, NULL));
}

static void check_lines(const struct td_line_index *lines, const uint8_t *text, size_t len,
                        const struct td_row *expected, size_t count)
{
    struct td_input input = td_input_memory(text, len);
    struct td_row *rows = calloc(len + 1, sizeof *rows);
    FUZZ_CHECK(rows != NULL && lines->row_count == count);
    FUZZ_CHECK(td_line_index_find(lines, &input, 0, count, rows, NULL));
    FUZZ_CHECK(memcmp(rows, expected, count * sizeof *rows) == 0);
    free(rows);
}

/* A file that has changed: other rows or an error, within its bounds. */
static void check_changed(const struct td_line_index *lines, const uint8_t *text, size_t len, uint8_t byte)
{
    struct td_row *rows = calloc(len + 1, sizeof *rows);
    uint8_t *changed = malloc(len + 1);
    FUZZ_CHECK(rows != NULL && changed != NULL);
    memcpy(changed, text, len);
    changed[byte * 7U % (len + 1)] = byte % 3 == 0 ? '"' : byte % 3 == 1 ? '\n' : byte;
    struct td_input input = td_input_memory(changed, len);
    if (td_line_index_find(lines, &input, 0, (size_t)lines->row_count, rows, NULL))
        for (uint64_t i = 0; i < lines->row_count; i++)
            FUZZ_CHECK(rows[i].offset <= len && rows[i].bytes <= len - rows[i].offset);
    free(changed);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 65536)
        return 0;
    const uint8_t *text = data + 1;
    size_t len = size - 1;
    char delimiter = data[0] % 2 == 0 ? ',' : '\t';
    struct td_row *expected = calloc(len + 1, sizeof *expected);
    FUZZ_CHECK(expected != NULL);
    size_t lines_count = csv_oracle((const char *)text, len, delimiter, expected);
    size_t count = lines_count == 0 ? 0 : lines_count - 1;
    struct td_line_index lines;
    make_lines(text, len, delimiter, 1 + data[0] / 2, &lines);
    check_lines(&lines, text, len, expected + 1, count);
    check_changed(&lines, text, len, data[0]);
    td_line_index_fini(&lines);
    struct td_row_files files = fuzz_row_files(text, len, NULL, 0);
    struct td_row_index index;
    struct td_error err;
    FUZZ_CHECK(fuzz_rows_build(&td_row_format_csv, delimiter == ',' ? "a.csv" : "a.tsv", &files, 0, &index, &err));
    FUZZ_CHECK(index.row_count == count && (index.columns == NULL) == (lines_count == 0));
    fuzz_rows_check(&index, &files);
    td_row_index_fini(&index);
    free(expected);
    return 0;
}
