/* The input is a file. It is parsed; parsed again with little memory; and parsed again after a right header (two
 * tensors, three pairs), so that mutations reach pairs and infos without passing the counts first. */
#include "parser/gguf.h"

#include "tests/fuzz/fuzz_manifest.h"

static void check_tensor(const struct td_tensor *t, uint64_t size)
{
    fuzz_u128 elems = 1;
    bool empty = false;
    FUZZ_CHECK(t->rank <= 4 && t->strides == NULL && t->reason == NULL);
    for (uint32_t d = 0; d < t->rank; d++)
        empty = empty || t->shape[d] == 0;
    for (uint32_t d = 0; d < t->rank && !empty; d++) {
        FUZZ_CHECK(t->shape[d] < INT64_MAX);
        elems *= t->shape[d];
        FUZZ_CHECK(elems < INT64_MAX);
    }
    FUZZ_CHECK(t->rank == 0 || t->shape[t->rank - 1] % t->dtype->block_elems == 0);
    FUZZ_CHECK(t->offset <= size); /* tensors without elements, too */
}

/* Checks that the tensors, in the file's order, fill the data from its start: each begins where the data begin, or
 * where another ends, padded to the alignment. */
static void check_places(const struct td_manifest *m, uint64_t alignment)
{
    uint64_t start = UINT64_MAX;
    for (size_t i = 0; i < m->tensor_count; i++)
        if (m->tensors[i].offset < start)
            start = m->tensors[i].offset;
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        bool joined = t->offset == start;
        FUZZ_CHECK(t->offset % alignment == 0);
        for (size_t j = 0; j < m->tensor_count && !joined; j++) {
            const struct td_tensor *o = &m->tensors[j];
            joined = o->nbytes > 0 && (o->offset + o->nbytes + alignment - 1) / alignment * alignment == t->offset;
        }
        FUZZ_CHECK(joined);
    }
}

/* Checks that no key is empty and that no value is null or contains a line end. Returns the alignment. */
static uint64_t check_metadata(const struct td_manifest *m)
{
    uint64_t alignment = 32;
    for (size_t i = 0; i < m->metadata_count; i++) {
        const struct td_metadata *pair = &m->metadata[i];
        size_t len = strlen(pair->value);
        struct td_json json;
        FUZZ_CHECK(pair->key[0] != '\0');
        FUZZ_CHECK(td_utf8_valid(pair->value, len) && memchr(pair->value, '\n', len) == NULL);
        td_json_init(&json, td_text_n(pair->value, len), 0, NULL);
        enum td_json_token first = td_json_next(&json);
        FUZZ_CHECK(first != TD_JSON_NULL && first != TD_JSON_ERROR);
        if (strcmp(pair->key, "general.alignment") == 0)
            alignment = strtoull(pair->value, NULL, 10);
    }
    FUZZ_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
    return alignment;
}

static bool parse(const void *bytes, size_t size, size_t memory)
{
    struct td_input input = td_input_memory(bytes, size);
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(&td_format_gguf, &input, memory, &manifest, &err);
    if (ok) {
        fuzz_check_manifest(&manifest, 0, size, NULL);
        fuzz_check_keys_differ(&manifest);
        for (size_t i = 0; i < manifest.tensor_count; i++)
            check_tensor(&manifest.tensors[i], size);
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
