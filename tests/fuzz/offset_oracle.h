/* Rows between u32 offsets, read from the bytes as the libraries of MDS and LitData do, and files with a right table.
 */
#ifndef TD_TESTS_FUZZ_OFFSET_ORACLE_H
#define TD_TESTS_FUZZ_OFFSET_ORACLE_H

#include "parser/rows/index/row_index.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static inline uint32_t offset_oracle_u32(const uint8_t *p)
{
    return (uint32_t)p[0] + p[1] * 256U + p[2] * 65536U + p[3] * 16777216U;
}

static inline void offset_oracle_put(uint8_t *p, size_t value)
{
    for (size_t i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

/* Returns whether the table and its first and last offset are in the file, and sets *rows_end. `has_gap`: bytes may be
 * between the table and the rows. */
static inline bool offset_oracle_fits(const uint8_t *data, size_t size, bool has_gap, size_t *rows_end)
{
    if (size < 8 || offset_oracle_u32(data) > (size - 8) / 4)
        return false;
    size_t rows = offset_oracle_u32(data), table = 8 + 4 * rows;
    size_t first = offset_oracle_u32(data + 4);
    *rows_end = offset_oracle_u32(data + 4 + 4 * rows);
    return (has_gap ? first >= table : first == table) && *rows_end >= first && *rows_end <= size;
}

/* Checks each row of an accepted file beside the two offsets that the library would read. */
static inline void offset_oracle_check(const uint8_t *data, size_t size, const struct td_row_index *index,
                                       const struct td_row_files *files)
{
    FUZZ_CHECK(size >= 8 && index->row_count == offset_oracle_u32(data) && index->row_count <= (size - 8) / 4);
    FUZZ_CHECK(index->word_count == 0);
    for (uint64_t row = 0; row < index->row_count && index->reason == NULL; row++) {
        uint32_t begin = offset_oracle_u32(data + 4 + 4 * row), end = offset_oracle_u32(data + 8 + 4 * row);
        bool fits = begin >= 8 + 4 * index->row_count && begin <= end && end <= size;
        struct td_row found;
        FUZZ_CHECK(td_row_index_find(index, files, row, 1, &found, NULL) == fits);
        if (fits)
            FUZZ_CHECK(found.offset == begin && found.bytes == end - begin);
    }
}

/* Returns a file in new memory whose table is right, or NULL: data[0] is the number of rows, the bytes after it are
 * their sizes, and the rest follows the table: with `config` its first byte says how much of it precedes the rows. What
 * is left follows the last row. */
static inline uint8_t *offset_oracle_make(const uint8_t *data, size_t size, bool config, size_t *len)
{
    if (size < 2 || size > 65536 || size < 2U + data[0])
        return NULL;
    size_t rows = data[0], rest = size - 1 - rows, table = 8 + 4 * rows, at = table;
    *len = table + rest;
    uint8_t *made = malloc(*len);
    FUZZ_CHECK(made != NULL);
    memcpy(made + table, data + 1 + rows, rest);
    offset_oracle_put(made, rows);
    if (config)
        at += data[1 + rows] < rest ? data[1 + rows] : rest;
    offset_oracle_put(made + 4, at);
    for (size_t i = 0; i < rows; i++) {
        size_t bytes = data[1 + i] < *len - at ? data[1 + i] : *len - at;
        at = config && i + 1 == rows ? *len : at + bytes;
        offset_oracle_put(made + 8 + 4 * i, at);
    }
    return made;
}

#endif
