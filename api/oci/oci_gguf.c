#include "api/oci/oci_gguf.h"

#include "catalog/checkpoints/shard_group.h"
#include "catalog/model/file_kind.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- one file ------------------------------------------------------------------------------------------ */

static const struct td_entry *entry_at(const struct td_oci_call *oci, size_t i)
{
    return &oci->call->snapshot->entries[oci->repo->first_entry + i];
}

/* Returns whether the repository has all shards of the file, which is the first of them. */
static bool has_shards(const struct td_oci_call *oci, const struct td_entry *first)
{
    const char *path = td_repo_relative(oci->repo, first);
    const char *base = td_base_name(path);
    struct td_shard_of of;
    char name[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof name || !td_shard_of_name(base, &of))
        return false;
    memcpy(name, path, len + 1);
    char *digits = name + (base - path) + of.stem_len + 1;
    for (unsigned i = 2; i <= of.total; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%05u", i); /* the total has five digits */
        memcpy(digits, number, strlen("00001"));
        if (td_snapshot_find_in_run(oci->call->snapshot, oci->repo->first_entry, oci->repo->entry_count,
                                    oci->repo->prefix_len, td_text_n(name, len)) == NULL)
            return false;
    }
    return true;
}

bool td_oci_gguf_next(const struct td_oci_call *oci, struct td_oci_gguf_walk *walk, struct td_oci_gguf *gguf)
{
    while (walk->number < oci->repo->entry_count && walk->seen < TD_OCI_MOST_FILES) {
        *gguf = (struct td_oci_gguf){.entry = entry_at(oci, walk->number++)};
        if (!td_oci_gguf_name_read(gguf->entry->path, &gguf->name))
            continue;
        walk->seen++;
        if (gguf->name.is_projector || !gguf->name.is_first)
            continue;
        if (gguf->name.is_sharded)
            gguf->use = has_shards(oci, gguf->entry) ? TD_OCI_GGUF_SHARDED : TD_OCI_GGUF_INCOMPLETE;
        return true;
    }
    return false;
}

/* ---- the list ------------------------------------------------------------------------------------------ */

/* Returns the place of the quantisation in the sorted list, or where it belongs. */
static size_t place_of(const struct td_oci_gguf *list, size_t count, const char *quant)
{
    size_t low = 0;
    while (low < count) {
        size_t mid = low + (count - low) / 2;
        if (strcmp(list[mid].name.quant, quant) < 0)
            low = mid + 1;
        else
            count = mid;
    }
    return low;
}

bool td_oci_gguf_list(struct td_oci_call *oci, struct td_oci_gguf **list, size_t *count)
{
    struct td_oci_gguf_walk walk = {0};
    struct td_oci_gguf gguf;
    struct td_oci_gguf *files = td_arena_array(&oci->arena, TD_OCI_GGUF_TAGS, sizeof *files);
    *list = files;
    *count = 0;
    if (files == NULL)
        return false;
    while (td_oci_gguf_next(oci, &walk, &gguf)) {
        size_t at = place_of(files, *count, gguf.name.quant);
        bool is_there = at < *count && strcmp(files[at].name.quant, gguf.name.quant) == 0;
        if (is_there && gguf.use < files[at].use) {
            files[at] = gguf;
        } else if (!is_there && *count < TD_OCI_GGUF_TAGS) {
            memmove(&files[at + 1], &files[at], (*count - at) * sizeof *files);
            files[at] = gguf;
            ++*count;
        }
    }
    return true;
}

const struct td_entry *td_oci_gguf_projector(const struct td_oci_call *oci)
{
    const struct td_entry *found = NULL;
    struct td_oci_gguf_name name;
    for (size_t i = 0; i < oci->repo->entry_count; i++) {
        const struct td_entry *entry = entry_at(oci, i);
        if (!td_oci_gguf_name_read(entry->path, &name) || !name.is_projector || !name.is_first)
            continue;
        if (strcmp(name.quant, "F16") == 0)
            return entry;
        found = found == NULL ? entry : found;
    }
    return found;
}
