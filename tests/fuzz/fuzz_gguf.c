/* The bytes as a file; once more with memory short, and once more behind a header of our own (two tensors, three pairs),
 * so that mutations reach pairs and infos without getting past the counts first. */
#include "parser/gguf.h"

#include "core/json.h"
#include "parser/names.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static void check_tensor(const struct td_manifest *m, size_t i, uint64_t size)
{
    const struct td_tensor *t = &m->tensors[i];
    unsigned __int128 elems = 1;
    FUZZ_CHECK(strlen(t->name) == t->name_len && td_utf8_valid(t->name, t->name_len));
    FUZZ_CHECK(i == 0 || td_name_compare(t[-1].name, t[-1].name_len, t->name, t->name_len) < 0);
    FUZZ_CHECK(td_manifest_find(m, t->name, t->name_len) == t);
    FUZZ_CHECK(t->rank <= 4 && (t->rank == 0) == (t->shape == NULL) && t->strides == NULL &&
               t->reason == NULL);
    bool empty = false;
    for (uint32_t d = 0; d < t->rank; d++)
        empty = empty || t->shape[d] == 0;
    for (uint32_t d = 0; d < t->rank && !empty; d++) {
        FUZZ_CHECK(t->shape[d] < INT64_MAX);
        elems *= t->shape[d];
        FUZZ_CHECK(elems < INT64_MAX);
    }
    if (empty)
        elems = 0;
    FUZZ_CHECK(t->rank == 0 || t->shape[t->rank - 1] % t->dtype->block_elems == 0);
    FUZZ_CHECK(elems * t->dtype->block_bytes == (unsigned __int128)t->nbytes * t->dtype->block_elems);
    FUZZ_CHECK(t->offset <= size && t->nbytes <= size - t->offset);
}

/* In the file's order the tensors fill the data from its start, each padded: each that is not the first begins where
 * some other ends, padded to the alignment, or where the data begin. */
static void check_places(const struct td_manifest *m, uint64_t alignment)
{
    uint64_t start = UINT64_MAX;
    uint64_t sum = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        if (m->tensors[i].offset < start)
            start = m->tensors[i].offset;
        sum += m->tensors[i].nbytes;
    }
    FUZZ_CHECK(m->total_bytes == sum);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        bool joined = t->offset == start;
        FUZZ_CHECK(t->offset % alignment == 0);
        for (size_t j = 0; j < m->tensor_count && !joined; j++) {
            const struct td_tensor *o = &m->tensors[j];
            joined =
                o->nbytes > 0 && (o->offset + o->nbytes + alignment - 1) / alignment * alignment == t->offset;
        }
        FUZZ_CHECK(joined);
    }
}

/* Keys are unique, values JSON: a scalar, an array of 64 at most, or what is left of something longer. */
static uint64_t check_metadata(const struct td_manifest *m)
{
    uint64_t alignment = 32;
    for (size_t i = 0; i < m->metadata_count; i++) {
        const struct td_metadata *pair = &m->metadata[i];
        size_t len = strlen(pair->value);
        struct td_json json;
        FUZZ_CHECK(td_utf8_valid(pair->key, strlen(pair->key)) && pair->key[0] != '\0');
        FUZZ_CHECK(td_utf8_valid(pair->value, len) && memchr(pair->value, '\n', len) == NULL);
        for (size_t j = 0; j < i; j++)
            FUZZ_CHECK(strcmp(pair->key, m->metadata[j].key) != 0);
        td_json_init(&json, pair->value, len, 0, NULL);
        enum td_json_token first = td_json_next(&json);
        FUZZ_CHECK(first != TD_JSON_NULL && first != TD_JSON_ERROR);
        td_json_init(&json, pair->value, len, 0, NULL);
        FUZZ_CHECK(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
        FUZZ_CHECK(json.depth == 0);
        if (strcmp(pair->key, "general.alignment") == 0)
            alignment = strtoull(pair->value, NULL, 10);
    }
    FUZZ_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
    return alignment;
}

static bool parse(const void *bytes, size_t size, size_t memory)
{
    struct td_input input = td_input_memory(bytes, size);
    struct td_limits limits = td_limits_default();
    struct td_manifest manifest;
    struct td_error err;
    limits.max_memory_bytes = memory;
    td_error_init(&err);
    td_manifest_init(&manifest, memory);
    bool ok = td_format_gguf.parse(&input, &limits, &manifest, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    FUZZ_CHECK(manifest.arena.limit_bytes == memory);
    FUZZ_CHECK(memory == 0 || manifest.arena.used_bytes <= memory);
    if (ok) {
        for (size_t i = 0; i < manifest.tensor_count; i++)
            check_tensor(&manifest, i, size);
        check_places(&manifest, check_metadata(&manifest));
    } else {
        fuzz_check_refusal(&err, size);
    }
    td_manifest_fini(&manifest);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t head[] = "GGUF\3\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0";
    bool ok = parse(data, size, 0);
    bool ok_limited = parse(data, size, 1024 + 2 * size);
    FUZZ_CHECK(ok || !ok_limited);
    uint8_t *file = malloc(sizeof head + size);
    if (file == NULL)
        return 0;
    memcpy(file, head, sizeof head);
    if (size > 0)
        memcpy(file + sizeof head, data, size);
    (void)parse(file, sizeof head + size, 0);
    free(file);
    return 0;
}
