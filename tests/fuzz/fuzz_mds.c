/* The input is read as a shard of MDS, and again as one whose table is put right: the first byte is then the number of
 * rows, the next ones their sizes, and the rest the configuration and the rows. */
#include "parser/rows/mds.h"

#include "tests/fuzz/fuzz_rows.h"
#include "tests/fuzz/offset_oracle.h"

static void check_shard(const uint8_t *data, size_t size)
{
    struct td_row_files files = fuzz_row_files(data, size, NULL, 0);
    struct td_row_index index;
    struct td_error err;
    size_t end;
    bool ok = fuzz_rows_build(&td_row_format_mds, "a.mds", &files, 0, &index, &err);
    FUZZ_CHECK(ok == (offset_oracle_fits(data, size, true, &end) && end == size));
    if (ok) {
        fuzz_rows_check(&index, &files);
        offset_oracle_check(data, size, &index, &files);
        FUZZ_CHECK(index.reason == NULL);
        td_row_index_fini(&index);
    } else {
        fuzz_check_refusal(&err, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_shard(data, size);
    size_t len;
    uint8_t *made = offset_oracle_make(data, size, true, &len);
    if (made != NULL)
        check_shard(made, len);
    free(made);
    return 0;
}
