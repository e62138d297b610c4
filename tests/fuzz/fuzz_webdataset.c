/* The input is read as an archive, and again with checksums that fit: at every block from which the headers lead. A row
 * of an archive that is accepted is, with two blocks of zeros, an archive with one sample. */
#include "parser/rows/webdataset.h"

#include "parser/rows/tar_header.h"
#include "tests/fuzz/fuzz_rows.h"
#include "tests/fuzz/tar_oracle.h"

static void set_checksum(uint8_t *header)
{
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < TD_TAR_BLOCK_BYTES; i++)
        sum += i >= 148 && i < 156 ? 0 : header[i];
    (void)snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Checks that an archive of this row alone has this row. */
static void check_single(const uint8_t *row, size_t len)
{
    struct td_row_index index;
    struct td_error err;
    struct td_row found;
    uint8_t *single = calloc(1, len + 1024);
    FUZZ_CHECK(single != NULL);
    memcpy(single, row, len);
    struct td_row_files files = fuzz_row_files(single, len + 1024, NULL, 0);
    FUZZ_CHECK(fuzz_rows_build(&td_row_format_webdataset, "a.tar", &files, 0, &index, &err));
    FUZZ_CHECK(index.row_count == 1 && td_row_index_find(&index, &files, 0, 1, &found, NULL));
    FUZZ_CHECK(found.offset == 0 && found.bytes == len);
    td_row_index_fini(&index);
    free(single);
}

static void check_archive(const uint8_t *data, size_t size)
{
    struct td_row_files files = fuzz_row_files(data, size, NULL, 0);
    struct td_row_index index;
    struct td_error err;
    if (!fuzz_rows_build(&td_row_format_webdataset, "a.tar", &files, 0, &index, &err)) {
        fuzz_check_refusal(&err, size);
        return;
    }
    fuzz_rows_check(&index, &files);
    for (uint64_t i = 0; i < index.row_count; i++) {
        struct td_row row;
        FUZZ_CHECK(td_row_index_find(&index, &files, i, 1, &row, NULL) && row.offset % 512 == 0);
        tar_oracle_check_row(data + row.offset, row.bytes);
        if (i < 4)
            check_single(data + row.offset, (size_t)row.bytes);
    }
    td_row_index_fini(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_archive(data, size);
    if (size < TD_TAR_BLOCK_BYTES || size > 65536)
        return 0;
    uint8_t *fixed = malloc(size);
    FUZZ_CHECK(fixed != NULL);
    memcpy(fixed, data, size);
    for (size_t at = 0; size - at >= TD_TAR_BLOCK_BYTES;) {
        if (td_tar_is_zero(fixed + at))
            break;
        uint64_t bytes = tar_oracle_size(fixed + at), left = size - at - TD_TAR_BLOCK_BYTES;
        set_checksum(fixed + at);
        at += TD_TAR_BLOCK_BYTES + (bytes > left ? (size_t)left : (size_t)((bytes + 511) / 512 * 512));
        if (at > size)
            break;
    }
    check_archive(fixed, size);
    struct td_text path = td_text_n((const char *)data, size < 64 ? size : 64);
    size_t key = td_webdataset_key(path);
    FUZZ_CHECK(key < path.len && (key == 0 || (data[key] == '.' && td_webdataset_key(td_text_n(path.p, key)) == 0)));
    free(fixed);
    return 0;
}
