/* The input is parsed as an archive of torch.export.save, and again with little memory. */
#include "parser/torch/pt2.h"

#include "tests/fuzz/fuzz_manifest.h"

static bool has_no_size(const struct td_tensor *t)
{
    return t->reason != NULL;
}

static bool parse(const void *bytes, size_t size, size_t memory)
{
    struct td_input input = td_input_memory(bytes, size);
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(&td_format_pt2, &input, memory, &manifest, &err);
    if (ok)
        fuzz_check_manifest(&manifest, 0, size, has_no_size);
    else
        fuzz_check_refusal_somewhere(&err, size);
    td_manifest_fini(&manifest);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool ok = parse(data, size, 0);
    bool ok_limited = parse(data, size, 1024 + 2 * size);
    FUZZ_CHECK(ok || !ok_limited);
    return 0;
}
