#include "parser/rows/megatron.h"

#include "core/checked.h"
#include "parser/rows/index/row_format.h"

#include <inttypes.h>
#include <string.h>

enum { MAGIC_BYTES = 9, VERSION_AT = 9, TYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26, HEAD_BYTES = 34 };

static const char magic[MAGIC_BYTES] = "MMIDIDX\0";

/* DType of indexed_dataset.py, by its number less one. */
static const struct {
    const char *name;
    uint8_t bytes;
} types[] = {{"uint8", 1}, {"int8", 1},    {"int16", 2},   {"int32", 4},
             {"int64", 8}, {"float64", 8}, {"float32", 4}, {"uint16", 2}};

/* Checks the head up to the numbers of sequences and documents. */
static bool check_head(const uint8_t *head, struct td_error *err)
{
    uint64_t version = td_load_le64(head + VERSION_AT);
    if (memcmp(head, magic, sizeof magic) != 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0, "Megatron index: it does not begin with MMIDIDX");
    if (version != 1)
        return td_error_at(err, TD_INVALID_ARGUMENT, VERSION_AT,
                           "Megatron index: version %" PRIu64 " is unknown; 1 is known", version);
    if (head[TYPE_AT] < 1 || head[TYPE_AT] > sizeof types / sizeof *types)
        return td_error_at(err, TD_INVALID_ARGUMENT, TYPE_AT,
                           "Megatron index: type %u of tokens is unknown; 1 to 8 are known", head[TYPE_AT]);
    return true;
}

/* Computes the size of a table without modes. Returns false past 2^64-1. */
static bool table_bytes(uint64_t sequences, uint64_t documents, uint64_t *bytes)
{
    uint64_t lists;
    return td_mul_u64(sequences, 4 + 8, bytes) && td_mul_u64(documents, 8, &lists) &&
           td_add_u64(*bytes, lists, bytes) && td_add_u64(*bytes, HEAD_BYTES, bytes);
}

/* Checks that the sequences begin where the data file begins, and end where it ends. */
static bool check_ends(const struct td_row_files *files, const struct td_row_index *out, struct td_error *err)
{
    uint8_t first[8] = {0}, last[8] = {0}, length[4] = {0};
    uint64_t bytes, end = 0, rows = out->row_count;
    if (rows > 0 && (!td_input_read(&files->table, out->params[1], first, sizeof first, err) ||
                     !td_input_read(&files->table, out->params[1] + (rows - 1) * 8, last, sizeof last, err) ||
                     !td_input_read(&files->table, out->params[0] + (rows - 1) * 4, length, sizeof length, err)))
        return false;
    if (td_load_le64(first) != 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, out->params[1],
                           "Megatron index: the first sequence begins at byte %" PRIu64 ", not 0", td_load_le64(first));
    bool fits = td_load_le32(length) <= INT32_MAX && td_mul_u64(td_load_le32(length), out->params[2], &bytes) &&
                td_add_u64(td_load_le64(last), bytes, &end);
    if (!fits || end != files->data.size_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, rows > 0 ? out->params[1] + (rows - 1) * 8 : SEQUENCES_AT,
                           "Megatron index: the last sequence ends at byte %" PRIu64 ", but the data file has %" PRIu64,
                           end, files->data.size_bytes);
    return true;
}

static bool index_megatron(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    const struct td_input *table = &build->files->table;
    uint8_t head[HEAD_BYTES];
    uint64_t bytes;
    if (table->size_bytes < sizeof head)
        return td_error_at(err, TD_INVALID_ARGUMENT, table->size_bytes,
                           "Megatron index (.idx): it has %" PRIu64 " bytes, fewer than its head of %d",
                           table->size_bytes, HEAD_BYTES);
    if (!td_input_read(table, 0, head, sizeof head, err) || !check_head(head, err))
        return false;
    uint64_t sequences = td_load_le64(head + SEQUENCES_AT), documents = td_load_le64(head + DOCUMENTS_AT);
    if (!table_bytes(sequences, documents, &bytes) ||
        (bytes != table->size_bytes && (bytes > table->size_bytes || table->size_bytes - bytes != sequences)))
        return td_error_at(err, TD_INVALID_ARGUMENT, SEQUENCES_AT,
                           "Megatron index: %" PRIu64 " sequences and %" PRIu64 " documents do not fit its %" PRIu64
                           " bytes",
                           sequences, documents, table->size_bytes);
    out->layout = TD_ROWS_POINTERS;
    out->row_count = sequences;
    out->params[0] = HEAD_BYTES;
    out->params[1] = HEAD_BYTES + sequences * 4;
    out->params[2] = types[head[TYPE_AT] - 1].bytes;
    if (!check_ends(build->files, out, err))
        return false;
    struct td_buffer columns;
    td_buffer_init(&columns);
    td_row_columns_add(&columns, TD_TEXT("tokens"), types[head[TYPE_AT] - 1].name, NULL, 0);
    return td_row_columns_end(&columns, out, err);
}

static const char *const extensions[] = {NULL};

const struct td_row_format td_row_format_megatron = {.name = "megatron",
                                                     .extensions = extensions,
                                                     .table_extension = ".idx",
                                                     .row_type = "application/octet-stream",
                                                     .build = index_megatron};
