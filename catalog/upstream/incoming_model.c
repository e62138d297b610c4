#include "catalog/upstream/incoming_model.h"

#include "catalog/model/file_content.h"
#include "catalog/scan/grouping.h"
#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a validator that stands for the file until its digest is known. */
static bool make_tag(const struct td_incoming_model *model, const struct td_incoming_file *from, struct td_file *file)
{
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "incoming");
    td_digest_add_cstring(digest, model->id);
    td_digest_add_cstring(digest, model->version);
    td_digest_add_cstring(digest, from->path);
    td_digest_add(digest, &from->blob->len_bytes, sizeof from->blob->len_bytes);
    td_digest_add(digest, &model->time_s, sizeof model->time_s);
    return td_digest_finish(digest, file->identity_tag);
}

/* Makes one entry. */
static bool add_entry(struct td_snapshot *snapshot, const struct td_incoming_model *model,
                      const struct td_incoming_file *from, struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    struct td_file_id id = {.size_bytes = from->blob->len_bytes, .mtime_ns = model->time_s * TD_NS_PER_S};
    size_t path_bytes = strlen(model->id) + strlen(from->path) + 2;
    char *path = td_arena_array(&snapshot->arena, path_bytes, 1);
    if (path == NULL)
        return td_error_no_memory(err);
    (void)snprintf(path, path_bytes, "%s/%s", model->id, from->path);
    struct td_file *file = td_file_create(path, path, &id, NULL, &limits);
    if (file == NULL)
        return td_error_no_memory(err);
    file->source.incoming = td_blob_ref(from->blob);
    snapshot->entries[snapshot->entry_count++] = (struct td_entry){.path = path, .file = file};
    if (!make_tag(model, from, file))
        return td_error_no_memory(err);
    if (from->has_sha256)
        (void)td_file_set_sha256(file, from->sha256);
    return true;
}

/* Makes the models that a scan will make of the files, as far as their names tell: a directory of the model may be one
 * of its own, and the model's directory none. */
static bool add_models(struct td_snapshot *snapshot, struct td_error *err)
{
    static const struct td_walk walk = {.count = 0};
    struct td_grouping grouping = {.snapshot = snapshot, .walk = &walk, .names_only = true, .err = err};
    bool ok = true;
    for (size_t i = 0; ok && i < snapshot->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[i];
        /* a .metadata belongs to a checkpoint only beside its parts, which have kinds of their own */
        if (td_is_checkpoint_kind(entry->file->kind) && entry->file->kind != TD_FILE_DCP_METADATA)
            ok = td_grouping_add(&grouping, entry->path, entry, NULL);
    }
    ok = ok && td_grouping_build(&grouping);
    td_grouping_fini(&grouping);
    return ok;
}

static bool build(struct td_snapshot *snapshot, const struct td_incoming_model *model, struct td_error *err)
{
    snapshot->entries = calloc(model->file_count, sizeof *snapshot->entries);
    if (snapshot->entries == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < model->file_count; i++)
        if (!add_entry(snapshot, model, &model->files[i], err))
            return false;
    return add_models(snapshot, err);
}

bool td_incoming_model_snapshot(const struct td_incoming_model *model, struct td_snapshot **out, struct td_error *err)
{
    struct td_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL)
        return td_error_no_memory(err);
    atomic_init(&snapshot->refs, 1);
    td_arena_init(&snapshot->arena, 0);
    if (build(snapshot, model, err)) {
        *out = snapshot;
        return true;
    }
    td_snapshot_free(snapshot);
    return false;
}
