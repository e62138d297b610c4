/* Checks that the fuzz targets of formats with blocks of rows share. */
#ifndef TD_TESTS_FUZZ_FUZZ_BLOCKS_H
#define TD_TESTS_FUZZ_FUZZ_BLOCKS_H

#include "core/json/json.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/row_index_file.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { FUZZ_BLOCKS_MEMORY = 1 << 20 };

/* Makes an index of a file in memory, and checks that it reads as it was written and that its columns are JSON. */
static inline bool fuzz_blocks_index(const struct td_row_format *format, const struct td_row_files *files,
                                     size_t memory_bytes, struct td_row_index *out)
{
    struct td_limits limits = {.max_header_bytes = memory_bytes, .max_memory_bytes = memory_bytes};
    struct td_row_build build = {.files = files, .name = "fuzz", .limits = &limits};
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer bytes, again;
    struct td_row_index copy;
    if (!td_row_index_build(format, &build, out, &err)) {
        FUZZ_CHECK(err.code == TD_INVALID_ARGUMENT || err.code == TD_RESOURCE_EXHAUSTED);
        return false;
    }
    td_buffer_init(&bytes);
    td_buffer_init(&again);
    td_row_index_write(out, &bytes);
    FUZZ_CHECK(td_row_index_read(bytes.data, bytes.len, &copy, &err));
    td_row_index_write(&copy, &again);
    FUZZ_CHECK(bytes.len == again.len && memcmp(bytes.data, again.data, bytes.len) == 0);
    td_buffer_clear(&again);
    FUZZ_CHECK(out->columns == NULL || td_json_minify(td_text_of(out->columns), &again, &err));
    td_row_index_fini(&copy);
    td_buffer_fini(&again);
    td_buffer_fini(&bytes);
    return true;
}

#endif
