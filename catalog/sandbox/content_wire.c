#include "catalog/sandbox/content_wire.h"

#include "catalog/model/dcp_checkpoint.h"
#include "catalog/sandbox/manifest_wire.h"
#include "parser/formats.h"
#include "parser/model_card.h"
#include "parser/torch/torch_distcp.h"

#include <stdlib.h>
#include <string.h>

/* Each read_ function reads what the write_ function beside it writes. It trusts no value: when it succeeds, all that
 * the headers of the parsers promise is true of the result. The caller frees the result, also after a failure. Errors:
 * TD_INTERNAL when the bytes are wrong; TD_RESOURCE_EXHAUSTED. */

/* ---- what several kinds of content have ---------------------------------------------------------------- */

/* The least bytes of one item on the wire. */
enum { ENTRY_BYTES = 12, TENSOR_BYTES = 18, PIECE_BYTES = 21, TAG_BYTES = 13 };

/* Reads a tensor's name, which must sort after `before` (NULL for the first name). */
static const char *read_name(struct td_wire_reader *in, struct td_arena *arena, const char *before, uint32_t *len)
{
    const char *name = td_wire_get_copy(in, arena);
    size_t bytes = name == NULL ? 0 : strlen(name);
    (void)td_wire_check(in, name != NULL && bytes <= UINT32_MAX && (before == NULL || strcmp(before, name) < 0));
    *len = (uint32_t)bytes;
    return name;
}

/* ---- facts --------------------------------------------------------------------------------------------- */

/* Appends the facts. NULL stands for no facts. */
static void write_facts(const struct td_facts *facts, struct td_wire_writer *out)
{
    td_wire_put_u8(out, facts != NULL);
    if (facts == NULL)
        return;
    td_wire_put_text(out, td_text_n(facts->json, facts->json_len));
    td_wire_put_string(out, facts->pipeline_tag);
    td_wire_put_string(out, facts->library_name);
    td_wire_put_string(out, facts->architecture);
    td_wire_put_string(out, facts->model_type);
    td_wire_put_u8(out, facts->has_chat_template);
    td_wire_put_u64(out, facts->tag_count);
    for (size_t i = 0; i < facts->tag_count; i++) {
        td_wire_put_text(out, td_text_of(facts->tags[i].value));
        td_wire_put_u32(out, facts->tags[i].key);
        td_wire_put_u8(out, facts->tags[i].repeats);
    }
}

static void read_tags(struct td_wire_reader *in, struct td_facts *facts)
{
    size_t count = td_wire_get_count(in, TAG_BYTES);
    (void)td_wire_check(in, count <= TD_FACTS_TAGS_MAX);
    facts->tags = td_wire_get_array(in, &facts->arena, count, sizeof *facts->tags);
    for (size_t i = 0; i < count && !in->failed; i++) {
        struct td_fact_tag *tag = &facts->tags[i];
        tag->value = td_wire_get_copy(in, &facts->arena);
        tag->key = td_wire_get_u32(in);
        tag->repeats = td_wire_get_bool(in);
        (void)td_wire_check(in, tag->value != NULL && tag->value[0] != '\0' &&
                                    strlen(tag->value) < TD_FACTS_WORD_BYTES && tag->key < td_fact_tag_keys());
    }
    facts->tag_count = in->failed ? 0 : count;
}

/* Reads what write_facts wrote. Sets *out, which the caller destroys, or NULL for none and on failure. The texts are
 * UTF-8, the JSON is one object, and the tags have known keys. */
static bool read_facts(struct td_wire_reader *in, struct td_facts **out, struct td_error *err)
{
    *out = NULL;
    if (!td_wire_get_bool(in))
        return !in->failed || td_wire_refuse(in, err);
    struct td_facts *facts = calloc(1, sizeof *facts);
    if (facts == NULL)
        return td_error_no_memory(err);
    td_arena_init(&facts->arena, 0); /* in proportion to the bytes */
    facts->json = td_wire_get_copy(in, &facts->arena);
    facts->json_len = facts->json == NULL ? 0 : strlen(facts->json);
    facts->pipeline_tag = td_wire_get_string(in, &facts->arena);
    facts->library_name = td_wire_get_string(in, &facts->arena);
    facts->architecture = td_wire_get_string(in, &facts->arena);
    facts->model_type = td_wire_get_string(in, &facts->arena);
    facts->has_chat_template = td_wire_get_bool(in);
    if (td_wire_check(in, facts->json != NULL && facts->json_len <= TD_CARD_MAX_JSON_BYTES)) {
        td_wire_check_json(in, facts->json, '{');
        read_tags(in, facts);
    }
    if (!in->failed) {
        *out = facts;
        return true;
    }
    td_facts_destroy(facts);
    return td_wire_refuse(in, err);
}

/* ---- sharded checkpoints ------------------------------------------------------------------------------- */

/* Appends the index. */
static void write_shard_index(const struct td_shard_index *index, struct td_wire_writer *out)
{
    td_wire_put_u8(out, index->by_group);
    td_wire_put_u8(out, index->is_delta);
    td_wire_put_string(out, index->base_version);
    td_wire_put_paths(out, index->files, index->file_count);
    td_wire_put_u64(out, index->entry_count);
    for (size_t i = 0; i < index->entry_count; i++) {
        td_wire_put_text(out, td_text_n(index->entries[i].tensor, index->entries[i].tensor_len));
        td_wire_put_u32(out, index->entries[i].file);
    }
}

/* Reads an index into *index, which is all zero. */
static bool read_shard_index(struct td_wire_reader *in, struct td_shard_index *index, struct td_error *err)
{
    const char *before = NULL;
    td_arena_init(&index->arena, 0); /* in proportion to the bytes */
    uint8_t by_group = td_wire_get_u8(in);
    index->by_group = by_group != 0;
    index->is_delta = td_wire_get_bool(in);
    index->base_version = td_wire_get_string(in, &index->arena);
    (void)td_wire_check(in, index->is_delta ? by_group == 0 : index->base_version == NULL);
    (void)td_wire_check(in, index->base_version == NULL || strlen(index->base_version) < TD_SHARD_VERSION_BYTES);
    index->files = td_wire_get_paths(in, &index->arena, &index->file_count);
    size_t count = td_wire_get_count(in, ENTRY_BYTES);
    (void)td_wire_check(in, by_group <= 1 && (by_group == 0 || count == 0));
    index->entries = td_wire_get_array(in, &index->arena, count, sizeof *index->entries);
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

/* Appends the boxes. */
static void write_dcp(const struct td_dcp *dcp, struct td_wire_writer *out)
{
    td_wire_put_paths(out, dcp->files, dcp->file_count);
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

static void read_dcp_tensor(struct td_wire_reader *in, struct td_dcp *dcp, const char *before,
                            struct td_dcp_tensor *tensor)
{
    tensor->name = read_name(in, &dcp->arena, before, &tensor->name_len);
    tensor->rank = td_wire_get_u8(in);
    tensor->dtype = td_dtype_at(td_wire_get_u8(in));
    if (!td_wire_check(in, tensor->rank <= TD_MAX_RANK && tensor->dtype != NULL && tensor->dtype->block_elems == 1 &&
                               tensor->dtype->block_bytes > 0))
        return;
    tensor->shape = td_wire_get_numbers(in, tensor->rank, &dcp->arena);
    size_t count = td_wire_get_count(in, PIECE_BYTES);
    struct td_dcp_piece *pieces = td_wire_get_array(in, &dcp->arena, count, sizeof *pieces);
    (void)td_wire_check(in, count <= UINT32_MAX);
    for (size_t i = 0; i < count && !in->failed; i++)
        read_piece(in, dcp, tensor->rank, &pieces[i]);
    tensor->pieces = pieces;
    tensor->piece_count = in->failed ? 0 : (uint32_t)count;
}

/* Reads boxes into *dcp, which is all zero; takes at most max_memory_bytes (0: any number). */
static bool read_dcp(struct td_wire_reader *in, size_t max_memory_bytes, struct td_dcp *dcp, struct td_error *err)
{
    td_arena_init(&dcp->arena, max_memory_bytes);
    dcp->files = td_wire_get_paths(in, &dcp->arena, &dcp->file_count);
    size_t count = td_wire_get_count(in, TENSOR_BYTES);
    dcp->tensors = td_wire_get_array(in, &dcp->arena, count, sizeof *dcp->tensors);
    for (size_t i = 0; i < count && !in->failed; i++) {
        read_dcp_tensor(in, dcp, i == 0 ? NULL : dcp->tensors[i - 1].name, &dcp->tensors[i]);
        dcp->tensor_count = i + (in->failed ? 0 : 1);
    }
    return !in->failed || td_wire_refuse(in, err);
}

/* ---- errors -------------------------------------------------------------------------------------------- */

void td_error_write(const struct td_error *error, struct td_wire_writer *out)
{
    td_wire_put_u32(out, (uint32_t)error->code);
    td_wire_put_u32(out, (uint32_t)error->sys);
    td_wire_put_u64(out, error->pos);
    td_wire_put_text(out, td_text_of(error->message));
}

void td_error_read(struct td_wire_reader *in, struct td_error *out)
{
    uint32_t code = td_wire_get_u32(in);
    uint32_t sys = td_wire_get_u32(in);
    uint64_t pos = td_wire_get_u64(in);
    struct td_text message = td_wire_get_text(in);
    td_error_init(out);
    bool is_none = sys == 0 && pos == TD_ERROR_POS_NONE && message.len == 0;
    if (!td_wire_check(in, code <= TD_INTERNAL && (code != TD_OK || is_none)) || code == TD_OK)
        return;
    (void)td_error_at(out, (enum td_code)code, pos, "%.*s", TD_SHOW(message, TD_ERROR_MESSAGE_BYTES - 1));
    out->sys = sys <= INT32_MAX ? (int)sys : 0;
}

/* ---- content ------------------------------------------------------------------------------------------- */

static bool has_tensors(const struct td_file *file)
{
    return file->kind == TD_FILE_TENSORS || file->kind == TD_FILE_DCP_PART;
}

/* Returns the number of a format from 1 on; 0 for NULL. */
static uint32_t number_of(const struct td_format *format)
{
    uint32_t number = 0;
    while (format != NULL && td_format_at(number) != format)
        number++;
    return format == NULL ? 0 : number + 1;
}

void td_content_write(const struct td_file *file, const struct td_error *error, struct td_wire_writer *out)
{
    td_error_write(error, out);
    if (file->kind == TD_FILE_PLAIN && file->facts_kind != TD_FACTS_NONE) {
        write_facts(file->facts, out); /* an error may leave facts */
        return;
    }
    if (error->code != TD_OK)
        return;
    if (file->kind == TD_FILE_SHARD_INDEX)
        write_shard_index(&file->index, out);
    else if (file->kind == TD_FILE_DCP_METADATA)
        write_dcp(&file->dcp, out);
    else
        td_wire_put_u32(out, number_of(file->format));
    if (has_tensors(file) && file->format != NULL)
        td_manifest_write(&file->manifest, out);
}

/* Returns whether the servable tensors in a part of a distributed checkpoint have no coding and are little-endian: the
 * join uses only their offsets. */
static bool are_plain(const struct td_manifest *manifest)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const struct td_tensor *tensor = &manifest->tensors[i];
        if (tensor->reason == NULL && (tensor->coding != NULL || tensor->big_endian))
            return false;
    }
    return true;
}

static bool read_tensors(struct td_wire_reader *in, struct td_file *file, struct td_error *err)
{
    uint32_t number = td_wire_get_u32(in);
    const struct td_format *format = number == 0 ? NULL : td_format_at(number - 1);
    bool is_part = file->kind == TD_FILE_DCP_PART;
    if (!td_wire_check(in, number == 0 ? !is_part : format != NULL && (format == &td_format_distcp) == is_part))
        return td_wire_refuse(in, err);
    file->format = format;
    if (format == NULL) {
        file->kind = TD_FILE_PLAIN;
        return true;
    }
    if (file->kind == TD_FILE_MAYBE_TENSORS)
        file->kind = TD_FILE_TENSORS;
    return td_manifest_read(in, file->source.id.size_bytes, &file->manifest, err) &&
           (td_wire_check(in, !is_part || are_plain(&file->manifest)) || td_wire_refuse(in, err)) &&
           td_facts_count_elements(&file->manifest, &file->counts, &file->count_count, err);
}

static bool read_content(struct td_wire_reader *in, struct td_file *file, const struct td_limits *limits,
                         struct td_error *err)
{
    switch (file->kind) {
    case TD_FILE_PLAIN:
        return read_facts(in, &file->facts, err);
    case TD_FILE_SHARD_INDEX:
        return read_shard_index(in, &file->index, err);
    case TD_FILE_DCP_METADATA:
        return read_dcp(in, limits->max_memory_bytes, &file->dcp, err) &&
               td_dcp_check(&file->dcp, file->source.id.size_bytes, limits->max_memory_bytes, err);
    default:
        return read_tensors(in, file, err);
    }
}

bool td_content_read(struct td_wire_reader *in, const struct td_error *of_parse, struct td_file *file,
                     const struct td_limits *limits, struct td_error *err)
{
    bool has_content = of_parse->code == TD_OK || (file->kind == TD_FILE_PLAIN && file->facts_kind != TD_FACTS_NONE);
    if (!in->failed && has_content && !read_content(in, file, limits, err))
        return false;
    return td_wire_check(in, in->p == in->end) || td_wire_refuse(in, err);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

void td_rows_write(const struct td_row_index *index, struct td_wire_writer *out)
{
    td_wire_put_u32(out, (uint32_t)index->layout);
    td_wire_put_u64(out, index->row_count);
    td_wire_put_numbers(out, index->params, TD_ROW_PARAMS);
    td_wire_put_string(out, index->columns);
    td_wire_put_string(out, index->reason);
    td_wire_put_u64(out, index->word_count);
    td_wire_put_numbers(out, index->words, index->word_count);
}

/* Returns a copy of the next string for free(), or NULL when NULL was written. */
static char *get_string(struct td_wire_reader *in)
{
    if (!td_wire_get_bool(in))
        return NULL;
    struct td_text text = td_wire_get_text(in);
    return in->failed ? NULL : td_wire_need(in, td_text_copy(text));
}

static void get_words(struct td_wire_reader *in, struct td_row_index *out)
{
    size_t count = td_wire_get_count(in, sizeof *out->words);
    out->words = count == 0 ? NULL : td_wire_need(in, malloc(count * sizeof *out->words));
    if (out->words == NULL)
        return;
    td_wire_get(in, out->words, count * sizeof *out->words);
    out->word_count = count;
}

bool td_rows_read(struct td_wire_reader *in, const struct td_row_format *format, uint64_t data_bytes,
                  uint64_t table_bytes, struct td_row_index *out, struct td_error *err)
{
    *out = (struct td_row_index){.format = format, .data_bytes = data_bytes, .table_bytes = table_bytes};
    uint32_t layout = td_wire_get_u32(in);
    if (!td_wire_check(in, layout < TD_ROWS_LAYOUTS))
        return td_wire_refuse(in, err);
    out->layout = (enum td_row_layout)layout;
    out->row_count = td_wire_get_u64(in);
    td_wire_get(in, out->params, sizeof out->params);
    out->columns = get_string(in);
    out->reason = get_string(in);
    get_words(in, out);
    if (out->columns != NULL)
        td_wire_check_json(in, out->columns, '[');
    if (td_wire_check(in, in->p == in->end) && td_wire_check(in, td_row_index_check(out)))
        return true;
    td_row_index_fini(out);
    return td_wire_refuse(in, err);
}
