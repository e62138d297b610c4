#include "catalog/dataset/data_file.h"

#include "catalog/model/file_kind.h"
#include "core/text.h"
#include "parser/formats.h"
#include "parser/rows/row_formats.h"
#include "parser/rows/tokens.h"
#include "parser/rows/webdataset.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4096 };

const struct td_row_format td_row_format_images = {.name = "images", .row_type = "application/octet-stream"};

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
        bool image = td_is_image_file(path);
        any = any || image;
        declared = declared || is_metadata(td_base_name(path)) || (image && is_in_class(path));
    }
    *files = (struct td_data_files){.snapshot = snapshot, .repo = repo, .has_images = any && declared};
}

/* Returns the entry in the same folder with the first `keep` bytes of the path and `end` as its path, or NULL. */
static const struct td_entry *find_beside(const struct td_data_files *files, const char *path, size_t keep,
                                          const char *end)
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
    out->table = find_beside(files, path, strlen(path) - strlen(".bin"), ".idx");
    if (out->table != NULL)
        return set_format(out, "megatron");
    if (strncmp(name, "chunk-", 6) == 0 && find_beside(files, path, (size_t)(name - path), "index.json") != NULL)
        return set_format(out, "litdata");
    struct td_tokens tokens;
    return files->repo->is_dataset_folder && td_tokens_name(name, &tokens) && set_format(out, "tokens");
}

/* Returns whether a .json file of this name describes a dataset or a model and holds no rows. The datasets library
 * skips the first four; its save_to_disk writes state.json; MDS and LitData write index.json. */
static bool is_description(const char *name)
{
    static const char *const names[] = {"config.json",       "dataset_info.json", "dataset_infos.json",
                                        "dataset_dict.json", "state.json",        "index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool json_of(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out)
{
    enum td_json_shape shape = entry->file->json_shape;
    bool is_dataset = files->repo->is_dataset_folder;
    if (is_description(td_base_name(entry->path)))
        return false;
    if (entry->file->is_lfs_pointer)
        return is_dataset;
    if (shape == TD_JSON_SHAPE_NONE || shape == TD_JSON_SHAPE_UNREAD)
        return false;
    if (shape == TD_JSON_SHAPE_LINES || (is_dataset && td_json_shape_has_lines(shape)))
        return set_format(out, "jsonl");
    if (shape == TD_JSON_SHAPE_EMPTY || shape == TD_JSON_SHAPE_ONE_LINE)
        return false;
    out->reason = td_json_shape_reason(shape);
    return true;
}

/* Copies the name without the extension of a compressed file. Returns false if the name has none, or does not fit. */
static bool copy_unpacked_name(const char *name, char out[MAX_PATH])
{
    static const char *const extensions[] = {".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"};
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        if (!td_has_extension_any_case(name, extensions[i]) || len >= MAX_PATH)
            continue;
        memcpy(out, name, len + 1);
        out[len - strlen(extensions[i])] = '\0';
        return true;
    }
    return false;
}

/* Returns whether the name is that of a compressed file whose rows could be served if it were unpacked. */
static bool is_compressed(const char *name)
{
    char inner[MAX_PATH];
    if (copy_unpacked_name(name, inner))
        return td_row_format_of(inner) != NULL || td_has_extension_any_case(inner, ".json");
    return td_has_extension_any_case(name, ".tgz");
}

/* Returns whether the datasets library, but not the server, reads rows from files with this extension, also if another
 * extension after it says that they are compressed. */
static bool is_of_library(const char *name)
{
    char inner[MAX_PATH];
    static const char *const extensions[] = {
        ".txt", ".xml", ".zip",     ".h5",  ".hdf5", ".gpq", ".conll", ".conllu", ".geoparquet", ".eval",
        ".fa",  ".fna", ".ffn",     ".faa", ".frn",  ".afa", ".fasta", ".fq",     ".fastq",      ".lance",
        ".gb",  ".gbk", ".genbank", ".pdb", ".ent",  ".cif", ".mmcif", ".tsfile", ".vortex"};
    bool packed = copy_unpacked_name(name, inner);
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (td_has_extension_any_case(name, extensions[i]) ||
            (packed && td_has_extension_any_case(inner, extensions[i])))
            return true;
    return false;
}

/* Does the same as td_data_file_of, but does not check whether the file is a Git LFS pointer or a .tar of tensors. */
static bool by_name(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out)
{
    const char *path = entry->path;
    const char *name = td_base_name(path);
    if (files->has_images && td_is_image_file(name)) {
        out->format = &td_row_format_images;
        return true;
    }
    if (files->has_images && is_metadata(name))
        return false;
    if (td_has_extension(name, ".bin"))
        return bin_of(files, path, out);
    if (td_has_extension_any_case(name, ".json"))
        return json_of(files, entry, out);
    if (is_compressed(name)) {
        out->reason = "its rows are not served because it is compressed; unpack it";
        return true;
    }
    if (is_of_library(name)) {
        out->reason = "its rows are not served: files of this format are not read row by row";
        out->is_only_by_name = true;
        return true;
    }
    out->format = td_row_format_of(name);
    return out->format != NULL && (files->repo->is_dataset_folder || !td_has_extension_any_case(name, ".npy"));
}

bool td_data_file_of(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out)
{
    *out = (struct td_data_file){0};
    if (!by_name(files, entry, out))
        return false;
    if (entry->file->kind == TD_FILE_TENSORS && out->format == &td_row_format_webdataset)
        return false; /* a .tar that torch.save wrote */
    if (entry->file->is_lfs_pointer) {
        out->format = NULL;
        out->table = NULL;
        out->reason = TD_LFS_POINTER_REASON;
    }
    return true;
}
