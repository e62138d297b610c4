/* The input is parsed as a model, again with little memory, and again as the content of one initialiser in a right
 * model, so that mutations reach tensors first. */
#include "parser/onnx/onnx.h"

#include "tests/fuzz/fuzz_manifest.h"

static bool has_no_size(const struct td_tensor *t)
{
    return t->reason != NULL;
}

/* Checks that the paths of other files lead below the model's directory, differ, are sorted, and are all used. */
static void check_files(const struct td_manifest *m)
{
    for (size_t i = 0; i < m->file_count; i++) {
        const char *path = m->files[i];
        bool used = false;
        FUZZ_CHECK(td_utf8_valid(path, strlen(path)) && path[0] != '\0' && path[0] != '/');
        FUZZ_CHECK(i == 0 || strcmp(m->files[i - 1], path) < 0);
        for (const char *p = path; p != NULL; p = strchr(p, '/')) {
            p += *p == '/' ? 1 : 0;
            size_t len = strcspn(p, "/");
            FUZZ_CHECK(len > 0 && (len != 1 || p[0] != '.') && (len != 2 || p[0] != '.' || p[1] != '.'));
        }
        for (size_t k = 0; k < m->tensor_count; k++)
            used = used || m->tensors[k].file == i + 1;
        FUZZ_CHECK(used);
    }
    for (size_t k = 0; k < m->tensor_count; k++) {
        const struct td_tensor *t = &m->tensors[k];
        FUZZ_CHECK(t->file <= m->file_count && t->strides == NULL);
        FUZZ_CHECK((t->file != 0) == (t->reason != NULL && strcmp(t->reason, TD_REASON_OTHER_FILE) == 0));
    }
}

static bool parse(const void *bytes, size_t size, size_t memory)
{
    struct td_input input = td_input_memory(bytes, size);
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(&td_format_onnx, &input, memory, &manifest, &err);
    if (ok) {
        fuzz_check_manifest(&manifest, 0, size, has_no_size);
        fuzz_check_keys_differ(&manifest);
        check_files(&manifest);
    } else {
        fuzz_check_refusal_somewhere(&err, size);
    }
    td_manifest_fini(&manifest);
    return ok;
}

static uint8_t *put_length(uint8_t *p, size_t len)
{
    for (int shift = 0; shift < 28; shift += 7)
        *p++ = (uint8_t)(len >> shift | 0x80);
    *p++ = (uint8_t)(len >> 28);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEAD = 6, TAIL = 6 };
    bool ok = parse(data, size, 0);
    bool ok_limited = parse(data, size, 1024 + 2 * size);
    FUZZ_CHECK(ok || !ok_limited);
    uint8_t *file = malloc(2 + HEAD + HEAD + size + TAIL);
    if (file == NULL)
        return 0;
    uint8_t *p = file;
    memcpy(p, "\x08\x08\x3a", 3); /* ir_version 8, a graph */
    p = put_length(p + 3, size + HEAD);
    *p++ = 0x2a; /* of one initialiser */
    p = put_length(p, size);
    if (size > 0)
        memcpy(p, data, size);
    p += size;
    memcpy(p, "\x42\x02\x10\x11", 4); /* an opset */
    (void)parse(file, (size_t)(p + 4 - file), 0);
    free(file);
    return 0;
}
