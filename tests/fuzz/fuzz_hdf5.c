/* The bytes as a file. In the fuzzing build checksums are not compared (FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION): no
 * fuzzer guesses them. */
#include "parser/hdf5.h"

#include "core/json.h"
#include "parser/torch.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

/* Reads are counted: their sum must stay in proportion to the file, whatever its addresses say. */
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

static void check_tensor(const struct td_manifest *m, size_t i, uint64_t size)
{
    const struct td_tensor *t = &m->tensors[i];
    unsigned __int128 elems = 1;
    FUZZ_CHECK(t->name_len > 0 && strlen(t->name) == t->name_len && td_utf8_valid(t->name, t->name_len));
    FUZZ_CHECK(i == 0 || td_name_compare(t[-1].name, t[-1].name_len, t->name, t->name_len) < 0);
    FUZZ_CHECK(t->rank <= TD_MAX_RANK && (t->rank == 0) == (t->shape == NULL) && t->strides == NULL);
    for (uint32_t d = 0; d < t->rank && elems <= UINT64_MAX; d++)
        elems *= t->shape[d];
    if (t->reason != NULL) {
        FUZZ_CHECK(t->reason[0] != '\0' && td_utf8_valid(t->reason, strlen(t->reason)) && t->offset == 0);
        FUZZ_CHECK(t->alias_of == NULL);
        return;
    }
    FUZZ_CHECK(t->dtype->block_bytes > 0);
    for (uint32_t d = 0; d < t->rank; d++)
        if (t->shape[d] == 0)
            elems = 0;
    FUZZ_CHECK(elems * t->dtype->block_bytes == t->nbytes);
    FUZZ_CHECK(t->offset <= size && t->nbytes <= size - t->offset);
    FUZZ_CHECK(t->alias_of == NULL ||
               td_manifest_find(m, t->alias_of, strlen(t->alias_of))->offset == t->offset);
}

static void check_manifest(const struct td_manifest *m, uint64_t size)
{
    FUZZ_CHECK(strcmp(m->format, "hdf5") == 0);
    for (size_t i = 0; i < m->tensor_count; i++)
        check_tensor(m, i, size);
    for (size_t i = 0; i < m->metadata_count; i++) {
        struct td_json json;
        const char *key = m->metadata[i].key;
        FUZZ_CHECK(td_utf8_valid(key, strlen(key)));
        for (size_t j = 0; j < i; j++)
            FUZZ_CHECK(strcmp(key, m->metadata[j].key) != 0);
        td_json_init(&json, m->metadata[i].value, strlen(m->metadata[i].value), 0, NULL);
        FUZZ_CHECK(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
    }
}

static bool parse(const uint8_t *data, size_t size, size_t memory)
{
    struct counted_file file = {.bytes = data, .size_bytes = size};
    struct counted_file *context = &file;
    struct td_input input = {.read = counted_read, .context = &context, .size_bytes = size};
    struct td_limits limits = td_limits_default();
    struct td_manifest manifest;
    struct td_error err;
    limits.max_memory_bytes = memory;
    td_error_init(&err);
    td_manifest_init(&manifest, memory);
    bool ok = td_format_hdf5.parse(&input, &limits, &manifest, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    FUZZ_CHECK(manifest.arena.limit_bytes == memory);
    /* The cache holds a small file whole; larger structures are read past it, within the reader's own bound. */
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
