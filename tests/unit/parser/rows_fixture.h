/* Files with rows below tests/data/rows_arrow/, with the number of rows and the columns that pyarrow read from them, as
 * tests/data/make_rows_arrow.py writes them. */
#ifndef TD_TESTS_UNIT_PARSER_ROWS_FIXTURE_H
#define TD_TESTS_UNIT_PARSER_ROWS_FIXTURE_H

#include "parser/rows/index/row_format.h"
#include "parser/rows/row_formats.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/parser/format_fixture.h"

/* Makes the index of bytes as a file of this name. */
static inline bool rows_index(const char *name, const void *bytes, size_t len, size_t memory_bytes,
                              struct td_row_index *out, struct td_error *err)
{
    struct td_limits limits = {.max_header_bytes = 1 << 20, .max_memory_bytes = memory_bytes};
    struct td_row_files files = {.data = td_input_memory(bytes, len)};
    struct td_row_build build = {.files = &files, .name = name, .limits = &limits};
    td_error_init(err);
    return td_row_index_build(td_row_format_of(name), &build, out, err);
}

static inline char *rows_file(const char *name, size_t *len)
{
    return read_file("rows_arrow", name, "", len);
}

/* Checks the index of each file with this extension. */
static inline void rows_check_fixtures(const char *extension, const struct td_row_format *format, size_t least)
{
    DIR *dir = opendir(TD_TEST_DATA "/rows_arrow");
    assert_non_null(dir);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, extension) != 0)
            continue;
        size_t len;
        struct td_row_index index;
        struct td_error err;
        char *bytes = rows_file(entry->d_name, &len), *expected = read_text("rows_arrow", entry->d_name, ".txt");
        CHECK(rows_index(entry->d_name, bytes, len, 1 << 20, &index, &err), "%s: %s", entry->d_name, err.message);
        char *columns = strchr(expected, '\n');
        *columns++ = '\0';
        columns[strlen(columns) - 1] = '\0';
        assert_ptr_equal(index.format, format);
        CHECK(index.row_count == strtoull(expected, NULL, 10), "%s: %d rows", entry->d_name, (int)index.row_count);
        CHECK(strcmp(index.columns, columns) == 0, "%s: %s", entry->d_name, index.columns);
        td_row_index_fini(&index);
        __real_free(bytes);
        __real_free(expected);
        count++;
    }
    (void)closedir(dir);
    assert_true(count >= least);
}

#endif
