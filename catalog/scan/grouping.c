/* Plan: the scan adds every checkpoint file as a candidate; add_described_folders() adds the config.json of folders
 * without readable weights. part_root() decides which files directly in the root share a model. After sorting, the
 * candidates of one model follow one another, and build_model() makes a model of each run: its id, its run of entries,
 * its checkpoints, its problems. Repositories and buckets are built from the finished models.
 *
 * What is hard: ids. A model in the root may have the name of a directory, or a name that URLs use; then the file's
 * whole name is its id, or the model becomes a problem. */
#include "catalog/scan/grouping.h"

#include "catalog/checkpoints/rank_part.h"
#include "catalog/checkpoints/shard_group.h"
#include "catalog/dataset/dataset.h"
#include "catalog/model/plain_id.h"
#include "catalog/model/reserved_id.h"
#include "catalog/names/bucket.h"
#include "catalog/names/delta.h"
#include "catalog/names/family.h"
#include "catalog/names/oci_name.h"
#include "catalog/names/repo.h"
#include "core/array.h"
#include "core/checked.h"
#include "core/utf8.h"
#include "parser/format/names.h"
#include "parser/safetensors.h"
#include "parser/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- folders with a config.json ------------------------------------------------------------------------ */

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

/* Calls `found` with the config.json of each folder that is a model because it holds one, in the order of the entries,
 * until `found` returns false. The weights may be in a format that tensord does not read. Such a folder is a repository
 * for clients of the Hub (at the first level when it holds files, else at the second), holds a second file, holds no
 * files that datasets are made of, and is not below datasets/. The snapshot must have its entries. Returns false when
 * `found` did. */
static bool each_described(const struct td_snapshot *snapshot,
                           bool (*found)(void *context, const struct td_entry *config), void *context)
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

/* Returns the config.json of the root when the root holds a second file directly and no files that datasets are made
 * of; else NULL. */
static const struct td_entry *find_root_config(const struct td_snapshot *snapshot)
{
    const struct folder root = {.count = snapshot->entry_count};
    return count_files(snapshot, &root) > 1 ? find_config(snapshot, &root) : NULL;
}

/* Returns the length of the path's directory; 0 for a file in the root. */
static size_t directory_len(const char *path)
{
    const size_t prefix_len = (size_t)(td_base_name(path) - path);
    return prefix_len == 0 ? 0 : prefix_len - 1;
}

bool td_grouping_add(struct td_grouping *g, const char *path, const struct td_entry *entry, const char *error)
{
    if (!TD_ARRAY_GROW(g->candidates, g->candidate_count, g->candidate_capacity, g->err))
        return false;
    const char *name = td_base_name(path);
    g->candidates[g->candidate_count++] =
        (struct td_candidate){.path = path,
                              .directory_len = directory_len(path),
                              .kind = entry == NULL ? td_file_kind_of(name) : entry->file->kind,
                              .entry = entry,
                              .error = error};
    return true;
}

/* Orders candidates: files of directories before those of the root, each model's files together, sorted by path. */
static int candidate_compare(const void *a, const void *b)
{
    const struct td_candidate *x = a;
    const struct td_candidate *y = b;
    int order = (x->directory_len == 0 ? 1 : 0) - (y->directory_len == 0 ? 1 : 0);
    if (order == 0)
        order = td_text_compare(td_text_n(x->path, x->model_len), td_text_n(y->path, y->model_len));
    return order != 0 ? order : strcmp(x->path, y->path);
}

static bool same_model(const struct td_candidate *a, const struct td_candidate *b)
{
    return (a->directory_len == 0) == (b->directory_len == 0) &&
           td_text_compare(td_text_n(a->path, a->model_len), td_text_n(b->path, b->model_len)) == 0;
}

/* Sets the run of the model's entries: everything below its directory; for a model directly in the root, the entries
 * from its first to its last candidate. */
static void model_range(struct td_model *model, const struct td_grouping *g, size_t first, size_t end)
{
    const struct td_snapshot *snapshot = g->snapshot;
    if (model->directory_len > 0) {
        td_snapshot_entries_below(snapshot, td_text_n(model->id, model->directory_len), &model->first_entry,
                                  &model->entry_count);
        return;
    }
    if (g->root_is_model) {
        model->entry_count = snapshot->entry_count;
        return;
    }
    for (size_t i = first; i < end; i++) {
        const struct td_entry *entry = g->candidates[i].entry;
        if (entry == NULL)
            continue;
        size_t at = (size_t)(entry - snapshot->entries);
        if (model->entry_count == 0)
            model->first_entry = at;
        model->entry_count = at - model->first_entry + 1;
    }
}

/* Makes the model one that keeps this version. */
static void keep_version(struct td_model *model, const char *version, bool is_of_subfolder)
{
    model->revision = version;
    model->is_of_subfolder = is_of_subfolder;
    model->is_other_revision = model->is_kept_version = true;
}

static void model_files(struct td_grouping *g, struct td_model *model, size_t first, size_t end)
{
    const struct td_snapshot *snapshot = g->snapshot;
    model_range(model, g, first, end);
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_file *file = snapshot->entries[model->first_entry + i].file;
        const struct td_file_id id = file->source.id; // NOLINT(clang-analyzer-core.*): every entry has its file
        if (!td_add_u64(model->file_bytes, id.size_bytes, &model->file_bytes))
            model->file_bytes = UINT64_MAX; /* sparse files can be that large */
        if (id.mtime_ns > model->updated_ns)
            model->updated_ns = id.mtime_ns;
    }
    for (size_t i = first; i < end && model->revision == NULL && g->found != NULL; i++) {
        if (g->candidates[i].entry == NULL)
            continue;
        const struct td_found *found = g->found[g->candidates[i].entry - snapshot->entries];
        model->revision = found->revision;
        model->is_other_revision = found->other_revision;
        if (found->kept_version != NULL)
            keep_version(model, found->kept_version, found->is_of_subfolder);
    }
    if (g->kept_version != NULL)
        keep_version(model, g->kept_version, g->is_of_subfolder);
    if (model->directory_len > 0 || g->root_is_model)
        model->config = td_model_find_file(snapshot, model, td_text_of("config.json"));
}

static int directory_compare(const void *a, const void *b)
{
    const struct td_candidate *x = a;
    const struct td_candidate *y = b;
    return td_text_compare(td_text_n(x->path, x->directory_len), td_text_n(y->path, y->directory_len));
}

/* Returns whether a directory of this name has files of a model. The candidates must be sorted. */
static bool is_directory_id(const struct td_grouping *g, const char *id)
{
    const struct td_candidate wanted = {.path = id, .directory_len = strlen(id)};
    return g->in_directories > 0 &&
           bsearch(&wanted, g->candidates, g->in_directories, sizeof wanted, directory_compare) != NULL;
}

/* Returns the root's own name where that can be an id, else "root" ("/" has no name). */
static const char *root_id(const struct td_grouping *g)
{
    const char *name = td_base_name(g->snapshot->root->real_path);
    bool usable = name[0] != '\0' && td_utf8_valid(name, strlen(name)) && !td_id_is_reserved(td_text_of(name));
    return usable ? name : "root";
}

/* Returns the id of the model whose first file this is, in the snapshot's arena, or NULL for want of memory. */
static const char *model_id(struct td_grouping *g, const struct td_candidate *first)
{
    struct td_arena *arena = &g->snapshot->arena;
    if (first->directory_len == 0 && g->root_is_model)
        return td_arena_strndup(arena, td_text_of(root_id(g)));
    const char *id = td_arena_strndup(arena, td_text_n(first->path, first->model_len));
    bool is_stem = first->directory_len == 0 && first->path[first->model_len] != '\0';
    if (id != NULL && is_stem && (is_directory_id(g, id) || td_id_is_reserved(td_text_of(id))))
        return first->path;
    return id;
}

/* Returns whether the id can be used. Adds a problem if not. */
static bool check_id(struct td_grouping *g, const struct td_candidate *first, const char *id)
{
    char message[512];
    if (first->directory_len > 0 && td_id_is_reserved(td_text_of(id)))
        (void)snprintf(
            message, sizeof message,
            "not published: an id cannot end in \"%s\": that name is kept for the HTTP interface; rename the directory",
            td_base_name(id));
    else if (first->directory_len == 0 && is_directory_id(g, id))
        (void)snprintf(
            message, sizeof message,
            "the files directly in DIR are not published: a directory in it has DIR's own name; rename one of the two");
    else
        return true;
    td_problems_add(&g->snapshot->problems, &g->snapshot->arena, id, message);
    return false;
}

/* Adds a problem to the model for each plain file that is a Git LFS pointer or is damaged, and counts the damaged ones.
 */
static void add_plain_errors(const struct td_grouping *g, struct td_model *model)
{
    struct td_snapshot *snapshot = g->snapshot;
    bool owns = model->directory_len > 0 || g->root_is_model; /* else files between its own may belong to others */
    for (size_t i = 0; owns && i < model->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[model->first_entry + i];
        size_t before = model->problems.count;
        if (entry->file->kind == TD_FILE_PLAIN && entry->file->error != NULL)
            td_problems_add(&model->problems, &snapshot->arena, td_model_relative(model, entry), entry->file->error);
        if (!entry->file->is_lfs_pointer)
            model->damaged_count += model->problems.count - before;
    }
}

/* Returns whether the SHA-256 of every file of the model and of its checkpoints is known. */
static bool is_hashed(const struct td_snapshot *snapshot, const struct td_model *model)
{
    for (size_t i = 0; i < model->entry_count; i++)
        if (td_file_sha256(snapshot->entries[model->first_entry + i].file) == NULL)
            return false;
    for (size_t i = 0; i < model->checkpoint_count; i++) /* its files may be in other folders */
        if (strcmp(model->checkpoints[i].tag, model->checkpoints[i].former_tag) == 0)
            return false;
    return true;
}

static bool make_tag(const struct td_snapshot *snapshot, const struct td_model *model, bool of_contents,
                     char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_plain_path_digest(model, model->id, digest);
    td_digest_add_cstring(digest, model->revision == NULL ? "" : model->revision);
    td_digest_add(digest, &model->entry_count, sizeof model->entry_count);
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[model->first_entry + i];
        td_plain_path_digest(model, entry->path, digest);
        td_digest_add_cstring(digest, of_contents ? td_file_sha256(entry->file) : entry->file->identity_tag);
        td_digest_add_cstring(digest, entry->file->error == NULL ? "" : entry->file->error);
    }
    td_digest_add(digest, &model->checkpoint_count, sizeof model->checkpoint_count);
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        const struct td_checkpoint *checkpoint = &model->checkpoints[i];
        td_digest_add_cstring(digest, checkpoint->id);
        td_digest_add_cstring(digest, checkpoint->format);
        td_digest_add_cstring(digest, of_contents ? checkpoint->tag : checkpoint->former_tag);
        td_digest_add(digest, &checkpoint->total_bytes, sizeof checkpoint->total_bytes);
        td_digest_add(digest, &checkpoint->tensor_count, sizeof checkpoint->tensor_count);
    }
    for (size_t i = 0; i < model->problems.count; i++) {
        td_digest_add_cstring(digest, model->problems.items[i].path);
        td_digest_add_cstring(digest, model->problems.items[i].message);
    }
    return td_digest_finish(digest, tag);
}

bool td_model_make_tag(const struct td_snapshot *snapshot, struct td_model *model, struct td_error *err)
{
    model->content_tag[0] = '\0';
    bool ok = make_tag(snapshot, model, false, model->tag) &&
              (!is_hashed(snapshot, model) || make_tag(snapshot, model, true, model->content_tag));
    return ok || td_error_no_memory(err);
}

/* Makes one model of the candidates [first, end). */
static bool build_model(struct td_grouping *g, size_t first, size_t end)
{
    struct td_snapshot *snapshot = g->snapshot;
    const struct td_candidate *candidate = &g->candidates[first];
    const char *id = model_id(g, candidate);
    if (id == NULL)
        return td_error_no_memory(g->err);
    if (!check_id(g, candidate, id))
        return true;
    struct td_model *model = &snapshot->models[snapshot->model_count++];
    model->id = id;
    model->directory_len = candidate->directory_len;
    model_files(g, model, first, end);
    if (!g->names_only && !td_checkpoints_build(snapshot, g->previous, model, candidate, end - first, g->err))
        return false;
    add_plain_errors(g, model);
    return td_model_make_tag(snapshot, model, g->err);
}

static int model_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_model *)a)->id, ((const struct td_model *)b)->id);
}

/* Returns whether torch.distributed.checkpoint gives this name to a file with boxes of tensors:
 * shard-00001-model-00001-of-00001.safetensors. */
static bool is_box_file(const char *name)
{
    static const char before[] = "shard-";
    return strncmp(name, before, sizeof before - 1) == 0 && strstr(name, "-model-") != NULL &&
           td_shard_stem_len(name) > 0;
}

/* Decides which files directly in the root share a model. A config.json, an index, a .metadata or a part of a
 * distributed checkpoint makes all of them one model (a config.json alone only when there is no other model). Else each
 * file is a model, and so is each group of shards. */
static void part_root(struct td_grouping *g)
{
    static const char config[] = "config.json";
    bool described = td_snapshot_find_entry(g->snapshot, TD_TEXT(config)) != NULL;
    for (size_t i = 0; i < g->candidate_count; i++) {
        bool in_root = g->candidates[i].directory_len == 0;
        g->in_directories += in_root ? 0 : 1;
        bool makes_model = described || g->candidates[i].kind != TD_FILE_TENSORS || is_box_file(g->candidates[i].path);
        g->root_is_model = g->root_is_model || (in_root && makes_model);
    }
    for (size_t i = 0; i < g->candidate_count; i++) {
        struct td_candidate *candidate = &g->candidates[i];
        if (candidate->directory_len > 0) {
            candidate->model_len = candidate->directory_len;
        } else if (!g->root_is_model) {
            size_t stem_len = td_shard_stem_len(candidate->path);
            candidate->model_len = stem_len > 0 ? stem_len : strlen(candidate->path);
        }
    }
}

/* Makes the folder of this config.json a model. In a folder with checkpoint files this changes nothing. */
static bool add_described(void *context, const struct td_entry *config)
{
    struct td_grouping *g = context;
    return td_grouping_add(g, config->path, config, NULL);
}

static bool add_described_folders(struct td_grouping *g)
{
    if (!each_described(g->snapshot, add_described, g))
        return false;
    const struct td_entry *root = g->candidate_count == 0 ? find_root_config(g->snapshot) : NULL;
    return root == NULL || add_described(g, root);
}

/* Returns whether all files of the index are in one directory, which then holds the whole checkpoint. */
static bool is_in_one_directory(const struct td_shard_index *index)
{
    const size_t len = index->file_count == 0 ? 0 : directory_len(index->files[0]);
    for (size_t i = 1; i < index->file_count; i++)
        if (directory_len(index->files[i]) != len || strncmp(index->files[i], index->files[0], len) != 0)
            return false;
    return true;
}

/* Sets indexes[i] to the index's path for each entry i that is a shard of this index in a directory below it. Does
 * nothing when all shards are in one directory. */
static void note_shards_below(const struct td_grouping *g, const struct td_candidate *candidate, const char **indexes)
{
    const struct td_snapshot *snapshot = g->snapshot;
    const struct td_shard_index *index = &candidate->entry->file->index;
    size_t first = 0;
    size_t count = snapshot->entry_count;
    if (is_in_one_directory(index))
        return;
    if (candidate->directory_len > 0)
        td_snapshot_entries_below(snapshot, td_text_n(candidate->path, candidate->directory_len), &first, &count);
    for (size_t i = 0; i < index->file_count; i++) {
        const size_t prefix_len = candidate->directory_len + (candidate->directory_len > 0 ? 1 : 0);
        const struct td_entry *entry =
            strchr(index->files[i], '/') == NULL
                ? NULL
                : td_snapshot_find_in_run(snapshot, first, count, prefix_len, td_text_of(index->files[i]));
        if (entry != NULL)
            indexes[entry - snapshot->entries] = candidate->path;
    }
}

/* Sets the member `index` of the candidates that are shards of an index in a parent directory. */
static bool find_shards_below(struct td_grouping *g)
{
    const char **indexes = calloc(g->snapshot->entry_count + 1, sizeof *indexes);
    if (indexes == NULL)
        return td_error_no_memory(g->err);
    for (size_t i = 0; i < g->candidate_count; i++) {
        const struct td_candidate *candidate = &g->candidates[i];
        if (candidate->kind == TD_FILE_SHARD_INDEX && candidate->entry != NULL && candidate->entry->file->readable)
            note_shards_below(g, candidate, indexes);
    }
    for (size_t i = 0; i < g->candidate_count; i++)
        if (g->candidates[i].entry != NULL)
            g->candidates[i].index = indexes[g->candidates[i].entry - g->snapshot->entries];
    free(indexes);
    return true;
}

/* Files or directories whose names have a rank's number. */
struct rank_items {
    struct td_rank_item *items;
    size_t count, capacity;
    struct td_arena names;
};

/* Adds an item if its name has a rank's number. Returns false when memory is short. */
static bool add_rank_item(struct rank_items *list, struct td_text directory, struct td_text name, size_t number,
                          struct td_error *err)
{
    struct td_rank_name read;
    td_rank_name_read(name, &read);
    if (read.kind == TD_RANK_NONE)
        return true;
    struct td_rank_name *copy = td_arena_array(&list->names, 1, sizeof *copy);
    if (copy == NULL || !TD_ARRAY_GROW(list->items, list->count, list->capacity, err))
        return td_error_no_memory(err);
    *copy = read;
    list->items[list->count++] = (struct td_rank_item){.directory = directory, .number = number, .name = copy};
    return true;
}

/* Adds the candidate's directories whose names have a rank's number. */
static bool add_rank_directories(struct rank_items *list, const struct td_candidate *candidate, size_t number,
                                 struct td_error *err)
{
    const char *path = candidate->path;
    for (size_t begin = 0; begin < candidate->directory_len;) {
        const char *slash = memchr(path + begin, '/', candidate->directory_len - begin);
        size_t end = slash == NULL ? candidate->directory_len : (size_t)(slash - path);
        if (!add_rank_item(list, td_text_n(path, begin), td_text_n(path + begin, end - begin), number, err))
            return false;
        begin = end + 1;
    }
    return true;
}

/* Marks the candidates that are rank parts by the items in the list, and empties the list. directories: the items are
 * names of directories, not of the candidates themselves. */
static void mark_parts(struct td_grouping *g, struct rank_items *list, bool directories)
{
    td_rank_items_judge(list->items, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct td_rank_item *item = &list->items[i];
        struct td_candidate *candidate = &g->candidates[item->number];
        const struct td_format *format = candidate->entry == NULL ? NULL : candidate->entry->file->format;
        bool is_numbered = item->may_be && (format == &td_format_safetensors || format == &td_format_torch);
        if (item->is_part)
            candidate->part = TD_CANDIDATE_RANK;
        else if (is_numbered && !directories && candidate->part == TD_CANDIDATE_WHOLE)
            candidate->part = TD_CANDIDATE_NUMBERED;
    }
    list->count = 0;
}

/* Marks the candidates in directories that hold one rank's part. The candidates must be sorted: the first candidate of
 * a directory is judged, and the others get its mark. */
static bool mark_directories(struct td_grouping *g, struct rank_items *list)
{
    for (size_t i = 0; i < g->candidate_count; i++) {
        const struct td_candidate *candidate = &g->candidates[i];
        bool is_first = i == 0 || !same_model(&g->candidates[i - 1], candidate);
        if (is_first && candidate->directory_len > 0 && !add_rank_directories(list, candidate, i, g->err))
            return false;
    }
    mark_parts(g, list, true);
    for (size_t i = 1; i < g->candidate_count; i++)
        if (g->candidates[i].directory_len > 0 && same_model(&g->candidates[i - 1], &g->candidates[i]) &&
            g->candidates[i - 1].part == TD_CANDIDATE_RANK)
            g->candidates[i].part = TD_CANDIDATE_RANK;
    return true;
}

/* Finds the candidates that hold one rank's part of a model. The candidates must be sorted. */
static bool find_rank_parts(struct td_grouping *g)
{
    struct rank_items list = {.items = NULL};
    td_arena_init(&list.names, 0);
    bool ok = mark_directories(g, &list);
    for (size_t i = 0; ok && i < g->candidate_count; i++) {
        const struct td_candidate *candidate = &g->candidates[i];
        if (candidate->kind == TD_FILE_TENSORS)
            ok = add_rank_item(&list, td_text_n(candidate->path, candidate->directory_len),
                               td_text_of(td_base_name(candidate->path)), i, g->err);
    }
    if (ok)
        mark_parts(g, &list, false);
    free(list.items);
    td_arena_fini(&list.names);
    return ok;
}

bool td_grouping_build(struct td_grouping *g)
{
    struct td_snapshot *snapshot = g->snapshot;
    if (!add_described_folders(g) || (!g->names_only && !find_shards_below(g)))
        return false;
    part_root(g);
    snapshot->root_is_model = g->root_is_model;
    if (g->candidate_count > 0)
        qsort(g->candidates, g->candidate_count, sizeof *g->candidates, candidate_compare);
    if (!g->names_only && !find_rank_parts(g))
        return false;
    snapshot->models = calloc(g->candidate_count + 1, sizeof *snapshot->models);
    if (snapshot->models == NULL)
        return td_error_no_memory(g->err);
    for (size_t first = 0, end; first < g->candidate_count; first = end) {
        end = first + 1;
        while (end < g->candidate_count && same_model(&g->candidates[first], &g->candidates[end]))
            end++;
        if (!build_model(g, first, end))
            return false;
    }
    if (snapshot->model_count > 0)
        qsort(snapshot->models, snapshot->model_count, sizeof *snapshot->models, model_compare);
    if (!td_repos_build(snapshot, g->caches, g->cache_count, g->err))
        return false;
    if (!td_families_build(snapshot, g->version_prefixes, g->err))
        return false;
    if (g->names_only)
        return true;
    td_deltas_find_bases(snapshot);
    return td_datasets_build(snapshot, g->err) && td_buckets_build(snapshot, g->err) &&
           td_oci_names_build(snapshot, g->err);
}

void td_grouping_fini(struct td_grouping *g)
{
    free(g->candidates);
    g->candidates = NULL;
}
