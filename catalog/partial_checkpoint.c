#include "catalog/partial_checkpoint.h"

#include "core/checked.h"
#include "parser/names.h"

#include <stdlib.h>
#include <string.h>

/* Keeps the files that are there, and gives each file of the index its place among them; missing files are listed. */
static bool take_parts(struct td_snapshot *snapshot, struct td_checkpoint *checkpoint,
                       const struct td_entry *const *parts, uint32_t *places)
{
    const struct td_shard_index *index = &checkpoint->index->file->index;
    const char **missing = td_arena_array(&snapshot->arena, index->file_count + 1, sizeof *missing);
    checkpoint->parts = calloc(index->file_count + 1, sizeof(*checkpoint->parts));
    if (missing == NULL || checkpoint->parts == NULL)
        return false;
    for (size_t i = 0; i < index->file_count; i++) {
        if (parts[i] == NULL) {
            missing[checkpoint->missing_count++] = index->files[i];
            continue;
        }
        places[i] = (uint32_t)checkpoint->part_count;
        checkpoint->parts[checkpoint->part_count++] = parts[i];
    }
    checkpoint->missing = missing;
    return true;
}

/* Collects the tensors that are there. *fits is false when their bytes are no 64-bit number. */
static bool take_tensors(struct td_checkpoint *checkpoint, const struct td_entry *const *parts,
                         const uint32_t *places, bool *fits)
{
    const struct td_shard_index *index = &checkpoint->index->file->index;
    checkpoint->refs = malloc((index->entry_count + 1) * sizeof *checkpoint->refs);
    if (checkpoint->refs == NULL)
        return false;
    *fits = true;
    for (size_t i = 0; i < index->entry_count && *fits; i++) {
        const struct td_shard_entry *entry = &index->entries[i];
        const struct td_entry *part = parts[entry->file];
        const struct td_tensor *tensor =
            part == NULL ? NULL : td_manifest_find(&part->file->manifest, entry->tensor, entry->tensor_len);
        if (tensor == NULL)
            continue;
        checkpoint->refs[checkpoint->tensor_count++] =
            (struct td_tensor_ref){.tensor = tensor, .part = places[entry->file]};
        if (tensor->reason == NULL)
            *fits = td_add_u64(checkpoint->total_bytes, tensor->nbytes, &checkpoint->total_bytes);
    }
    return true;
}

/* Makes a tag of what is there, and of which files are missing. */
static bool make_tag(const struct td_checkpoint *checkpoint, const struct td_model *model, bool former,
                     char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    const struct td_file *index = checkpoint->index->file;
    td_digest_add_cstring(digest, "partial");
    td_digest_add_cstring(digest, model->id);
    td_digest_add_cstring(digest, checkpoint->id);
    td_digest_add_cstring(digest, former ? index->identity_tag : td_file_tag(index));
    for (size_t i = 0; i < checkpoint->part_count; i++) {
        const struct td_file *file = checkpoint->parts[i]->file;
        td_digest_add_cstring(digest, checkpoint->parts[i]->path);
        td_digest_add_cstring(digest, former ? file->identity_tag : td_file_tag(file));
    }
    for (size_t i = 0; i < checkpoint->missing_count; i++)
        td_digest_add_cstring(digest, checkpoint->missing[i]);
    return td_digest_finish(digest, tag);
}

/* Fills the checkpoint. *is_any is false when it would have no tensors. */
static bool fill(struct td_snapshot *snapshot, const struct td_model *model, struct td_checkpoint *checkpoint,
                 const struct td_entry *const *parts, bool *is_any)
{
    bool fits = false;
    uint32_t *places = calloc(checkpoint->index->file->index.file_count + 1, sizeof *places);
    bool ok = places != NULL && take_parts(snapshot, checkpoint, parts, places) &&
              take_tensors(checkpoint, parts, places, &fits);
    free(places);
    *is_any = fits && checkpoint->tensor_count > 0;
    if (!ok || !*is_any)
        return ok;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a part holds the tensors that were found
    const struct td_file *first = checkpoint->parts[0]->file;
    checkpoint->format = first->format->name;
    checkpoint->metadata = first->manifest.metadata;
    checkpoint->metadata_count = first->manifest.metadata_count;
    return make_tag(checkpoint, model, false, checkpoint->tag) &&
           make_tag(checkpoint, model, true, checkpoint->former_tag);
}

bool td_partial_add(struct td_snapshot *snapshot, struct td_model *model, const char *id,
                    const struct td_entry *index, const struct td_entry *const *parts, struct td_error *err)
{
    struct td_checkpoint *partials =
        realloc(model->partials, (model->partial_count + 1) * sizeof *model->partials);
    if (partials == NULL)
        return td_error_no_memory(err);
    model->partials = partials;
    struct td_checkpoint *checkpoint = &partials[model->partial_count];
    *checkpoint = (struct td_checkpoint){.id = id, .index = index};
    bool is_any = false;
    bool ok = fill(snapshot, model, checkpoint, parts, &is_any);
    if (ok && is_any) {
        model->partial_count++;
        return true;
    }
    free(checkpoint->parts);
    td_checkpoint_drop_refs(checkpoint);
    return ok || td_error_no_memory(err);
}

const struct td_checkpoint *td_partial_find(const struct td_model *model, const char *id, size_t len)
{
    for (size_t i = 0; i < model->partial_count; i++) {
        const char *known = model->partials[i].id;
        if (len == 0 || td_name_compare(known, strlen(known), id, len) == 0)
            return &model->partials[i];
    }
    return NULL;
}

static struct td_name tensor_at(const void *context, size_t i)
{
    const struct td_shard_entry *entry = &((const struct td_shard_index *)context)->entries[i];
    return (struct td_name){.text = entry->tensor, .len = entry->tensor_len};
}

static struct td_name missing_at(const void *context, size_t i)
{
    const char *file = ((const struct td_checkpoint *)context)->missing[i];
    return (struct td_name){.text = file, .len = strlen(file)};
}

const char *td_partial_file_of(const struct td_checkpoint *checkpoint, const char *name, size_t len,
                               bool *is_usable)
{
    const struct td_shard_index *index = &checkpoint->index->file->index;
    const struct td_names names = {.count = index->entry_count, .context = index, .get = tensor_at};
    bool found;
    size_t at = td_names_search(&names, name, len, &found);
    if (!found)
        return NULL;
    const char *file = index->files[index->entries[at].file];
    const struct td_names missing = {
        .count = checkpoint->missing_count, .context = checkpoint, .get = missing_at};
    (void)td_names_search(&missing, file, strlen(file), &found);
    *is_usable = !found;
    return file;
}

bool td_partial_is_listed(const struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                          const char *file)
{
    const char *index = checkpoint->index->path;
    struct td_buffer path;
    td_buffer_init(&path);
    td_buffer_append(&path, index, (size_t)(td_base_name(index) - index));
    td_buffer_puts(&path, file);
    bool listed = !path.failed && td_snapshot_find_entry(snapshot, path.data, path.len) != NULL;
    td_buffer_fini(&path);
    return listed;
}
