/* The first byte chooses the parts in which the rest, a text, comes; the second and third what is looked for. The rows
 * are compared with the oracle, and with those of a text in which one byte is another one. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/line_oracle.h"

static void make_index(const uint8_t *text, size_t len, size_t part, struct td_line_index *index)
{
    struct td_line_indexer indexer = {0};
    for (size_t at = 0; at < len; at += part)
        FUZZ_CHECK(td_line_indexer_add(&indexer, text + at, len - at < part ? len - at : part, NULL));
    FUZZ_CHECK(td_line_indexer_finish(&indexer, index, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > 65536)
        return 0;
    size_t len = size - 3, first = data[1], count = data[2];
    const uint8_t *text = data + 3;
    struct td_line_index index;
    struct td_row *expected = calloc(len + 1, sizeof *expected), *rows = calloc(len + 1, sizeof *rows);
    FUZZ_CHECK(expected != NULL && rows != NULL);
    make_index(text, len, 1 + data[0], &index);
    struct td_input input = td_input_memory(text, len);
    FUZZ_CHECK(index.row_count == line_oracle((const char *)text, len, expected));
    FUZZ_CHECK(td_line_index_find(&index, &input, 0, (size_t)index.row_count, rows, NULL));
    FUZZ_CHECK(memcmp(rows, expected, (size_t)index.row_count * sizeof *rows) == 0);
    bool fits = first + count <= index.row_count;
    FUZZ_CHECK(fits == (count <= len && td_line_index_find(&index, &input, first, count, rows, NULL)));
    if (fits)
        FUZZ_CHECK(memcmp(rows, expected + first, count * sizeof *rows) == 0);
    uint8_t *changed = malloc(len + 1); /* a file that has changed: wrong rows or an error, within its bounds */
    FUZZ_CHECK(changed != NULL);
    memcpy(changed, text, len);
    changed[(data[1] * 256U + data[2]) % (len + 1)] = data[0];
    input = td_input_memory(changed, len);
    if (td_line_index_find(&index, &input, 0, (size_t)index.row_count, rows, NULL))
        for (uint64_t i = 0; i < index.row_count; i++)
            FUZZ_CHECK(rows[i].offset <= len && rows[i].bytes <= len - rows[i].offset);
    td_line_index_fini(&index);
    free(changed);
    free(expected);
    free(rows);
    return 0;
}
