/* The input is read as a chunk of LitData, and again as one whose table is put right: the first byte is then the number
 * of rows, the next ones their sizes, and the rest the rows and what follows them. */
#include "parser/rows/litdata.h"

#include "tests/fuzz/fuzz_rows.h"
#include "tests/fuzz/offset_oracle.h"

/* Returns whether the rows are followed by nothing, or by bytes that end as an Arrow file's footer does. */
static bool is_right_behind(const uint8_t *data, size_t size, size_t end)
{
    size_t behind = size - end;
    return behind == 0 || (behind >= 12 && memcmp(data + size - 8, "LDARW01", 8) == 0 &&
                           offset_oracle_u32(data + size - 12) == behind - 12);
}

static void check_chunk(const uint8_t *data, size_t size)
{
    struct td_row_files files = fuzz_row_files(data, size, NULL, 0);
    struct td_row_index index;
    struct td_error err;
    size_t end = 0;
    bool ok = fuzz_rows_build(&td_row_format_litdata, "chunk-0-0.bin", &files, 0, &index, &err);
    bool is_framed = size >= 8 && memcmp(data, "LDFZ01\0", 8) == 0;
    if (!is_framed)
        FUZZ_CHECK(ok == (offset_oracle_fits(data, size, false, &end) && is_right_behind(data, size, end)));
    if (ok) {
        fuzz_rows_check(&index, &files);
        if (is_framed)
            FUZZ_CHECK(index.reason != NULL && index.row_count == offset_oracle_u32(data + 12));
        else
            offset_oracle_check(data, size, &index, &files);
        FUZZ_CHECK(is_framed ||
                   (index.reason != NULL) == (end < size && index.row_count > 0 && end == 8 + 4 * index.row_count));
        td_row_index_fini(&index);
    } else {
        fuzz_check_refusal(&err, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_chunk(data, size);
    size_t len;
    uint8_t *made = offset_oracle_make(data, size, false, &len);
    if (made != NULL)
        check_chunk(made, len);
    free(made);
    return 0;
}
