/* The input is a file. The fuzzing build does not compare checksums (FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION), because
 * a fuzzer cannot guess them. */
#include "parser/hdf5/hdf5.h"

#include "tests/fuzz/fuzz_manifest.h"

/* Counts the bytes that are read: the sum must stay in proportion to the file, whatever its addresses are. */
struct counted_file {
    const uint8_t *bytes;
    uint64_t read_bytes, size_bytes;
};

static bool counted_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct counted_file *file = *(struct counted_file *const *)context;
    (void)err;
    FUZZ_CHECK(off <= file->size_bytes && len <= file->size_bytes - off);
    file->read_bytes += len;
    memcpy(out, file->bytes + off, len);
    return true;
}

static bool has_reason(const struct td_tensor *t)
{
    return t->reason != NULL;
}

static void check_manifest(const struct td_manifest *m, uint64_t size)
{
    fuzz_check_manifest(m, 0, size, has_reason);
    fuzz_check_keys_differ(m);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        FUZZ_CHECK(t->name_len > 0);
        FUZZ_CHECK(t->reason != NULL || t->offset <= fuzz_size_of_storage(t, size)); /* tensors without elements, too */
    }
}

static bool parse(const uint8_t *data, size_t size, size_t memory)
{
    struct counted_file file = {.bytes = data, .size_bytes = size};
    struct counted_file *context = &file;
    struct td_input input = {.read = counted_read, .context = &context, .size_bytes = size};
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(&td_format_hdf5, &input, memory, &manifest, &err);
    /* The reader's cache holds a small file whole. It reads larger structures directly, within a bound of its own. */
    FUZZ_CHECK(file.read_bytes <= 20 * (uint64_t)size + 2 * UINT64_C(1048576));
    if (ok)
        check_manifest(&manifest, size);
    else
        fuzz_check_refusal(&err, size);
    td_manifest_fini(&manifest);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool ok = parse(data, size, td_limits_default().max_memory_bytes);
    bool ok_limited = parse(data, size, 280000 + 4 * size);
    FUZZ_CHECK(ok || !ok_limited);
    return 0;
}
