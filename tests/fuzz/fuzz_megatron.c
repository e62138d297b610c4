/* The input begins with the size of the data file in two bytes; the rest is the table. It is read as it is, and again
 * with a head that is put right: then the first byte is the type, and the second the number of sequences. */
#include "parser/rows/megatron.h"

#include "tests/fuzz/fuzz_rows.h"

enum { HEAD_BYTES = 34 };

static const uint8_t tokens[65536];

static uint64_t number(const uint8_t *p, size_t width)
{
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;)
        value = value * 256 + p[i];
    return value;
}

/* Returns where a row ends, or -1 for a length below 0. */
static __int128 row_end(const uint8_t *table, uint64_t rows, uint64_t row, uint64_t *offset)
{
    static const uint8_t bytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};
    int64_t items = (int32_t)number(table + HEAD_BYTES + 4 * row, 4);
    *offset = number(table + HEAD_BYTES + 4 * rows + 8 * row, 8);
    return items < 0 ? -1 : (__int128)*offset + (__int128)items * bytes[table[17]];
}

/* Restates which tables are accepted. */
static bool is_right(const uint8_t *table, size_t size, size_t data_bytes)
{
    uint64_t first, last;
    if (size < HEAD_BYTES || memcmp(table, "MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) != 0 || table[17] < 1 || table[17] > 8)
        return false;
    uint64_t rows = number(table + 18, 8);
    __int128 lists = HEAD_BYTES + (__int128)12 * rows + (__int128)8 * number(table + 26, 8);
    if (lists != (__int128)size && lists + rows != (__int128)size)
        return false;
    if (rows == 0)
        return data_bytes == 0;
    (void)row_end(table, rows, 0, &first);
    return row_end(table, rows, rows - 1, &last) == (__int128)data_bytes && first == 0;
}

static void check_rows(const struct td_row_index *index, const struct td_row_files *files, const uint8_t *table)
{
    FUZZ_CHECK(index->row_count == number(table + 18, 8));
    for (uint64_t row = 0; row < index->row_count; row++) {
        uint64_t offset;
        __int128 end = row_end(table, index->row_count, row, &offset);
        bool fits = end >= 0 && end <= (__int128)index->data_bytes;
        struct td_row found;
        FUZZ_CHECK(td_row_index_find(index, files, row, 1, &found, NULL) == fits);
        if (fits)
            FUZZ_CHECK(found.offset == offset && (__int128)found.offset + found.bytes == end);
    }
}

static void check_table(const uint8_t *table, size_t size, size_t data_bytes)
{
    struct td_row_files files = fuzz_row_files(tokens, data_bytes, table, size);
    struct td_row_index index;
    struct td_error err;
    bool ok = fuzz_rows_build(&td_row_format_megatron, "a.bin", &files, 0, &index, &err);
    FUZZ_CHECK(ok == is_right(table, size, data_bytes));
    if (ok) {
        fuzz_rows_check(&index, &files);
        check_rows(&index, &files, table);
        td_row_index_fini(&index);
    } else {
        fuzz_check_refusal(&err, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || size > 65536)
        return 0;
    size_t data_bytes = data[0] + data[1] * 256U, rows = data[3], rest = size - 4;
    check_table(data + 2, size - 2, data_bytes);
    if (rest < 12 * rows)
        return 0;
    uint8_t *made = calloc(1, HEAD_BYTES + rest);
    FUZZ_CHECK(made != NULL);
    memcpy(made, "MMIDIDX\0\0\1", 10);
    made[17] = data[2];
    made[18] = data[3];
    uint64_t documents = (rest - 12 * rows) / 8;
    for (size_t i = 0; i < 8; i++)
        made[26 + i] = (uint8_t)(documents >> 8 * i);
    memcpy(made + HEAD_BYTES, data + 4, rest);
    check_table(made, HEAD_BYTES + 12 * rows + 8 * (size_t)documents, data_bytes);
    free(made);
    return 0;
}
