/* The input is read as a .npy file, and again as a header whose length is right: the first byte is then the version,
 * and the last two the number of bytes of data, as in fuzz_npy.c. The rows are compared with the tensor that the
 * checkpoint format of the same files lists. */
#include "parser/rows/npy_rows.h"

#include "parser/npy.h"
#include "tests/fuzz/fuzz_rows.h"

static void check_file(const uint8_t *data, size_t size)
{
    struct td_row_files files = fuzz_row_files(data, size, NULL, 0);
    struct td_limits limits = td_limits_default();
    struct td_row_index index;
    struct td_manifest manifest;
    struct td_error err;
    td_manifest_init(&manifest, 0);
    bool parsed = td_format_npy.parse(&files.data, &limits, &manifest, NULL);
    const struct td_tensor *tensor = parsed ? &manifest.tensors[0] : NULL;
    bool has_rows = parsed && tensor->rank > 0 && strcmp(tensor->dtype->name, "OBJECT") != 0;
    FUZZ_CHECK(fuzz_rows_build(&td_row_format_npy, "a.npy", &files, 0, &index, &err) == has_rows);
    if (has_rows) {
        fuzz_rows_check(&index, &files);
        FUZZ_CHECK(index.row_count == tensor->shape[0]);
        FUZZ_CHECK((index.reason == NULL) == (tensor->reason == NULL && tensor->strides == NULL));
        struct td_row first, last;
        if (index.reason == NULL && index.row_count > 0) {
            FUZZ_CHECK(td_row_index_find(&index, &files, 0, 1, &first, NULL));
            FUZZ_CHECK(td_row_index_find(&index, &files, index.row_count - 1, 1, &last, NULL));
            FUZZ_CHECK(first.offset == tensor->offset && first.bytes == last.bytes);
            FUZZ_CHECK(last.offset + last.bytes == tensor->offset + tensor->nbytes);
        }
        td_row_index_fini(&index);
    } else {
        fuzz_check_refusal(&err, size);
    }
    td_manifest_fini(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_file(data, size);
    if (size < 3 || size - 3 > UINT16_MAX)
        return 0;
    size_t header = size - 3, bytes = data[size - 2] + data[size - 1] * 256U, begin = data[0] % 3 == 0 ? 10 : 12;
    uint8_t *made = calloc(1, begin + header + bytes);
    FUZZ_CHECK(made != NULL);
    memcpy(made, "\x93NUMPY", 6);
    made[6] = (uint8_t)(1 + data[0] % 3);
    made[8] = (uint8_t)header;
    made[9] = (uint8_t)(header >> 8);
    memcpy(made + begin, data + 1, header);
    check_file(made, begin + header + bytes);
    free(made);
    return 0;
}
