/* The input is parsed as a .npy file, and again as a header whose length is right: the first byte is then the version,
 * and the last two the number of bytes of data. */
#include "parser/npy.h"

#include "tests/fuzz/fuzz_manifest.h"

/* Reads must stay in bounds, and none may reach the data. */
struct made_file {
    uint8_t prefix[12];
    size_t prefix_len;
    const uint8_t *header;
    size_t header_len;
};

static bool made_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct made_file *file = context;
    (void)err;
    for (size_t i = 0; i < len; i++) {
        uint64_t at = off + i;
        if (at < file->prefix_len)
            ((uint8_t *)out)[i] = file->prefix[at];
        else if (at - file->prefix_len < file->header_len)
            ((uint8_t *)out)[i] = file->header[at - file->prefix_len];
        else
            FUZZ_CHECK(off == 0 && len <= 12); /* the longer of the two prefixes, read before it is known */
    }
    return true;
}

static bool parse(const struct td_input *input, size_t memory)
{
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(&td_format_npy, input, memory, &manifest, &err);
    if (ok) {
        FUZZ_CHECK(manifest.tensor_count == 1 && manifest.tensors[0].name_len == 0);
        fuzz_check_manifest(&manifest, 10, input->size_bytes, NULL);
    } else {
        fuzz_check_refusal(&err, input->size_bytes);
    }
    td_manifest_fini(&manifest);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_input whole = td_input_memory(data, size);
    (void)parse(&whole, 0);
    if (size < 3)
        return 0;
    uint8_t major = (uint8_t)(1 + data[0] % 3);
    struct made_file file = {.prefix = {0x93, 'N', 'U', 'M', 'P', 'Y', major},
                             .prefix_len = major == 1 ? 10 : 12,
                             .header = data + 1,
                             .header_len = size - 3};
    if (major == 1 && file.header_len > UINT16_MAX)
        return 0;
    for (size_t i = 8; i < file.prefix_len; i++)
        file.prefix[i] = (uint8_t)(file.header_len >> 8 * (i - 8));
    struct td_input input = {.read = made_read, .context = &file};
    input.size_bytes = file.prefix_len + file.header_len + td_load_le16(data + size - 2);
    bool ok = parse(&input, 0);
    FUZZ_CHECK(ok || !parse(&input, 2000));
    return 0;
}
