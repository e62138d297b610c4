/* The first two bytes are the sizes of the data and of the table, whose bytes are those of the input; the rest is an
 * index that td_row_index_write might have written, with its words' bytes as they come. Whatever is accepted finds rows
 * within the file, and is written again as it was read. */
#include "parser/rows/index/row_index.h"

#include "tests/fuzz/fuzz_rows.h"

enum { ROWS = 64 };

static void check_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, size_t count)
{
    struct td_row rows[ROWS];
    struct td_error err = TD_ERROR_INIT;
    if (!td_row_index_find(index, files, first, count, rows, &err)) {
        FUZZ_CHECK(err.code != TD_OK && err.code != TD_INVALID_ARGUMENT && err.code != TD_RESOURCE_EXHAUSTED);
        return;
    }
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(rows[i].offset <= index->data_bytes && rows[i].bytes <= index->data_bytes - rows[i].offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_row_index index;
    struct td_error err = TD_ERROR_INIT;
    if (size < 2)
        return 0;
    const uint8_t *bytes = data + 2;
    size_t len = size - 2;
    if (!td_row_index_read(bytes, len, &index, &err)) {
        fuzz_check_message(&err);
        FUZZ_CHECK(index.words == NULL && index.columns == NULL && index.reason == NULL);
        return 0;
    }
    FUZZ_CHECK(index.format != NULL && index.layout < TD_ROWS_LAYOUTS);
    FUZZ_CHECK(td_row_index_bytes(&index) <= sizeof index + len);
    struct td_buffer again;
    td_buffer_init(&again);
    td_row_index_write(&index, &again);
    FUZZ_CHECK(again.len == len);
    struct td_row_index second;
    FUZZ_CHECK(td_row_index_read(again.data, again.len, &second, NULL));
    td_row_index_fini(&second);
    td_buffer_fini(&again);
    struct td_row_files files = fuzz_row_files(data, data[0] < size ? data[0] : size, NULL, 0);
    if (data[1] > 0)
        files.table = td_input_memory(data, data[1] < size ? data[1] : size);
    size_t count = index.row_count < ROWS ? (size_t)index.row_count : ROWS;
    check_find(&index, &files, 0, count);
    check_find(&index, &files, index.row_count - count, count);
    for (size_t i = 0; i < count; i++)
        check_find(&index, &files, i, 1);
    FUZZ_CHECK(!td_row_index_find(&index, &files, index.row_count, 1, NULL, NULL));
    td_row_index_fini(&index);
    return 0;
}
