/* The bytes as a file, and once more as a header whose length is right, over data that its last two bytes
 * give the size of: random lengths would hardly ever get past the first eight bytes. */
#include "parser/safetensors.h"

#include "core/json.h"
#include "parser/names.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

/* Reads must stay in bounds, and none may reach the data. */
struct counted_file {
    const uint8_t *header;
    size_t header_len;
    uint64_t size_bytes;
    unsigned reads;
};

static bool counted_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct counted_file *file = *(struct counted_file *const *)context;
    (void)err;
    file->reads++;
    FUZZ_CHECK((off == 0 && len == 8) || (off == 8 && len == file->header_len));
    if (off == 0)
        for (size_t i = 0; i < len; i++)
            ((uint8_t *)out)[i] = (uint8_t)((uint64_t)file->header_len >> 8 * i);
    else
        memcpy(out, file->header, len);
    return true;
}

static void check_tensor(const struct td_manifest *m, size_t i, uint64_t data_start, uint64_t size)
{
    const struct td_tensor *t = &m->tensors[i];
    unsigned __int128 elems = 1;
    FUZZ_CHECK(strlen(t->name) == t->name_len && td_utf8_valid(t->name, t->name_len));
    FUZZ_CHECK(i == 0 || td_name_compare(t[-1].name, t[-1].name_len, t->name, t->name_len) < 0);
    FUZZ_CHECK(td_manifest_find(m, t->name, t->name_len) == t);
    FUZZ_CHECK(t->rank <= TD_MAX_RANK && (t->rank == 0) == (t->shape == NULL));
    for (uint32_t d = 0; d < t->rank; d++) {
        elems *= t->shape[d];
        FUZZ_CHECK(elems <= UINT64_MAX);
    }
    FUZZ_CHECK(elems * t->dtype->block_bytes == (unsigned __int128)t->nbytes * t->dtype->block_elems);
    FUZZ_CHECK(t->offset >= data_start && t->offset <= size && t->nbytes <= size - t->offset);
}

/* Every byte of the data belongs to exactly one tensor: the sum is the size, and each that is not empty
 * begins where the data begins or another ends. */
static void check_manifest(const struct td_manifest *m, uint64_t data_start, uint64_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        check_tensor(m, i, data_start, size);
        sum += m->tensors[i].nbytes;
        bool joined = m->tensors[i].offset == data_start;
        for (size_t j = 0; j < m->tensor_count && !joined; j++)
            joined = m->tensors[j].nbytes > 0 &&
                     m->tensors[j].offset + m->tensors[j].nbytes == m->tensors[i].offset;
        FUZZ_CHECK(joined);
    }
    FUZZ_CHECK(sum == size - data_start && m->total_bytes == sum);
    for (size_t i = 0; i < m->metadata_count; i++) {
        struct td_json json;
        FUZZ_CHECK(td_utf8_valid(m->metadata[i].key, strlen(m->metadata[i].key)));
        for (size_t j = 0; j < i; j++)
            FUZZ_CHECK(strcmp(m->metadata[i].key, m->metadata[j].key) != 0);
        td_json_init(&json, m->metadata[i].value, strlen(m->metadata[i].value), 0, NULL);
        FUZZ_CHECK(td_json_next(&json) == TD_JSON_STRING && td_json_next(&json) == TD_JSON_END);
    }
}

/* Whether the whole text is one JSON value. */
static bool is_json(const char *text, size_t len)
{
    struct td_json json;
    td_json_init(&json, text, len, 0, NULL);
    return td_json_skip(&json) && td_json_next(&json) == TD_JSON_END;
}

static bool parse(const struct td_input *input, size_t memory, uint64_t data_start)
{
    struct td_limits limits = td_limits_default();
    struct td_manifest manifest;
    struct td_error err;
    limits.max_memory_bytes = memory;
    td_error_init(&err);
    td_manifest_init(&manifest, memory);
    bool ok = td_format_safetensors.parse(input, &limits, &manifest, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    FUZZ_CHECK(manifest.arena.limit_bytes == memory);
    FUZZ_CHECK(memory == 0 || manifest.arena.used_bytes <= memory);
    if (ok)
        check_manifest(&manifest, data_start, input->size_bytes);
    else
        fuzz_check_refusal(&err, input->size_bytes);
    td_manifest_fini(&manifest);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_input whole = td_input_memory(data, size);
    (void)parse(&whole, 0, size >= 8 ? 8 + td_load_le64(data) : 0);
    if (size < 2)
        return 0;
    struct counted_file file = {.header = data, .header_len = size - 2};
    const struct counted_file *context = &file;
    struct td_input input = {.read = counted_read, .context = &context};
    input.size_bytes = 8 + (uint64_t)file.header_len + td_load_le16(data + size - 2);
    bool ok = parse(&input, 0, 8 + file.header_len);
    FUZZ_CHECK(file.reads <= 2);
    FUZZ_CHECK(!ok || is_json((const char *)data, size - 2));
    bool ok_limited = parse(&input, 600 + size, 8 + file.header_len);
    FUZZ_CHECK(ok || !ok_limited);
    return 0;
}
