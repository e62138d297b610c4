/* The first byte says what kind of file it is, the next two its size; the rest is what a parser's process that was
 * taken over may send. What is accepted keeps every rule of a parse, and is written again as it was read. */
#include "catalog/sandbox/content_wire.h"
#include "core/buffer.h"
#include "parser/format/names.h"
#include "parser/formats.h"
#include "parser/rows/row_formats.h"

#include "tests/fuzz/fuzz_manifest.h"

enum { KINDS = 6, ROWS = 5, MEMORY = 1 << 20 };

static bool append(void *context, const void *bytes, size_t len)
{
    td_buffer_append(context, bytes, len);
    return true;
}

static void check_refusal(const struct td_error *err)
{
    size_t len = strlen(err->message);
    FUZZ_CHECK(err->code == TD_INTERNAL || err->code == TD_INVALID_ARGUMENT || err->code == TD_RESOURCE_EXHAUSTED);
    FUZZ_CHECK(len > 0 && td_utf8_valid(err->message, len));
}

static bool is_not_served(const struct td_tensor *t)
{
    return t->reason != NULL;
}

/* Checks what the join of a distributed checkpoint relies on. */
static void check_dcp(const struct td_dcp *dcp)
{
    for (size_t i = 0; i < dcp->tensor_count; i++) {
        const struct td_dcp_tensor *t = &dcp->tensors[i];
        const char *before = i == 0 ? NULL : t[-1].name;
        fuzz_check_name(t->name, t->name_len, before, before == NULL ? 0 : t[-1].name_len);
        FUZZ_CHECK(t->rank <= TD_MAX_RANK && t->dtype->block_bytes > 0 && (t->rank == 0) == (t->shape == NULL));
        for (uint32_t k = 0; k < t->piece_count; k++)
            FUZZ_CHECK(t->pieces[k].file < dcp->file_count);
    }
}

static void check_index(const struct td_shard_index *index)
{
    for (size_t i = 0; i < index->entry_count; i++) {
        const struct td_shard_entry *e = &index->entries[i];
        const char *before = i == 0 ? NULL : e[-1].tensor;
        fuzz_check_name(e->tensor, e->tensor_len, before, before == NULL ? 0 : e[-1].tensor_len);
        FUZZ_CHECK(e->file < index->file_count);
    }
    for (size_t i = 0; i < index->file_count; i++)
        FUZZ_CHECK(td_is_path_below(td_text_of(index->files[i])));
    FUZZ_CHECK(!index->is_delta || !index->by_group);
    FUZZ_CHECK(index->base_version == NULL ||
               (index->is_delta && strlen(index->base_version) < TD_SHARD_VERSION_BYTES));
}

/* Checks that `written` and the last part of the writer are the input. */
static void check_same(struct td_buffer *written, const struct td_wire_writer *writer, const uint8_t *data, size_t size)
{
    td_buffer_append(written, writer->part, writer->len);
    FUZZ_CHECK(written->len == size && (size == 0 || memcmp(written->data, data, size) == 0));
    td_buffer_fini(written);
}

static void read_rows(const uint8_t *data, size_t size, uint64_t file_bytes)
{
    static struct td_wire_writer writer;
    struct td_wire_reader in = td_wire_reader_of(data, size);
    struct td_row_index index;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer again;
    if (!td_rows_read(&in, td_row_format_at(0), file_bytes, 0, &index, &err)) {
        check_refusal(&err);
        return;
    }
    FUZZ_CHECK(td_row_index_check(&index) && index.data_bytes == file_bytes);
    td_buffer_init(&again);
    td_wire_writer_init(&writer, append, &again);
    td_rows_write(&index, &writer);
    check_same(&again, &writer, data, size);
    td_row_index_fini(&index);
}

static void read_file(enum td_file_kind kind, const uint8_t *data, size_t size, uint64_t file_bytes)
{
    static struct td_wire_writer writer;
    const struct td_limits limits = {.max_header_bytes = MEMORY, .max_memory_bytes = MEMORY};
    struct td_wire_reader in = td_wire_reader_of(data, size);
    struct td_error err = TD_ERROR_INIT;
    struct td_error of_parse;
    struct td_buffer again;
    struct td_file file = {.kind = kind,
                           .format = td_format_at(0),
                           .facts_kind = kind == TD_FILE_PLAIN ? TD_FACTS_CARD : TD_FACTS_NONE,
                           .source.id.size_bytes = file_bytes};
    td_manifest_init(&file.manifest, MEMORY);
    td_error_read(&in, &of_parse);
    bool ok = td_content_read(&in, &of_parse, &file, &limits, &err);
    if (!ok)
        check_refusal(&err);
    if (ok && of_parse.code == TD_OK) {
        if (file.format != NULL && kind != TD_FILE_SHARD_INDEX && kind != TD_FILE_DCP_METADATA)
            fuzz_check_manifest(&file.manifest, 0, file_bytes, is_not_served);
        check_index(&file.index);
        check_dcp(&file.dcp);
        td_buffer_init(&again);
        td_wire_writer_init(&writer, append, &again);
        td_content_write(&file, &of_parse, &writer);
        check_same(&again, &writer, data, size);
    }
    td_file_forget_content(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum td_file_kind kinds[] = {TD_FILE_TENSORS, TD_FILE_DCP_PART, TD_FILE_SHARD_INDEX,
                                              TD_FILE_DCP_METADATA, TD_FILE_PLAIN};
    if (size < 3)
        return 0;
    uint64_t file_bytes = td_load_le16(data + 1);
    if (data[0] % KINDS == ROWS)
        read_rows(data + 3, size - 3, file_bytes);
    else
        read_file(kinds[data[0] % KINDS], data + 3, size - 3, file_bytes);
    return 0;
}
