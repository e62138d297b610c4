#include "catalog/model/file_content.h"

#include "catalog/model/box_checkpoint.h"
#include "catalog/model/content_hash.h"
#include "catalog/model/dcp_checkpoint.h"
#include "catalog/model/external_data.h"
#include "core/text.h"
#include "parser/formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_error(struct td_file *file, const char *before, const struct td_error *why)
{
    char text[TD_ERROR_TEXT_BYTES];
    char message[TD_ERROR_TEXT_BYTES + 88];
    (void)snprintf(message, sizeof message, "%s%s", before, td_error_text(why, text));
    file->error = strdup(message);
}

void td_file_refuse(struct td_file *file, const struct td_error *why)
{
    set_error(file, "", why);
    file->transient = why->code != TD_INVALID_ARGUMENT ||
                      file->error == NULL; /* without memory for the message the next scan says it */
    td_file_forget_content(file);
}

static bool read_index(struct td_file *file, const char *name, const struct td_input *input,
                       const struct td_limits *limits, struct td_error *err)
{
    const enum td_shard_index_kind kind = td_is_keras_map(name) ? TD_SHARD_INDEX_GROUPS : TD_SHARD_INDEX_TENSORS;
    if (input->size_bytes > limits->max_header_bytes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "index of %" PRIu64 " bytes is larger than the limit of %" PRIu64,
                            input->size_bytes, limits->max_header_bytes);
    size_t len = (size_t)input->size_bytes;
    char *text = malloc(len + 1);
    if (text == NULL)
        return td_error_no_memory(err);
    bool ok =
        td_input_read(input, 0, text, len, err) && td_shard_index_parse(&file->index, kind, td_text_n(text, len), err);
    free(text);
    return ok;
}

bool td_file_parse(struct td_file *file, const char *name, const struct td_input *input, const struct td_limits *limits,
                   struct td_error *err)
{
    if (!td_lfs_pointer_check(input, &file->is_lfs_pointer, err))
        return false;
    if (file->is_lfs_pointer)
        return td_error_set(err, TD_INVALID_ARGUMENT, TD_LFS_POINTER_REASON);
    if (file->json_shape != TD_JSON_SHAPE_NONE)
        return td_json_shape_read(input, &file->json_shape, err);
    if (file->kind == TD_FILE_PLAIN)
        return file->facts_kind == TD_FACTS_NONE || td_facts_read(file->facts_kind, input, &file->facts, err);
    if (file->kind == TD_FILE_SHARD_INDEX)
        return read_index(file, name, input, limits, err);
    if (file->kind == TD_FILE_DCP_METADATA)
        return td_dcp_parse(&file->dcp, input, limits, err) &&
               td_dcp_check(&file->dcp, input->size_bytes, limits->max_memory_bytes, err);
    bool ok = td_format_parse(name, input, limits, &file->format, &file->manifest, err);
    if (file->format == NULL)
        file->kind = TD_FILE_PLAIN;
    else if (file->kind == TD_FILE_MAYBE_TENSORS)
        file->kind = TD_FILE_TENSORS;
    return ok &&
           (file->format == NULL || td_facts_count_elements(&file->manifest, &file->counts, &file->count_count, err));
}

size_t td_file_content_bytes(const struct td_file *file)
{
    /* The struct, its names, its places in lists, its model and repository, the watch of its directory, and the unused
     * rest of an arena's first chunk: more than the most that was measured for a checkpoint of one tensor. */
    enum { OWN_BYTES = 3520 };
    size_t bytes = OWN_BYTES;
    if (file->format != NULL)
        bytes += file->manifest.arena.used_bytes + td_external_join_bytes(&file->manifest) +
                 td_boxes_join_bytes(&file->manifest);
    if (file->kind == TD_FILE_SHARD_INDEX)
        bytes += file->index.arena.used_bytes;
    if (file->kind == TD_FILE_DCP_METADATA)
        bytes += file->dcp.arena.used_bytes + td_dcp_join_bytes(&file->dcp);
    if (file->facts != NULL)
        bytes += file->facts->arena.used_bytes;
    return bytes;
}

bool td_file_is_read(const struct td_file *file)
{
    return file->kind != TD_FILE_PLAIN || file->facts_kind != TD_FACTS_NONE || file->json_shape != TD_JSON_SHAPE_NONE ||
           file->source.id.size_bytes < TD_LFS_POINTER_BYTES;
}

static const char damaged[] = "damaged, so the model may lack metadata: ";

/* Notes why the file holds no facts of the model beside it, or not all. The facts that were read stay. */
static void set_damaged(struct td_file *file, const struct td_error *why)
{
    set_error(file, damaged, why);
    file->transient = file->error == NULL; /* without memory for the message the next scan says it */
}

const char *td_file_damage(const struct td_file *file)
{
    bool is_damaged = file->error != NULL && strncmp(file->error, damaged, sizeof damaged - 1) == 0;
    return is_damaged ? file->error + sizeof damaged - 1 : file->error;
}

void td_file_fail(struct td_file *file, const struct td_error *why)
{
    if (file->kind == TD_FILE_MAYBE_TENSORS) /* a fault in its bytes shows a checkpoint file */
        file->kind =
            why->code == TD_INVALID_ARGUMENT || why->code == TD_RESOURCE_EXHAUSTED ? TD_FILE_TENSORS : TD_FILE_PLAIN;
    if (file->kind != TD_FILE_PLAIN || file->is_lfs_pointer)
        td_file_refuse(file, why);
    else if (why->code != TD_INVALID_ARGUMENT)
        file->transient = why->code != TD_PERMISSION_DENIED;
    else if (file->facts_kind != TD_FACTS_NONE)
        set_damaged(file, why);
}

static _Atomic uint64_t last_number;

struct td_file *td_file_create(const char *path, const char *name, const struct td_file_id *id,
                               struct td_mapping_cache *maps, const struct td_limits *limits)
{
    struct td_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    atomic_init(&file->refs, 1);
    file->number = atomic_fetch_add(&last_number, 1) + 1;
    file->maps = maps;
    file->source.path = strdup(path);
    file->source.id = *id;
    file->kind = td_file_kind_of(name);
    file->format = td_format_for_name(name);
    file->facts_kind = td_facts_kind_of(name);
    if (file->kind == TD_FILE_PLAIN && file->facts_kind == TD_FACTS_NONE && td_has_extension_any_case(name, ".json"))
        file->json_shape = TD_JSON_SHAPE_UNREAD;
    if (file->format != NULL || file->kind == TD_FILE_MAYBE_TENSORS)
        td_manifest_init(&file->manifest, limits->max_memory_bytes);
    if (file->source.path == NULL || !td_file_identity_tag(id, file->identity_tag)) {
        td_file_unref(file);
        return NULL;
    }
    return file;
}
