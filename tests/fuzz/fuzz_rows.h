/* Checks that every index of rows must pass, whatever the format: that the verdict agrees with the error, that rows are
 * in the file, ascend and do not overlap, and that the index is the same after it was written and read again. */
#ifndef TD_TESTS_FUZZ_FUZZ_ROWS_H
#define TD_TESTS_FUZZ_FUZZ_ROWS_H

#include "core/json/json.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/row_index_file.h"
#include "tests/fuzz/fuzz_error.h"

enum { FUZZ_ROWS_MOST = 600 /* rows at either end of the file that are looked at */ };

static inline bool fuzz_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static inline struct td_row_files fuzz_row_files(const void *data, size_t len, const void *table, size_t table_len)
{
    struct td_row_files files = {.data = td_input_memory(data, len)};
    if (table != NULL)
        files.table = td_input_memory(table, table_len);
    return files;
}

/* Makes the index of a file, whose memory may be `memory` bytes (0: any number). The caller ends it by
 * td_row_index_fini. */
static inline bool fuzz_rows_build(const struct td_row_format *format, const char *name,
                                   const struct td_row_files *files, size_t memory, struct td_row_index *index,
                                   struct td_error *err)
{
    struct td_limits limits = td_limits_default();
    uint64_t size = files->data.size_bytes > files->table.size_bytes ? files->data.size_bytes : files->table.size_bytes;
    limits.max_memory_bytes = memory;
    struct td_row_build build = {.files = files, .name = name, .limits = &limits};
    td_error_init(err);
    bool ok = td_row_index_build(format, &build, index, err);
    FUZZ_CHECK(ok == (err->code == TD_OK));
    if (!ok) {
        FUZZ_CHECK(index->words == NULL && index->columns == NULL && index->reason == NULL);
        fuzz_check_refusal_somewhere(err, size);
    }
    return ok;
}

/* Writes the index and reads it again. */
static inline void fuzz_rows_again(const struct td_row_index *index, struct td_row_index *again)
{
    struct td_buffer bytes;
    td_buffer_init(&bytes);
    td_row_index_write(index, &bytes);
    FUZZ_CHECK(!bytes.failed && td_row_index_read(bytes.data, bytes.len, again, NULL));
    td_buffer_fini(&bytes);
    FUZZ_CHECK(again->format == index->format && again->layout == index->layout);
    FUZZ_CHECK(again->row_count == index->row_count && again->data_bytes == index->data_bytes);
    FUZZ_CHECK(again->table_bytes == index->table_bytes && again->word_count == index->word_count);
    FUZZ_CHECK(memcmp(again->params, index->params, sizeof index->params) == 0);
    FUZZ_CHECK(index->word_count == 0 || memcmp(again->words, index->words, index->word_count * 8) == 0);
    FUZZ_CHECK(fuzz_same_text(again->columns, index->columns) && fuzz_same_text(again->reason, index->reason));
}

static inline void fuzz_check_columns(const char *columns)
{
    struct td_json json;
    if (columns == NULL)
        return;
    td_json_init(&json, td_text_of(columns), 0, NULL);
    FUZZ_CHECK(columns[0] == '[' && td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
}

/* Finds rows [first, first + count) one by one (where no table in the file can be wrong, 16 of them) and all at once,
 * and checks them. A row may only fail where a table is wrong. Returns whether all were found; then rows[0, count) are
 * set.
 */
static inline bool fuzz_rows_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                                  size_t count, struct td_row *rows)
{
    bool has_table = index->layout == TD_ROWS_OFFSETS || index->layout == TD_ROWS_POINTERS, all = true;
    struct td_row single;
    for (size_t i = 0; i < count; i += has_table ? 1 : 1 + count / 16) {
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_row_index_find(index, files, first + i, 1, &single, &err);
        FUZZ_CHECK(ok || (has_table && err.code == TD_FAILED_PRECONDITION));
        if (ok)
            FUZZ_CHECK(single.offset <= index->data_bytes && single.bytes <= index->data_bytes - single.offset);
        all = all && ok;
    }
    FUZZ_CHECK(td_row_index_find(index, files, first, count, rows, NULL) == all);
    for (size_t i = 0; all && i < count; i++) {
        if (index->layout != TD_ROWS_POINTERS && i > 0)
            FUZZ_CHECK(rows[i].offset >= rows[i - 1].offset + rows[i - 1].bytes);
        FUZZ_CHECK(rows[i].offset <= index->data_bytes && rows[i].bytes <= index->data_bytes - rows[i].offset);
    }
    if (all && count > 0) {
        FUZZ_CHECK(td_row_index_find(index, files, first + count - 1, 1, &single, NULL));
        FUZZ_CHECK(single.offset == rows[count - 1].offset && single.bytes == rows[count - 1].bytes);
    }
    return all;
}

/* Checks an index and the rows that it finds, at most FUZZ_ROWS_MOST at either end. */
static inline void fuzz_rows_check(const struct td_row_index *index, const struct td_row_files *files)
{
    static struct td_row rows[FUZZ_ROWS_MOST];
    struct td_row_index again;
    struct td_error err = TD_ERROR_INIT;
    fuzz_check_columns(index->columns);
    fuzz_rows_again(index, &again);
    size_t count = index->row_count < FUZZ_ROWS_MOST ? (size_t)index->row_count : FUZZ_ROWS_MOST;
    FUZZ_CHECK(!td_row_index_find(&again, files, index->row_count, 1, rows, &err) && err.code == TD_INVALID_ARGUMENT);
    FUZZ_CHECK(!td_row_index_find(&again, files, UINT64_MAX, 2, rows, NULL));
    td_error_init(&err);
    if (index->reason != NULL) {
        FUZZ_CHECK(index->reason[0] != '\0' && td_utf8_valid(index->reason, strlen(index->reason)));
        FUZZ_CHECK(count == 0 ||
                   (!td_row_index_find(&again, files, 0, count, rows, &err) && err.code == TD_FAILED_PRECONDITION));
    } else {
        (void)fuzz_rows_find(&again, files, 0, count, rows);
        (void)fuzz_rows_find(&again, files, index->row_count - count, count, rows);
    }
    td_row_index_fini(&again);
}

#endif
