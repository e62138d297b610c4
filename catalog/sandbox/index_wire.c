#include "catalog/sandbox/index_wire.h"

#include "parser/format/manifest.h"
#include "parser/format/names.h"

#include <string.h>

/* The least bytes of one item on the wire. */
enum { FILE_BYTES = 8, ENTRY_BYTES = 12, TENSOR_BYTES = 18, PIECE_BYTES = 21 };

/* ---- what both have ------------------------------------------------------------------------------------ */

static void write_files(const char *const *files, size_t count, struct td_wire_writer *out)
{
    td_wire_put_u64(out, count);
    for (size_t i = 0; i < count; i++)
        td_wire_put_text(out, td_text_of(files[i]));
}

/* Returns room in the arena, or NULL and notes it. */
static void *get_array(struct td_wire_reader *in, struct td_arena *arena, size_t count, size_t size)
{
    void *items = in->failed ? NULL : td_arena_array(arena, count, size);
    if (items == NULL && !in->failed)
        in->no_memory = in->failed = true;
    return items;
}

/* Reads names of files below one directory, in order and each once. */
static const char **read_files(struct td_wire_reader *in, struct td_arena *arena, size_t *count)
{
    *count = td_wire_get_count(in, FILE_BYTES);
    const char **files = get_array(in, arena, *count, sizeof *files);
    for (size_t i = 0; i < *count && !in->failed; i++) {
        files[i] = td_wire_get_copy(in, arena);
        (void)td_wire_check(in, files[i] != NULL && td_is_path_below(td_text_of(files[i])) &&
                                    (i == 0 || strcmp(files[i - 1], files[i]) < 0));
    }
    return files;
}

/* Reads a tensor's name, which must sort after `before` (NULL for the first name). */
static const char *read_name(struct td_wire_reader *in, struct td_arena *arena, const char *before, uint32_t *len)
{
    const char *name = td_wire_get_copy(in, arena);
    size_t bytes = name == NULL ? 0 : strlen(name);
    (void)td_wire_check(in, name != NULL && bytes <= UINT32_MAX && (before == NULL || strcmp(before, name) < 0));
    *len = (uint32_t)bytes;
    return name;
}

/* ---- sharded checkpoints ------------------------------------------------------------------------------- */

void td_shard_index_write(const struct td_shard_index *index, struct td_wire_writer *out)
{
    td_wire_put_u8(out, index->by_group);
    write_files(index->files, index->file_count, out);
    td_wire_put_u64(out, index->entry_count);
    for (size_t i = 0; i < index->entry_count; i++) {
        td_wire_put_text(out, td_text_n(index->entries[i].tensor, index->entries[i].tensor_len));
        td_wire_put_u32(out, index->entries[i].file);
    }
}

bool td_shard_index_read(struct td_wire_reader *in, struct td_shard_index *index, struct td_error *err)
{
    const char *before = NULL;
    td_arena_init(&index->arena, 0); /* in proportion to the bytes */
    uint8_t by_group = td_wire_get_u8(in);
    index->by_group = by_group != 0;
    index->files = read_files(in, &index->arena, &index->file_count);
    size_t count = td_wire_get_count(in, ENTRY_BYTES);
    (void)td_wire_check(in, by_group <= 1 && (by_group == 0 || count == 0));
    index->entries = get_array(in, &index->arena, count, sizeof *index->entries);
    for (size_t i = 0; i < count && !in->failed; i++) {
        struct td_shard_entry *entry = &index->entries[i];
        entry->tensor = read_name(in, &index->arena, before, &entry->tensor_len);
        entry->file = td_wire_get_u32(in);
        before = entry->tensor;
        (void)td_wire_check(in, entry->file < index->file_count);
    }
    index->entry_count = in->failed ? 0 : count;
    return !in->failed || td_wire_refuse(in, err);
}

/* ---- distributed checkpoints --------------------------------------------------------------------------- */

static void write_piece(const struct td_dcp_piece *piece, uint32_t rank, struct td_wire_writer *out)
{
    td_wire_put_u32(out, piece->file);
    td_wire_put_u64(out, piece->item_offset);
    td_wire_put_u64(out, piece->item_bytes);
    td_wire_put_numbers(out, piece->starts, rank);
    td_wire_put_numbers(out, piece->sizes, rank);
    td_wire_put_string(out, piece->reason);
}

void td_dcp_write(const struct td_dcp *dcp, struct td_wire_writer *out)
{
    write_files(dcp->files, dcp->file_count, out);
    td_wire_put_u64(out, dcp->tensor_count);
    for (size_t i = 0; i < dcp->tensor_count; i++) {
        const struct td_dcp_tensor *tensor = &dcp->tensors[i];
        td_wire_put_text(out, td_text_n(tensor->name, tensor->name_len));
        td_wire_put_u8(out, (uint8_t)tensor->rank);
        td_wire_put_u8(out, (uint8_t)td_dtype_number(tensor->dtype));
        td_wire_put_numbers(out, tensor->shape, tensor->rank);
        td_wire_put_u64(out, tensor->piece_count);
        for (uint32_t k = 0; k < tensor->piece_count; k++)
            write_piece(&tensor->pieces[k], tensor->rank, out);
    }
}

static void read_piece(struct td_wire_reader *in, struct td_dcp *dcp, uint32_t rank, struct td_dcp_piece *piece)
{
    piece->file = td_wire_get_u32(in);
    piece->item_offset = td_wire_get_u64(in);
    piece->item_bytes = td_wire_get_u64(in);
    piece->starts = td_wire_get_numbers(in, rank, &dcp->arena);
    piece->sizes = td_wire_get_numbers(in, rank, &dcp->arena);
    piece->reason = td_wire_get_string(in, &dcp->arena);
    (void)td_wire_check(in, piece->file < dcp->file_count && (piece->reason == NULL || piece->reason[0] != '\0'));
}

static void read_tensor(struct td_wire_reader *in, struct td_dcp *dcp, const char *before, struct td_dcp_tensor *tensor)
{
    tensor->name = read_name(in, &dcp->arena, before, &tensor->name_len);
    tensor->rank = td_wire_get_u8(in);
    tensor->dtype = td_dtype_at(td_wire_get_u8(in));
    if (!td_wire_check(in, tensor->rank <= TD_MAX_RANK && tensor->dtype != NULL && tensor->dtype->block_elems == 1 &&
                               tensor->dtype->block_bytes > 0))
        return;
    tensor->shape = td_wire_get_numbers(in, tensor->rank, &dcp->arena);
    size_t count = td_wire_get_count(in, PIECE_BYTES);
    struct td_dcp_piece *pieces = get_array(in, &dcp->arena, count, sizeof *pieces);
    (void)td_wire_check(in, count <= UINT32_MAX);
    for (size_t i = 0; i < count && !in->failed; i++)
        read_piece(in, dcp, tensor->rank, &pieces[i]);
    tensor->pieces = pieces;
    tensor->piece_count = in->failed ? 0 : (uint32_t)count;
}

bool td_dcp_read(struct td_wire_reader *in, size_t max_memory_bytes, struct td_dcp *dcp, struct td_error *err)
{
    td_arena_init(&dcp->arena, max_memory_bytes);
    dcp->files = read_files(in, &dcp->arena, &dcp->file_count);
    size_t count = td_wire_get_count(in, TENSOR_BYTES);
    dcp->tensors = get_array(in, &dcp->arena, count, sizeof *dcp->tensors);
    for (size_t i = 0; i < count && !in->failed; i++) {
        read_tensor(in, dcp, i == 0 ? NULL : dcp->tensors[i - 1].name, &dcp->tensors[i]);
        dcp->tensor_count = i + (in->failed ? 0 : 1);
    }
    return !in->failed || td_wire_refuse(in, err);
}
