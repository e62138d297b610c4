/* Plan: three sources of repositories, in this order: the commits of Hugging Face caches (the walk found them),
 * directories that hold files outside caches, and models directly in the root. describe_repo() then counts each one's
 * files and makes its commit. After sorting, one folder keeps each id. Look-ups are binary searches over the sorted
 * list, in which the other revisions of a cache follow its main one.
 *
 * What is hard: (1) names. "demo" and "local/demo" name one repository unless the path local/demo exists; is_taken()
 * decides that for every use. (2) A commit must change when any file does, but hashing takes time: until every digest
 * is known, the commit is made of identities, and that former commit stays valid as identity_commit. (3) One directory
 * can be asked for as a model and as a dataset, see td_repo_is_dataset() and find_own(). */
#include "catalog/names/repo.h"

#include "catalog/model/file_kind.h"
#include "catalog/model/split_name.h"
#include "core/array.h"
#include "core/checked.h"
#include "core/digits.h"
#include "core/text.h"
#include "parser/format/names.h"
#include "parser/rows/row_formats.h"

#include <stdlib.h>
#include <string.h>

static const char datasets_prefix[] = "datasets/";

static const char default_space[] = TD_REPO_DEFAULT_NAMESPACE "/";

enum { DATASETS_PREFIX_LEN = sizeof datasets_prefix - 1 };

/* ---- which directories are repositories ---------------------------------------------------------------- */

struct builder {
    struct td_snapshot *snapshot;
    struct td_repos *repos;
    size_t capacity;             /* of repos->items */
    bool *in_cache;              /* per entry: it is in a cache folder, or in a kept version */
    struct td_text *directories; /* directories that directly hold a file, outside caches; sorted, each once */
    size_t directory_count;
    struct td_error *err;
};

static struct td_repo *add_repo(struct builder *b)
{
    if (!TD_ARRAY_GROW(b->repos->items, b->repos->count, b->capacity, b->err))
        return NULL;
    struct td_repo *repo = &b->repos->items[b->repos->count++];
    memset(repo, 0, sizeof *repo);
    return repo;
}

/* Sets the id, without datasets/. */
static void set_id(struct td_repo *repo, const char *id)
{
    repo->is_dataset_folder = strncmp(id, datasets_prefix, DATASETS_PREFIX_LEN) == 0 && id[DATASETS_PREFIX_LEN] != '\0';
    repo->id = repo->is_dataset_folder ? id + DATASETS_PREFIX_LEN : id;
}

static bool add_caches(struct builder *b, const struct td_cache_folder *caches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct td_cache_folder *folder = &caches[i];
        size_t len = strlen(folder->path);
        size_t first;
        size_t entry_count;
        td_snapshot_entries_below(b->snapshot, td_text_n(folder->path, len), &first, &entry_count);
        struct td_repo *repo = add_repo(b);
        const char *id = td_arena_strndup(&b->snapshot->arena, td_text_of(folder->id));
        if (repo == NULL || id == NULL)
            return td_error_no_memory(b->err);
        set_id(repo, id);
        repo->is_other_revision = folder->is_other_revision;
        repo->folder = folder->folder;
        repo->revision = folder->commit;
        repo->first_entry = first;
        repo->entry_count = entry_count;
        repo->prefix_len = len + 1;
        repo->refs = folder->refs;
        repo->ref_count = folder->ref_count;
        for (size_t k = 0; k < entry_count; k++)
            b->in_cache[first + k] = true;
    }
    return true;
}

/* Marks the files of kept versions, which are revisions of families (catalog/names/family.h) and nothing else. */
static void mark_kept_versions(struct builder *b)
{
    for (size_t i = 0; i < b->snapshot->model_count; i++) {
        const struct td_model *model = &b->snapshot->models[i];
        for (size_t k = 0; model->is_kept_version && k < model->entry_count; k++)
            b->in_cache[model->first_entry + k] = true;
    }
}

static int name_compare(const void *a, const void *b)
{
    const struct td_text *x = a;
    const struct td_text *y = b;
    return td_text_compare(*x, *y);
}

/* Collects the directories that directly hold a file. */
static bool find_directories(struct builder *b)
{
    const struct td_snapshot *snapshot = b->snapshot;
    b->directories = calloc(snapshot->entry_count + 1, sizeof *b->directories);
    if (b->directories == NULL)
        return td_error_no_memory(b->err);
    size_t count = 0;
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const char *path = snapshot->entries[i].path;
        const char *name = td_base_name(path);
        bool is_in_datasets = (size_t)(name - path) == DATASETS_PREFIX_LEN &&
                              strncmp(path, datasets_prefix, DATASETS_PREFIX_LEN) == 0; /* of no dataset */
        if (!b->in_cache[i] && name != path && !is_in_datasets)
            b->directories[count++] = td_text_n(path, (size_t)(name - path) - 1);
    }
    if (count > 0)
        qsort(b->directories, count, sizeof *b->directories, name_compare);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || name_compare(&b->directories[i], &b->directories[i - 1]) != 0)
            b->directories[b->directory_count++] = b->directories[i];
    return true;
}

static struct td_text directory_at(const void *context, size_t i)
{
    return ((const struct td_text *)context)[i];
}

/* Returns whether no directory above it holds a file directly. */
static bool is_topmost(const struct builder *b, const struct td_text *directory)
{
    struct td_names names = {.count = b->directory_count, .context = b->directories, .get = directory_at};
    for (size_t len = 1; len < directory->len; len++) {
        bool found = false;
        if (directory->p[len] == '/')
            (void)td_names_search(&names, td_text_n(directory->p, len), &found);
        if (found)
            return false;
    }
    return true;
}

/* Returns the length of the path's first `segments` segments, or of the whole path when it has fewer. */
static size_t segments_len(const struct td_text *path, int segments)
{
    for (size_t i = 0; i < path->len; i++)
        if (path->p[i] == '/' && --segments == 0)
            return i;
    return path->len;
}

/* Returns whether all folders in NAME/, the first `name_len` bytes of directory number `at`, are parts of a dataset:
 * data, train, test ... Directory number `at` must be the first that begins with NAME/. */
static bool has_only_parts(const struct builder *b, size_t at, size_t name_len)
{
    struct td_text name = td_text_n(b->directories[at].p, name_len);
    for (; at < b->directory_count && td_text_begins(b->directories[at], name); at++) {
        struct td_text rest = td_text_skip(b->directories[at], name.len);
        if (!td_split_is_folder(td_text_take_until(&rest, '/')))
            return false;
    }
    return true;
}

/* Returns whether NAME, outside datasets/, holds files with rows and neither a checkpoint nor a part of a cache. */
static bool holds_only_data(const struct builder *b, struct td_text name)
{
    size_t first;
    size_t count;
    bool any = false;
    td_snapshot_entries_below(b->snapshot, name, &first, &count);
    for (size_t i = first; i < first + count; i++) {
        const struct td_entry *entry = &b->snapshot->entries[i];
        const char *base = td_base_name(entry->path);
        if (b->in_cache[i] || td_is_checkpoint_kind(entry->file->kind))
            return false;
        any = any || td_row_format_of(base) != NULL || td_is_image_file(base) ||
              entry->file->json_shape == TD_JSON_SHAPE_LINES;
    }
    return any;
}

/* The last NAME/ or datasets/NAME/ that id_part examined. */
struct last_name {
    struct td_text name;
    bool is_dataset; /* NAME is the id, and no namespace */
};

/* Returns the beginning of the path of directory number `at` that can be an id: two segments, after datasets/ if the
 * path begins so; one if the folders in it are parts of a dataset. Clients know no longer ids, so a deeper directory is
 * a part of the repository above it. */
static struct td_text id_part(const struct builder *b, size_t at, struct last_name *last)
{
    struct td_text part = b->directories[at];
    bool in_datasets = part.len > DATASETS_PREFIX_LEN && td_text_begins(part, TD_TEXT(datasets_prefix));
    size_t name_len = segments_len(&part, in_datasets ? 2 : 1);
    if (name_len == part.len)
        return part;
    struct td_text name = td_text_n(part.p, name_len + 1);
    if (td_text_compare(name, last->name) != 0) {
        bool has_data = in_datasets || holds_only_data(b, td_text_n(part.p, name_len));
        *last = (struct last_name){.name = name, .is_dataset = has_data && has_only_parts(b, at, name.len)};
    }
    part.len = last->is_dataset ? name_len : segments_len(&part, in_datasets ? 3 : 2);
    return part;
}

static bool add_directories(struct builder *b)
{
    struct td_text last = TD_TEXT("");
    struct last_name name = {.name = TD_TEXT("")};
    for (size_t i = 0; i < b->directory_count; i++) {
        const struct td_text part = id_part(b, i, &name);
        const struct td_text *directory = &part;
        if (!is_topmost(b, &b->directories[i]) || name_compare(directory, &last) == 0)
            continue;
        last = part;
        struct td_repo *repo = add_repo(b);
        const char *id = td_arena_strndup(&b->snapshot->arena, *directory);
        if (repo == NULL || id == NULL)
            return td_error_no_memory(b->err);
        set_id(repo, id);
        repo->folder = id;
        td_snapshot_entries_below(b->snapshot, *directory, &repo->first_entry, &repo->entry_count);
        repo->prefix_len = directory->len + 1;
    }
    return true;
}

/* Adds the models with files directly in the root. */
static bool add_root_models(struct builder *b)
{
    for (size_t i = 0; i < b->snapshot->model_count; i++) {
        const struct td_model *model = &b->snapshot->models[i];
        if (model->directory_len > 0 || model->entry_count == 0)
            continue;
        struct td_repo *repo = add_repo(b);
        if (repo == NULL)
            return false;
        repo->id = model->id;
        repo->folder = model->id;
        repo->first_entry = model->first_entry;
        repo->entry_count = model->entry_count;
        repo->error_count = model->problems.count;
    }
    return true;
}

/* ---- what is in them ----------------------------------------------------------------------------------- */

/* Extensions by which Hugging Face's dataset builders find their files. Models have some such files, too. */
static const struct {
    const char *extension;
    bool in_models;
} data_files[] = {
    {".parquet", false}, {".jsonl", false}, {".arrow", false}, {".json", true}, {".csv", true},
};

static bool is_data_file(const char *path, bool beside_config)
{
    for (size_t i = 0; i < sizeof data_files / sizeof *data_files; i++)
        if (td_has_extension_any_case(path, data_files[i].extension))
            return !beside_config || !data_files[i].in_models;
    return false;
}

bool td_repo_files_are_data(const struct td_snapshot *snapshot, size_t first, size_t count, size_t prefix_len)
{
    bool has_config = td_snapshot_find_in_run(snapshot, first, count, prefix_len, td_text_of("config.json")) != NULL;
    for (size_t i = first; i < first + count; i++)
        if (is_data_file(snapshot->entries[i].path + prefix_len, has_config))
            return true;
    return false;
}

void td_repo_commit_add(struct td_digest *commit, const char *path, const char *content)
{
    td_digest_add_cstring(commit, path);
    td_digest_add_cstring(commit, content);
}

/* Returns the number of problems of the models at the repository's directory and below. */
static size_t count_problems(const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    if (repo->prefix_len == 0 || repo->entry_count == 0)
        return 0; /* add_root_models counted those of a root model */
    const char *base =
        snapshot->entries[repo->first_entry].path; /* the repository's path is its beginning, with a '/' */
    const struct td_model *model = td_snapshot_find_model(snapshot, td_text_n(base, repo->prefix_len - 1));
    size_t count = model == NULL ? 0 : model->problems.count;
    for (size_t at = td_snapshot_models_after(snapshot, td_text_n(base, repo->prefix_len)); at < snapshot->model_count;
         at++) {
        model = &snapshot->models[at];
        if (strncmp(model->id, base, repo->prefix_len) != 0)
            break;
        count += model->problems.count;
    }
    return count;
}

/* Counts the repository's files and problems, and makes both commits. */
static bool describe_repo(const struct td_snapshot *snapshot, struct td_repo *repo, struct td_error *err)
{
    struct td_digest *by_content = td_digest_create();
    struct td_digest *by_identity = td_digest_create();
    bool all_known = true;
    for (size_t i = 0; i < repo->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[repo->first_entry + i];
        const struct td_file *file = entry->file;
        const char *path = td_repo_relative(repo, entry);
        const char *sha256 = td_file_sha256(file);
        repo->has_checkpoint = repo->has_checkpoint || td_is_checkpoint_kind(file->kind);
        repo->error_count += file->error != NULL ? 1 : 0;
        if (file->source.id.mtime_ns > repo->updated_ns)
            repo->updated_ns = file->source.id.mtime_ns;
        if (!td_add_u64(repo->file_bytes, file->source.id.size_bytes, &repo->file_bytes))
            repo->file_bytes = UINT64_MAX; /* sparse files can be that large */
        all_known = all_known && sha256 != NULL;
        td_repo_commit_add(by_content, path, sha256 == NULL ? "" : sha256);
        td_repo_commit_add(by_identity, path, file->identity_tag);
    }
    repo->error_count += count_problems(snapshot, repo);
    repo->has_data = td_repo_files_are_data(snapshot, repo->first_entry, repo->entry_count, repo->prefix_len);
    bool ok = td_digest_finish_text(by_content, repo->commit, TD_COMMIT_BYTES);
    ok = td_digest_finish_text(by_identity, repo->identity_commit, TD_COMMIT_BYTES) && ok;
    if (!all_known)
        memcpy(repo->commit, repo->identity_commit, sizeof repo->commit);
    return ok || td_error_no_memory(err);
}

/* Takes the commit of a cache's snapshot as the repository's commit, if its name is a Git commit (40 hexadecimal
 * digits). */
static void take_revision(struct td_repo *repo)
{
    if (repo->revision == NULL || strlen(repo->revision) != TD_COMMIT_BYTES - 1 ||
        !td_hex_is_lower(td_text_n(repo->revision, TD_COMMIT_BYTES - 1)))
        return;
    memcpy(repo->commit, repo->revision, TD_COMMIT_BYTES);
    memcpy(repo->identity_commit, repo->revision, TD_COMMIT_BYTES);
}

static size_t depth_of(const char *path)
{
    size_t depth = 0;
    for (; *path != '\0'; path++)
        depth += *path == '/' ? 1 : 0;
    return depth;
}

/* Orders by id; then folders with one id, the nearest to the root first, each followed by its other revisions. */
static int repo_compare(const void *a, const void *b)
{
    const struct td_repo *x = a;
    const struct td_repo *y = b;
    size_t x_depth = depth_of(x->folder);
    size_t y_depth = depth_of(y->folder);
    int order = (x->is_dataset_folder ? 1 : 0) - (y->is_dataset_folder ? 1 : 0);
    if (order == 0)
        order = strcmp(x->id, y->id);
    if (order == 0)
        order = (x_depth > y_depth) - (x_depth < y_depth);
    if (order == 0)
        order = strcmp(x->folder, y->folder);
    if (order == 0)
        order = (x->is_other_revision ? 1 : 0) - (y->is_other_revision ? 1 : 0);
    if (order == 0 && x->revision != NULL && y->revision != NULL)
        order = strcmp(x->revision, y->revision);
    return order;
}

static bool has_same_id(const struct td_repo *a, const struct td_repo *b)
{
    return a->is_dataset_folder == b->is_dataset_folder && strcmp(a->id, b->id) == 0;
}

/* Keeps one folder for each id; the others become problems. Counts the other revisions of those that stay. */
static void keep_one_of_each(struct td_snapshot *snapshot, struct td_repos *repos)
{
    size_t kept = 0;
    struct td_repo *main = NULL;
    for (size_t i = 0; i < repos->count; i++) {
        const struct td_repo *repo = &repos->items[i];
        bool same_folder = main != NULL && has_same_id(main, repo) && strcmp(main->folder, repo->folder) == 0;
        if (main != NULL && has_same_id(main, repo) && !same_folder) {
            if (!repo->is_other_revision)
                td_problems_add(&snapshot->problems, &snapshot->arena, repo->folder,
                                "not a repository for clients of the Hub: another one, nearer to DIR, has its id");
            continue;
        }
        if (same_folder)
            main->other_count++;
        repos->items[kept] = *repo;
        if (!same_folder)
            main = &repos->items[kept];
        kept++;
    }
    repos->count = kept;
}

/* Returns whether there is a file or a model at this path or below. */
static bool is_taken(const struct td_snapshot *snapshot, struct td_text path)
{
    size_t first;
    size_t count;
    td_snapshot_entries_below(snapshot, path, &first, &count);
    return count > 0 || td_snapshot_find_model(snapshot, path) != NULL;
}

/* Sets the id in answers of the Hub. */
static bool set_hub_id(struct td_snapshot *snapshot, struct td_repo *repo, struct td_error *err)
{
    static const char both[] = "datasets/" TD_REPO_DEFAULT_NAMESPACE "/";
    size_t len = strlen(repo->id);
    repo->hub_id = repo->id;
    if (strchr(repo->id, '/') != NULL)
        return true;
    char *path = td_arena_alloc(&snapshot->arena, sizeof both + len);
    if (path == NULL)
        return td_error_no_memory(err);
    memcpy(path, both, sizeof both - 1);
    memcpy(path + sizeof both - 1, repo->id, len + 1);
    const char *id = path + DATASETS_PREFIX_LEN;
    bool taken =
        is_taken(snapshot, td_text_of(id)) || (td_repo_is_dataset(repo) && is_taken(snapshot, td_text_of(path)));
    if (!taken)
        repo->hub_id = id;
    return true;
}

/* Copies the list of cache folders, which views need. */
static bool keep_caches(struct builder *b, const struct td_cache_folder *caches, size_t count)
{
    b->repos->caches = td_arena_array(&b->snapshot->arena, count, sizeof *caches);
    if (b->repos->caches == NULL)
        return td_error_no_memory(b->err);
    b->repos->cache_count = count;
    if (count > 0)
        memcpy(b->repos->caches, caches, count * sizeof *caches);
    return true;
}

bool td_repo_describe(struct td_snapshot *snapshot, struct td_repo *repo, struct td_error *err)
{
    return describe_repo(snapshot, repo, err) && set_hub_id(snapshot, repo, err);
}

static void destroy_repos(struct td_snapshot_part *part)
{
    struct td_repos *repos = (struct td_repos *)(void *)part;
    free(repos->items);
    free(repos);
}

/* Gives the snapshot its list, which is empty. Returns NULL when out of memory. */
static struct td_repos *begin_repos(struct td_snapshot *snapshot)
{
    struct td_repos *repos = calloc(1, sizeof *repos);
    if (repos == NULL)
        return NULL;
    repos->part.destroy = destroy_repos;
    (void)td_snapshot_add_part(snapshot, TD_PART_REPOS, &repos->part);
    return repos;
}

const struct td_repos *td_repos_of(const struct td_snapshot *snapshot)
{
    static const struct td_repos none = {.count = 0};
    return (const struct td_repos *)(const void *)td_snapshot_part_or(snapshot, TD_PART_REPOS, &none.part);
}

bool td_repos_build(struct td_snapshot *snapshot, const struct td_cache_folder *caches, size_t cache_count,
                    struct td_error *err)
{
    struct td_repos *repos = begin_repos(snapshot);
    struct builder b = {.snapshot = snapshot, .repos = repos, .err = err};
    if (repos == NULL)
        return td_error_no_memory(err);
    if (!keep_caches(&b, caches, cache_count))
        return false;
    b.in_cache = calloc(snapshot->entry_count + 1, sizeof *b.in_cache);
    if (b.in_cache == NULL)
        return td_error_no_memory(err);
    mark_kept_versions(&b);
    bool ok = add_caches(&b, caches, cache_count) && find_directories(&b) && add_directories(&b) && add_root_models(&b);
    for (size_t i = 0; ok && i < repos->count; i++) {
        ok = td_repo_describe(snapshot, &repos->items[i], err);
        take_revision(&repos->items[i]);
    }
    if (ok && repos->count > 0)
        qsort(repos->items, repos->count, sizeof *repos->items, repo_compare);
    repos->problem_first = snapshot->problems.count;
    if (ok)
        keep_one_of_each(snapshot, repos);
    repos->problem_count = snapshot->problems.count - repos->problem_first;
    free(b.in_cache);
    free(b.directories);
    return ok;
}

void td_repos_set_families(struct td_snapshot *snapshot, const struct td_repo *const *families, size_t count)
{
    struct td_repos *repos = (struct td_repos *)(void *)td_snapshot_get_part(snapshot, TD_PART_REPOS);
    repos->families = families;
    repos->family_count = count;
}

/* ---- finding them -------------------------------------------------------------------------------------- */

bool td_repo_is_dataset(const struct td_repo *repo)
{
    return repo->is_dataset_folder || (repo->has_data && !repo->has_checkpoint);
}

static struct td_text family_id(const void *context, size_t i)
{
    return td_text_of(((const struct td_repo *const *)context)[i]->id);
}

/* Returns the main revision of the family with this id, or NULL. */
static const struct td_repo *find_family(const struct td_repos *repos, struct td_text id)
{
    const struct td_names names = {.count = repos->family_count, .context = repos->families, .get = family_id};
    bool found = false;
    size_t at = td_names_search(&names, id, &found);
    return found && at < repos->family_count ? repos->families[at] : NULL;
}

/* Returns the main revision of the repository with this id among the dataset folders or among the others, or NULL. */
static const struct td_repo *find_in(const struct td_snapshot *snapshot, bool folder, struct td_text id)
{
    const struct td_repos *repos = td_repos_of(snapshot);
    const struct td_repo *family = folder ? NULL : find_family(repos, id);
    size_t low = 0;
    size_t high = repos->count;
    if (family != NULL)
        return family;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct td_repo *repo = &repos->items[mid];
        bool before = repo->is_dataset_folder != folder ? folder : td_text_compare(td_text_of(repo->id), id) < 0;
        if (before)
            low = mid + 1;
        else
            high = mid;
    }
    const struct td_repo *repo = low < repos->count ? &repos->items[low] : NULL;
    bool found = repo != NULL && repo->is_dataset_folder == folder && !repo->is_other_revision &&
                 td_text_compare(td_text_of(repo->id), id) == 0;
    return found ? repo : NULL;
}

/* Returns the path without the default namespace, "demo" or "demo/rest". Returns NULL when the path has another
 * namespace, or something owns the name local/demo. */
static const char *without_namespace(const struct td_snapshot *snapshot, struct td_text path)
{
    const size_t space_len = sizeof default_space - 1;
    if (path.len <= space_len || !td_text_begins(path, TD_TEXT(default_space)))
        return NULL;
    const char *slash = memchr(path.p + space_len, '/', path.len - space_len);
    size_t name_end = slash == NULL ? path.len : (size_t)(slash - path.p);
    return is_taken(snapshot, td_text_n(path.p, name_end)) ? NULL : path.p + space_len;
}

const char *td_repo_resolve(const struct td_snapshot *snapshot, const char *path, size_t *len)
{
    const char *name = without_namespace(snapshot, td_text_n(path, *len));
    if (name == NULL)
        return path;
    size_t rest_len = *len - (size_t)(name - path);
    const char *slash = memchr(name, '/', rest_len);
    size_t name_len = slash == NULL ? rest_len : (size_t)(slash - name);
    if (find_in(snapshot, false, td_text_n(name, name_len)) == NULL)
        return path;
    *len = rest_len;
    return name;
}

/* Finds a repository by its own id, not by another name. */
static const struct td_repo *find_own(const struct td_snapshot *snapshot, bool as_dataset, struct td_text id)
{
    const struct td_repo *repo = as_dataset ? find_in(snapshot, true, id) : NULL;
    if (repo == NULL)
        repo = find_in(snapshot, false, id);
    return repo != NULL && as_dataset && repo->has_checkpoint && !repo->is_dataset_folder ? NULL : repo;
}

const struct td_repo *td_repo_find(const struct td_snapshot *snapshot, bool as_dataset, struct td_text id)
{
    const struct td_repo *repo = find_own(snapshot, as_dataset, id);
    const char *name = repo == NULL ? without_namespace(snapshot, id) : NULL;
    size_t name_len = name == NULL ? 0 : id.len - (size_t)(name - id.p);
    bool is_alias = name != NULL && memchr(name, '/', name_len) == NULL;
    return is_alias ? find_own(snapshot, as_dataset, td_text_n(name, name_len)) : repo;
}

/* Returns whether the repository has a file or a folder at this path. */
static bool has_path(const struct td_snapshot *snapshot, const struct td_repo *repo, struct td_text path)
{
    return td_snapshot_find_in_run(snapshot, repo->first_entry, repo->entry_count, repo->prefix_len, path) != NULL ||
           td_snapshot_run_has_folder(snapshot, repo->first_entry, repo->entry_count, repo->prefix_len, path);
}

const struct td_repo *td_repo_above(const struct td_snapshot *snapshot, bool as_dataset, struct td_text path,
                                    const char **folder)
{
    size_t end = 0;
    for (int segments = 0; segments < 2; segments++) {
        const char *slash = end < path.len ? memchr(path.p + end, '/', path.len - end) : NULL;
        if (slash == NULL)
            return NULL;
        end = (size_t)(slash - path.p) + 1;
        const struct td_repo *repo = td_repo_find(snapshot, as_dataset, td_text_n(path.p, end - 1));
        if (repo != NULL && has_path(snapshot, repo, td_text_skip(path, end))) {
            *folder = path.p + end;
            return repo;
        }
    }
    return NULL;
}

/* text may be NULL. */
static bool is_text(const char *text, const char *p, size_t len)
{
    return text != NULL && strlen(text) == len && memcmp(text, p, len) == 0;
}

/* Returns whether the text names the repository's own commit. */
static bool is_commit_of(const struct td_repo *repo, struct td_text revision)
{
    return is_text(repo->commit, revision.p, revision.len) ||
           is_text(repo->identity_commit, revision.p, revision.len) ||
           is_text(repo->revision, revision.p, revision.len);
}

/* Returns the other revision of the cache with this name, or NULL. Other revisions follow the main one, sorted. */
static const struct td_repo *find_other(const struct td_repo *repo, struct td_text revision)
{
    size_t low = 1;
    size_t high = 1 + repo->other_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const char *name = repo[mid].revision;
        int order = name == NULL ? -1 : td_text_compare(td_text_of(name), revision);
        if (order == 0)
            return &repo[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* Returns the other revision for which this commit was made, because its name is not a commit; NULL when no revision
 * has it. */
static const struct td_repo *find_other_by_commit(const struct td_repo *repo, struct td_text commit)
{
    for (const struct td_repo *other = repo + 1; other <= repo + repo->other_count; other++)
        if (is_text(other->commit, commit.p, commit.len) || is_text(other->identity_commit, commit.p, commit.len))
            return other;
    return NULL;
}

const struct td_repo *td_repo_of_ref(const struct td_repo *repo, const struct td_repo_ref *ref)
{
    bool is_own = !repo->lacks_main && is_text(repo->revision, ref->commit, strlen(ref->commit));
    return is_own ? repo : find_other(repo, td_text_of(ref->commit));
}

static struct td_text ref_name(const void *context, size_t i)
{
    return td_text_of(((const struct td_repo_ref *)context)[i].name);
}

const struct td_repo *td_repo_at(const struct td_repo *repo, struct td_text revision)
{
    if (is_commit_of(repo, revision) || td_text_equals(revision, "main") || td_text_equals(revision, "HEAD"))
        return repo->lacks_main ? NULL : repo;
    const struct td_names refs = {.count = repo->ref_count, .context = repo->refs, .get = ref_name};
    bool is_ref = false;
    size_t at = td_names_search(&refs, revision, &is_ref);
    if (is_ref && at < repo->ref_count)
        return td_repo_of_ref(repo, &repo->refs[at]);
    const struct td_repo *other = find_other(repo, revision);
    if (other == NULL)
        other = find_other_by_commit(repo, revision);
    bool has_latest = repo->revision != NULL && repo->has_checkpoint && !repo->lacks_main;
    return other == NULL && has_latest && td_text_equals(revision, "latest") ? repo : other;
}

const char *td_repo_relative(const struct td_repo *repo, const struct td_entry *entry)
{
    return entry->path + repo->prefix_len;
}
