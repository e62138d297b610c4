/* Whole files. The row groups are in the file, and the columns are JSON. */
#include "parser/rows/parquet.h"
#include "tests/fuzz/fuzz_blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_row_files files = {.data = td_input_memory(data, size)};
    struct td_row_index index;
    uint64_t rows = 0;
    if (!fuzz_blocks_index(&td_row_format_parquet, &files, FUZZ_BLOCKS_MEMORY, &index))
        return 0;
    for (size_t i = 0; i < index.word_count; i += 3) {
        FUZZ_CHECK(index.words[i] >= 4 && index.words[i] <= size && index.words[i + 1] <= size - index.words[i] - 8);
        rows += index.words[i + 2];
    }
    FUZZ_CHECK(rows == index.row_count && index.reason != NULL);
    td_row_index_fini(&index);
    return 0;
}
