#include "catalog/model/external_data.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

enum { NOT_THERE = 0 }; /* as the number of a file's part: part 0 is the file that names the others */

static size_t directory_len(const struct td_entry *entry)
{
    return (size_t)(td_base_name(entry->path) - entry->path); /* with its slash */
}

size_t td_external_parts(const struct td_snapshot *snapshot, const struct td_entry *entry,
                         const struct td_entry **parts)
{
    const struct td_manifest *manifest = &entry->file->manifest;
    const size_t prefix_len = directory_len(entry);
    size_t first;
    size_t count;
    size_t part_count = 1;
    parts[0] = entry;
    if (prefix_len > 0) {
        td_snapshot_entries_below(snapshot, td_text_n(entry->path, prefix_len - 1), &first, &count);
    } else {
        first = 0;
        count = snapshot->entry_count;
    }
    for (size_t i = 0; i < manifest->file_count; i++) {
        const char *path = manifest->files[i];
        const struct td_entry *found = td_snapshot_find_in_run(snapshot, first, count, prefix_len, td_text_of(path));
        if (found != NULL && found != entry)
            parts[part_count++] = found;
    }
    return part_count;
}

/* Returns the number of the part that is the file at `path`, if that is part `from`: files and parts are in the same
 * order. */
static uint32_t find_part(const struct td_entry *const *parts, size_t part_count, const char *path, size_t from)
{
    const size_t prefix_len = directory_len(parts[0]);
    return from < part_count && strcmp(parts[from]->path + prefix_len, path) == 0 ? (uint32_t)from : NOT_THERE;
}

const char *td_external_missing(const struct td_entry *const *parts, size_t part_count)
{
    const struct td_manifest *manifest = &parts[0]->file->manifest;
    for (size_t i = 0; i < manifest->file_count; i++)
        if (find_part(parts, part_count, manifest->files[i], i + 1) == NOT_THERE)
            return manifest->files[i];
    return NULL;
}

/* Returns the part of each of the manifest's files, or NULL for want of memory. */
static uint32_t *number_parts(struct td_arena *arena, const struct td_entry *const *parts, size_t part_count)
{
    const struct td_manifest *manifest = &parts[0]->file->manifest;
    uint32_t *numbers = td_arena_array(arena, manifest->file_count, sizeof *numbers);
    size_t next = 1;
    for (size_t i = 0; numbers != NULL && i < manifest->file_count; i++) {
        numbers[i] = find_part(parts, part_count, manifest->files[i], next);
        next += numbers[i] != NOT_THERE ? 1 : 0;
    }
    return numbers;
}

/* Gives a tensor the part that holds it. Its names and numbers remain the manifest's, which lives as long. */
static void assign_part(struct td_tensor_ref *ref, struct td_tensor *tensor, const uint32_t *numbers,
                        const struct td_entry *const *parts)
{
    uint32_t part = tensor->file == 0 ? 0 : numbers[tensor->file - 1];
    bool is_elsewhere = tensor->file != 0;
    tensor->file = 0;
    *ref = (struct td_tensor_ref){.tensor = tensor, .part = part};
    if (!is_elsewhere)
        return;
    tensor->reason = NULL;
    if (part == NOT_THERE)
        tensor->reason = "the file with its external data is not there";
    else if (parts[part]->file->is_lfs_pointer)
        tensor->reason = "the file with its external data is a Git LFS pointer; run git lfs pull";
    else if (!td_range_within(tensor->offset, tensor->nbytes, parts[part]->file->source.id.size_bytes))
        tensor->reason = "its external data leave their file";
}

static bool fill_tensors(struct td_joined_tensors *join, const struct td_entry *const *parts, size_t part_count,
                         struct td_error *err)
{
    const struct td_manifest *manifest = &parts[0]->file->manifest;
    const size_t count = manifest->tensor_count;
    struct td_tensor *tensors = td_arena_array(&join->arena, count, sizeof *tensors);
    uint32_t *numbers = number_parts(&join->arena, parts, part_count);
    join->tensors = td_arena_array(&join->arena, count, sizeof *join->tensors);
    join->grids = td_arena_array(&join->arena, count, sizeof(*join->grids));
    if (tensors == NULL || numbers == NULL || join->tensors == NULL || join->grids == NULL)
        return td_error_no_memory(err);
    join->tensor_count = count;
    for (size_t i = 0; i < count; i++) {
        tensors[i] = manifest->tensors[i];
        join->grids[i] = NULL;
        assign_part(&join->tensors[i], &tensors[i], numbers, parts);
    }
    return true;
}

struct td_joined_tensors *td_external_join(const struct td_entry *const *parts, size_t part_count, struct td_error *err)
{
    struct td_joined_tensors *join = td_joined_tensors_create(err);
    if (join == NULL || fill_tensors(join, parts, part_count, err))
        return join;
    td_joined_tensors_unref(join);
    return NULL;
}

uint64_t td_external_join_bytes(const struct td_manifest *manifest)
{
    const uint64_t per_tensor = sizeof(struct td_tensor) + sizeof(struct td_tensor_ref) + sizeof(struct td_grid *);
    if (manifest->file_count == 0)
        return 0;
    return sizeof(struct td_joined_tensors) + manifest->tensor_count * per_tensor +
           manifest->file_count * (sizeof(uint32_t) + sizeof(struct td_entry *));
}
