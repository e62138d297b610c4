#include "catalog/dataset/data_file.h"

#include "core/extension.h"
#include "parser/rows/row_formats.h"
#include "parser/rows/tokens.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4096 };

const struct td_row_format td_row_format_images = {.name = "images", .row_type = "application/octet-stream"};

static bool is_image(const char *name)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (td_has_extension_any_case(name, extensions[i]))
            return true;
    return false;
}

static bool is_metadata(const char *name)
{
    return strcmp(name, "metadata.csv") == 0 || strcmp(name, "metadata.jsonl") == 0;
}

/* Returns whether the path is train/CLASS/FILE, or deeper. */
static bool is_in_class(const char *path)
{
    const char *folder = strncmp(path, "train/", 6) == 0 ? path + 6 : NULL;
    return folder != NULL && strchr(folder, '/') != NULL;
}

void td_data_files_init(struct td_data_files *files, const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    bool any = false, declared = repo->is_dataset_folder;
    for (size_t i = 0; i < repo->entry_count && !(any && declared); i++) {
        const char *path = td_repo_relative(repo, &snapshot->entries[repo->first_entry + i]);
        bool image = is_image(path);
        any = any || image;
        declared = declared || is_metadata(td_base_name(path)) || (image && is_in_class(path));
    }
    *files = (struct td_data_files){.snapshot = snapshot, .repo = repo, .has_images = any && declared};
}

/* Returns the entry in the same folder whose name is the first `keep` bytes of the path and `end`, or NULL. */
static const struct td_entry *beside(const struct td_data_files *files, const char *path, size_t keep, const char *end)
{
    char other[MAX_PATH];
    int len = snprintf(other, sizeof other, "%.*s%s", (int)keep, path, end);
    return len < 0 || (size_t)len >= sizeof other
               ? NULL
               : td_snapshot_find_entry(files->snapshot, td_text_n(other, (size_t)len));
}

static bool set_format(struct td_data_file *out, const char *name)
{
    out->format = td_row_format_named(td_text_of(name));
    return out->format != NULL;
}

static bool bin_of(const struct td_data_files *files, const char *path, struct td_data_file *out)
{
    const char *name = td_base_name(path);
    out->table = beside(files, path, strlen(path) - strlen(".bin"), ".idx");
    if (out->table != NULL)
        return set_format(out, "megatron");
    if (strncmp(name, "chunk-", 6) == 0 && beside(files, path, (size_t)(name - path), "index.json") != NULL)
        return set_format(out, "litdata");
    struct td_tokens tokens;
    return files->repo->is_dataset_folder && td_tokens_name(name, &tokens) && set_format(out, "tokens");
}

bool td_data_file_of(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out)
{
    const char *path = entry->path;
    const char *name = td_base_name(path);
    *out = (struct td_data_file){0};
    if (files->has_images && is_image(name)) {
        out->format = &td_row_format_images;
        return true;
    }
    if (files->has_images && is_metadata(name))
        return false;
    if (td_has_extension(name, ".bin"))
        return bin_of(files, path, out);
    out->format = td_row_format_of(name);
    return out->format != NULL && (files->repo->is_dataset_folder || !td_has_extension_any_case(name, ".npy"));
}
