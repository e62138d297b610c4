/* The first byte says what the input is. 'D': a file of several archives. 'M': a pickle, the metadata of a distributed
 * checkpoint. 'R': one byte of options, then data.pkl, beside records that always exist. Else: an archive or a legacy
 * file of torch.save (the last resort, too). */
#include "parser/torch/torch.h"

#include "parser/torch/torch_dcp.h"
#include "parser/torch/torch_distcp.h"
#include "tests/fuzz/fuzz_manifest.h"

enum { RECORD_BYTES = 96, MEMORY_SMALL = 120000 };

/* ---- what every result must be -------------------------------------------------------------------------- */

static bool is_opaque(const struct td_tensor *t)
{
    return t->reason != NULL &&
           (t->dtype->block_bytes == 0 || strcmp(t->reason, "packed below a byte") == 0 || t->nbytes == 0);
}

static void check_manifest(const struct td_manifest *m, uint64_t size)
{
    fuzz_check_manifest(m, 0, size, is_opaque);
    for (size_t i = 0; i < m->tensor_count; i++)
        FUZZ_CHECK(m->tensors[i].reason == NULL || m->tensors[i].piece_count == 0);
    FUZZ_CHECK(m->metadata_count <= 1000);
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static bool parse_file(const struct td_format *format, const uint8_t *data, size_t size, size_t memory)
{
    struct td_input input = td_input_memory(data, size);
    struct td_manifest manifest;
    struct td_error err;
    bool ok = fuzz_parse(format, &input, memory, &manifest, &err);
    if (ok)
        check_manifest(&manifest, size);
    else
        fuzz_check_refusal_somewhere(&err, size);
    td_manifest_fini(&manifest);
    return ok;
}

/* ---- distributed checkpoints ---------------------------------------------------------------------------- */

static void check_dcp(const struct td_dcp *dcp)
{
    for (size_t i = 0; i < dcp->file_count; i++) {
        const char *file = dcp->files[i];
        FUZZ_CHECK(file[0] != '\0' && strchr(file, '/') == NULL && td_utf8_valid(file, strlen(file)));
        FUZZ_CHECK(i == 0 || strcmp(dcp->files[i - 1], file) < 0);
    }
    for (size_t i = 0; i < dcp->tensor_count; i++) {
        const struct td_dcp_tensor *t = &dcp->tensors[i];
        fuzz_check_name(t->name, t->name_len, i == 0 ? NULL : t[-1].name, i == 0 ? 0 : t[-1].name_len);
        FUZZ_CHECK(t->dtype != NULL && t->rank <= TD_MAX_RANK);
        for (uint32_t p = 0; p < t->piece_count; p++) {
            const struct td_dcp_piece *piece = &t->pieces[p];
            FUZZ_CHECK(piece->file < dcp->file_count && piece->item_offset <= INT64_MAX);
            FUZZ_CHECK(t->rank == 0 || (piece->starts != NULL && piece->sizes != NULL));
            for (uint32_t d = 0; d < t->rank; d++)
                FUZZ_CHECK(piece->starts[d] <= INT64_MAX && piece->sizes[d] <= INT64_MAX);
        }
    }
}

static bool parse_dcp(const uint8_t *data, size_t size, size_t memory)
{
    struct td_input input = td_input_memory(data, size);
    struct td_limits limits = td_limits_default();
    struct td_dcp dcp;
    struct td_error err = TD_ERROR_INIT;
    limits.max_memory_bytes = memory;
    bool ok = td_dcp_parse(&dcp, &input, &limits, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (ok)
        check_dcp(&dcp);
    else
        fuzz_check_refusal_somewhere(&err, size);
    td_dcp_fini(&dcp);
    return ok;
}

/* ---- records -------------------------------------------------------------------------------------------- */

/* data.pkl is the input. "data/KEY" has as many bytes as its key says, or RECORD_BYTES. */
struct made_records {
    const uint8_t *pickle;
    size_t len;
    uint8_t options; /* 1: big-endian, 2: compressed, 4: with constants */
};

static bool find_record(const void *context, struct td_text name, struct td_torch_record *out)
{
    const struct made_records *made = context;
    bool constants = (made->options & 4) != 0;
    *out = (struct td_torch_record){.offset = 0, .nbytes = made->len};
    if ((name.len == 8 && memcmp(name.p, "data.pkl", 8) == 0) ||
        (constants && name.len == 13 && memcmp(name.p, "constants.pkl", 13) == 0))
        return true;
    *out = (struct td_torch_record){.offset = made->len, .nbytes = 3};
    if (name.len == 9 && memcmp(name.p, "byteorder", 9) == 0)
        return (made->options & 1) != 0;
    out->nbytes = RECORD_BYTES;
    out->reason = (made->options & 2) != 0 ? "compressed (deflate)" : NULL;
    FUZZ_CHECK(name.len < 300 && memchr(name.p, '\0', name.len) == NULL);
    return name.len > 5 &&
           (memcmp(name.p, "data/", 5) == 0 || (name.len > 10 && memcmp(name.p, "constants/", 10) == 0));
}

static uint8_t *load_record(const void *context, struct td_text name, uint64_t limit_bytes, size_t *out_len,
                            struct td_error *err)
{
    const struct made_records *made = context;
    bool order = name.len == 9 && memcmp(name.p, "byteorder", 9) == 0;
    *out_len = order ? 3 : made->len;
    FUZZ_CHECK(*out_len <= limit_bytes);
    uint8_t *bytes = malloc(*out_len + 1);
    if (bytes == NULL)
        (void)td_error_no_memory(err);
    else
        memcpy(bytes, order ? (const uint8_t *)"big" : made->pickle, *out_len);
    return bytes;
}

static bool parse_records(const uint8_t *data, size_t size, size_t memory)
{
    struct made_records made = {.pickle = data + 1, .len = size - 1, .options = data[0]};
    struct td_torch_records records = {
        .context = &made, .find = find_record, .load = load_record, .file_bytes = made.len + RECORD_BYTES};
    struct td_manifest manifest;
    struct td_error err;
    struct td_limits limits = fuzz_parse_begin(&manifest, &err, memory);
    bool ok = td_torch_parse_records(&records, &limits, &manifest, &err);
    fuzz_parse_end(&manifest, &err, ok, memory);
    if (ok)
        check_manifest(&manifest, records.file_bytes);
    else
        fuzz_check_refusal_somewhere(&err, records.file_bytes);
    for (size_t i = 0; ok && i < manifest.tensor_count; i++) {
        const struct td_tensor *t = &manifest.tensors[i];
        FUZZ_CHECK(t->reason != NULL || t->nbytes == 0 || t->offset >= made.len); /* in its record */
        bool is_big = made.options % 2 != 0;
        FUZZ_CHECK(t->reason != NULL || !is_big || t->dtype->block_bytes == 1 || t->big_endian);
    }
    td_manifest_fini(&manifest);
    return ok;
}

static bool parse_any(const uint8_t *data, size_t size, size_t memory)
{
    if (size > 1 && data[0] == 'D')
        return parse_file(&td_format_distcp, data + 1, size - 1, memory);
    if (size > 1 && data[0] == 'M')
        return parse_dcp(data + 1, size - 1, memory);
    if (size > 2 && data[0] == 'R')
        return parse_records(data + 1, size - 1, memory);
    return parse_file(&td_format_torch, data, size, memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool ok = parse_any(data, size, td_limits_default().max_memory_bytes);
    FUZZ_CHECK(ok || !parse_any(data, size, MEMORY_SMALL));
    return 0;
}
