#include "catalog/upstream/incoming_model.h"

#include "catalog/file_content.h"
#include "catalog/grouping.h"
#include "catalog/repo.h"
#include "core/checked.h"
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

/* Makes the one model, which has all entries. */
static bool add_model(struct td_snapshot *snapshot, const struct td_incoming_model *from, struct td_error *err)
{
    size_t id_bytes = strlen(from->id) + 1;
    char *id = td_arena_array(&snapshot->arena, id_bytes, 1);
    snapshot->models = calloc(1, sizeof *snapshot->models);
    if (id == NULL || snapshot->models == NULL)
        return td_error_no_memory(err);
    memcpy(id, from->id, id_bytes);
    struct td_model *model = &snapshot->models[0];
    snapshot->model_count = 1;
    model->id = id;
    model->directory_len = id_bytes - 1;
    model->entry_count = snapshot->entry_count;
    model->updated_ns = from->time_s * TD_NS_PER_S;
    for (size_t i = 0; i < snapshot->entry_count; i++)
        if (!td_add_u64(model->file_bytes, snapshot->entries[i].file->source.id.size_bytes, &model->file_bytes))
            model->file_bytes = UINT64_MAX;
    model->config = td_model_find_file(snapshot, model, TD_TEXT("config.json"));
    return td_model_make_tag(snapshot, model, err);
}

static bool build(struct td_snapshot *snapshot, const struct td_incoming_model *model, struct td_error *err)
{
    snapshot->entries = calloc(model->file_count, sizeof *snapshot->entries);
    if (snapshot->entries == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < model->file_count; i++)
        if (!add_entry(snapshot, model, &model->files[i], err))
            return false;
    return add_model(snapshot, model, err) && td_repos_build(snapshot, NULL, 0, err);
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
