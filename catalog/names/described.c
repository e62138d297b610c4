#include "catalog/names/described.h"

#include "catalog/names/repo.h"

#include <string.h>

/* A run of entries that share the beginning of their paths, up to a '/'. */
struct folder {
    size_t first, count;
    size_t prefix_len; /* with the '/' */
};

/* Returns the run of entries from number `first` on that share `depth` segments. Empty when the entry is not that deep.
 */
static struct folder folder_at(const struct td_snapshot *snapshot, size_t first, size_t end, int depth)
{
    const char *path = snapshot->entries[first].path;
    struct folder folder = {.first = first};
    for (; depth > 0; depth--) {
        const char *slash = strchr(path + folder.prefix_len, '/');
        if (slash == NULL)
            return folder;
        folder.prefix_len = (size_t)(slash - path) + 1;
    }
    while (first + folder.count < end &&
           strncmp(snapshot->entries[first + folder.count].path, path, folder.prefix_len) == 0)
        folder.count++;
    return folder;
}

/* Returns how many files are directly in the folder. */
static size_t count_files(const struct td_snapshot *snapshot, const struct folder *folder)
{
    size_t count = 0;
    for (size_t i = folder->first; i < folder->first + folder->count; i++)
        count += strchr(snapshot->entries[i].path + folder->prefix_len, '/') == NULL ? 1 : 0;
    return count;
}

/* Returns the config.json that makes the folder a model, or NULL. */
static const struct td_entry *find_config(const struct td_snapshot *snapshot, const struct folder *folder)
{
    const struct td_entry *config =
        td_snapshot_find_in_run(snapshot, folder->first, folder->count, folder->prefix_len, td_text_of("config.json"));
    bool is_model = config != NULL && folder->count > 1 &&
                    !td_repo_files_are_data(snapshot, folder->first, folder->count, folder->prefix_len);
    return is_model ? config : NULL;
}

/* Visits the repositories in a folder of the first level that holds no files itself. */
static bool visit_second(const struct td_snapshot *snapshot, const struct folder *top,
                         bool (*found)(void *context, const struct td_entry *config), void *context)
{
    size_t end = top->first + top->count;
    for (size_t i = top->first; i < end;) {
        struct folder folder = folder_at(snapshot, i, end, 2);
        const struct td_entry *config = find_config(snapshot, &folder);
        if (config != NULL && !found(context, config))
            return false;
        i += folder.count;
    }
    return true;
}

bool td_described_each(const struct td_snapshot *snapshot, bool (*found)(void *context, const struct td_entry *config),
                       void *context)
{
    static const char datasets[] = "datasets/";
    for (size_t i = 0; i < snapshot->entry_count;) {
        struct folder top = folder_at(snapshot, i, snapshot->entry_count, 1);
        bool skip = top.count == 0 || strncmp(snapshot->entries[i].path, datasets, sizeof datasets - 1) == 0;
        i += top.count > 0 ? top.count : 1;
        if (skip)
            continue;
        bool is_repository = count_files(snapshot, &top) > 0;
        const struct td_entry *config = is_repository ? find_config(snapshot, &top) : NULL;
        if (config != NULL && !found(context, config))
            return false;
        if (!is_repository && !visit_second(snapshot, &top, found, context))
            return false;
    }
    return true;
}

const struct td_entry *td_described_root(const struct td_snapshot *snapshot)
{
    const struct folder root = {.count = snapshot->entry_count};
    return count_files(snapshot, &root) > 1 ? find_config(snapshot, &root) : NULL;
}
