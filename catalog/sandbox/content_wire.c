#include "catalog/sandbox/content_wire.h"

#include "catalog/model/dcp_checkpoint.h"
#include "catalog/sandbox/facts_wire.h"
#include "catalog/sandbox/index_wire.h"
#include "catalog/sandbox/manifest_wire.h"
#include "parser/formats.h"
#include "parser/torch/torch_distcp.h"

#include <string.h>

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
        td_facts_write(file->facts, out); /* an error may leave facts */
        return;
    }
    if (error->code != TD_OK)
        return;
    if (file->kind == TD_FILE_SHARD_INDEX)
        td_shard_index_write(&file->index, out);
    else if (file->kind == TD_FILE_DCP_METADATA)
        td_dcp_write(&file->dcp, out);
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
        return td_facts_receive(in, &file->facts, err);
    case TD_FILE_SHARD_INDEX:
        return td_shard_index_read(in, &file->index, err);
    case TD_FILE_DCP_METADATA:
        return td_dcp_read(in, limits->max_memory_bytes, &file->dcp, err) &&
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
