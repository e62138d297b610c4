/* The input is parsed as a file, and again as a header whose length is right, before data whose size is the last two
 * bytes: random lengths would hardly ever pass the first eight bytes. */
#include "parser/safetensors.h"

#include "tests/fuzz/fuzz_manifest.h"

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

/* Multiplies the dimensions in their order, as the reference does, so a 0 after too many elements does not help. */
static void check_shape(const struct td_tensor *t)
{
    fuzz_u128 elems = 1;
    FUZZ_CHECK(t->strides == NULL && t->reason == NULL);
    for (uint32_t d = 0; d < t->rank; d++) {
        elems *= t->shape[d];
        FUZZ_CHECK(elems <= UINT64_MAX);
    }
}

/* Checks that every byte of the data belongs to exactly one tensor: the sum of the sizes is the size of the data, and
 * each tensor that is not empty begins where the data begins or where another ends. */
static void check_places(const struct td_manifest *m, uint64_t data_start, uint64_t size)
{
    for (size_t i = 0; i < m->tensor_count; i++) {
        bool joined = m->tensors[i].offset == data_start;
        for (size_t j = 0; j < m->tensor_count && !joined; j++)
            joined = m->tensors[j].nbytes > 0 && m->tensors[j].offset + m->tensors[j].nbytes == m->tensors[i].offset;
        FUZZ_CHECK(joined);
    }
    FUZZ_CHECK(m->total_bytes == size - data_start);
}

static void check_manifest(const struct td_manifest *m, uint64_t data_start, uint64_t size)
{
    fuzz_check_manifest(m, data_start, size, NULL);
    fuzz_check_keys_differ(m);
    check_places(m, data_start, size);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        check_shape(t);
        FUZZ_CHECK(t->offset >= data_start && t->offset <= size); /* tensors without elements, too */
    }
    for (size_t i = 0; i < m->metadata_count; i++) {
        struct td_json json;
        td_json_init(&json, td_text_of(m->metadata[i].value), 0, NULL);
        FUZZ_CHECK(td_json_next(&json) == TD_JSON_STRING);
    }
}

/* Returns whether the whole text is one JSON value. */
static bool is_json(const char *text, size_t len)
{
    struct td_json json;
    td_json_init(&json, td_text_n(text, len), 0, NULL);
    return td_json_skip(&json) && td_json_next(&json) == TD_JSON_END;
}

static bool parse(const struct td_input *input, size_t memory, uint64_t data_start)
{
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(&td_format_safetensors, input, memory, &manifest, &err);
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
