/* The input is a file's name; its first two bytes are the file's size. The name is compared with one that is made of
 * the type and the number that were found. */
#include "parser/rows/tokens.h"

#include "tests/fuzz/fuzz_rows.h"

static const uint8_t tokens[65536];

/* Checks that the name ends as the convention spells what was found. */
static void check_name(const char *name, const struct td_tokens *found)
{
    char end[64];
    int len = found->has_count
                  ? snprintf(end, sizeof end, ".%sx%llu.bin", found->type, (unsigned long long)found->count)
                  : snprintf(end, sizeof end, ".%s.bin", found->type);
    size_t name_len = strlen(name);
    FUZZ_CHECK(name_len > (size_t)len && strcmp(name + name_len - (size_t)len, end) == 0);
    FUZZ_CHECK(found->count >= 1 && found->count <= (uint64_t)INT64_MAX / found->item_bytes);
    FUZZ_CHECK(found->has_count || found->count == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 300)
        return 0;
    size_t bytes = data[0] + data[1] * 256U;
    char name[304] = {0};
    memcpy(name, data + 2, size - 2);
    struct td_tokens found;
    struct td_row_files files = fuzz_row_files(tokens, bytes, NULL, 0);
    struct td_row_index index;
    struct td_error err;
    bool is = td_tokens_name(name, &found);
    bool fits = is && bytes % (found.count * found.item_bytes) == 0;
    FUZZ_CHECK(fuzz_rows_build(&td_row_format_tokens, name, &files, 0, &index, &err) == fits);
    if (is)
        check_name(name, &found);
    if (fits) {
        FUZZ_CHECK(index.row_count * found.count * found.item_bytes == bytes);
        fuzz_rows_check(&index, &files);
        td_row_index_fini(&index);
    }
    return 0;
}
