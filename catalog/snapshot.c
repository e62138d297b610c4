#include "catalog/snapshot.h"

#include <stdlib.h>
#include <string.h>

struct td_snapshot *td_snapshot_ref(struct td_snapshot *snapshot)
{
    atomic_fetch_add_explicit(&snapshot->refs, 1, memory_order_relaxed);
    return snapshot;
}

void td_snapshot_unref(struct td_snapshot *snapshot)
{
    if (snapshot == NULL || atomic_fetch_sub_explicit(&snapshot->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (snapshot->retire != NULL)
        snapshot->retire(snapshot->retire_context, snapshot);
    else
        td_snapshot_free(snapshot);
}

void td_snapshot_free(struct td_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    for (size_t i = 0; i < snapshot->entry_count; i++)
        td_file_unref(snapshot->entries[i].file);
    free(snapshot->entries);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        struct td_model *model = &snapshot->models[i];
        for (size_t j = 0; j < model->checkpoint_count; j++) {
            free(model->checkpoints[j].parts);
            free(model->checkpoints[j].refs);
        }
        free(model->checkpoints);
        free(model->problems.items);
    }
    free(snapshot->models);
    free(snapshot->problems.items);
    td_arena_fini(&snapshot->arena);
    td_root_unref(snapshot->root);
    free(snapshot);
}

struct td_file *td_file_ref(struct td_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void td_file_unref(struct td_file *file)
{
    if (file == NULL || atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (file->maps != NULL)
        td_file_source_forget(file->maps, &file->source);
    if (file->format != NULL)
        td_manifest_fini(&file->manifest);
    if (file->is_dcp)
        td_dcp_fini(&file->dcp);
    if (file->is_index)
        td_shard_index_fini(&file->index);
    free(file->error);
    free((char *)(uintptr_t)file->source.path);
    free(file);
}

const struct td_model *td_snapshot_find_model(const struct td_snapshot *snapshot, const char *id, size_t len)
{
    size_t low = 0;
    size_t high = snapshot->model_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct td_model *model = &snapshot->models[mid];
        int order = td_name_compare(model->id, strlen(model->id), id, len);
        if (order == 0)
            return model;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const struct td_entry *td_snapshot_find_entry(const struct td_snapshot *snapshot, const char *path,
                                              size_t len)
{
    size_t low = 0;
    size_t high = snapshot->entry_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct td_entry *entry = &snapshot->entries[mid];
        int order = td_name_compare(entry->path, strlen(entry->path), path, len);
        if (order == 0)
            return entry;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const struct td_model *td_snapshot_route(const struct td_snapshot *snapshot, const char *path, size_t len,
                                         size_t *rest)
{
    for (size_t end = len; end > 0; end--) {
        if (end != len && path[end] != '/')
            continue;
        const struct td_model *model = td_snapshot_find_model(snapshot, path, end);
        if (model != NULL) {
            *rest = end < len ? end + 1 : len;
            return model;
        }
    }
    return NULL;
}

const char *td_model_relative(const struct td_model *model, const struct td_entry *entry)
{
    return model->directory_len == 0 ? entry->path : entry->path + model->directory_len + 1;
}

const struct td_entry *td_model_find_file(const struct td_snapshot *snapshot, const struct td_model *model,
                                          const char *path, size_t len)
{
    size_t low = model->first_entry;
    size_t high = low + model->entry_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const char *here = td_model_relative(model, &snapshot->entries[mid]);
        int order = td_name_compare(here, strlen(here), path, len);
        if (order == 0)
            return &snapshot->entries[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const struct td_checkpoint *td_model_find_checkpoint(const struct td_model *model, const char *id, size_t len)
{
    if (model->checkpoint_count == 0)
        return NULL;
    if (id == NULL || len == 0)
        return &model->checkpoints[0];
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        const char *known = model->checkpoints[i].id;
        if (td_name_compare(known, strlen(known), id, len) == 0)
            return &model->checkpoints[i];
    }
    return NULL;
}

struct td_tensor_ref td_checkpoint_tensor(const struct td_checkpoint *checkpoint, size_t i)
{
    if (checkpoint->refs != NULL)
        return checkpoint->refs[i];
    return (struct td_tensor_ref){.tensor = &checkpoint->parts[0]->file->manifest.tensors[i], .part = 0};
}

size_t td_checkpoint_after(const struct td_checkpoint *checkpoint, const char *name, size_t len)
{
    size_t low = 0;
    size_t high = checkpoint->tensor_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct td_tensor *tensor = td_checkpoint_tensor(checkpoint, mid).tensor;
        if (td_name_compare(tensor->name, tensor->name_len, name, len) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool td_checkpoint_find(const struct td_checkpoint *checkpoint, const char *name, size_t len,
                        struct td_tensor_ref *out)
{
    size_t after = td_checkpoint_after(checkpoint, name, len);
    if (after == 0)
        return false;
    *out = td_checkpoint_tensor(checkpoint, after - 1);
    return td_name_compare(out->tensor->name, out->tensor->name_len, name, len) == 0;
}

void td_problems_add(struct td_problems *problems, struct td_arena *arena, const char *path,
                     const char *message)
{
    enum { PROBLEMS_MAX = 1000 };
    if (problems->count >= PROBLEMS_MAX)
        return;
    if (problems->count == problems->capacity) {
        size_t capacity = problems->capacity == 0 ? 4 : problems->capacity * 2;
        struct td_problem *items = realloc(problems->items, capacity * sizeof *items);
        if (items == NULL)
            return;
        problems->items = items;
        problems->capacity = capacity;
    }
    char *path_copy = td_arena_strndup(arena, path, strlen(path));
    char *message_copy = td_arena_strndup(arena, message, strlen(message));
    if (path_copy == NULL || message_copy == NULL)
        return;
    problems->items[problems->count++] = (struct td_problem){.path = path_copy, .message = message_copy};
}
