/* Plan: add_folders() makes a row of each model whose folder has a version's name; add_caches() makes rows of the
 * snapshots of caches. Rows are sorted by family, and list_versions() turns each run of one family into a td_family.
 * add_repositories() then makes the repositories for clients of the Hub and of registries.
 *
 * What is hard: names in caches. A snapshot may have many refs, and its folder's name may be a ref to another snapshot.
 * name_snapshots() sorts the refs by name once, so that each question about them is a binary search. */
#include "catalog/names/family.h"

#include "catalog/model/plain_id.h"
#include "catalog/model/reserved_id.h"
#include "catalog/names/repo.h"
#include "core/array.h"
#include "core/digits.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* A version while the families are made. */
struct row {
    struct td_text family;
    bool is_cache;
    struct td_version version;
};

struct builder {
    struct td_snapshot *snapshot;
    struct td_families *families;
    struct row *rows;
    size_t count, capacity;
    size_t folder_rows; /* the first rows, which are sorted, are those of folders */
    struct td_error *err;
};

/* Compares two versions of one family. */
static int compare_versions(const struct td_version *x, const struct td_version *y)
{
    if (x->has_number != y->has_number)
        return x->has_number ? 1 : -1;
    return td_version_name_compare(x->number, td_text_of(x->name), y->number, td_text_of(y->name));
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a;
    const struct row *y = b;
    int order = td_text_compare(x->family, y->family);
    return order != 0 ? order : compare_versions(&x->version, &y->version);
}

static void sort_rows(struct row *rows, size_t count)
{
    if (count > 0)
        qsort(rows, count, sizeof *rows, compare_rows);
}

static bool add_row(struct builder *b, struct td_text family, bool is_cache, const struct td_version *version)
{
    if (!TD_ARRAY_GROW(b->rows, b->count, b->capacity, b->err))
        return false;
    struct row *row = &b->rows[b->count++];
    *row = (struct row){.family = family, .is_cache = is_cache, .version = *version};
    row->version.has_number =
        td_version_name_parse(td_text_of(version->name), b->families->prefixes, &row->version.number);
    return true;
}

/* Adds the models in folders that have names of versions, and the versions that --upstream keeps. */
static bool add_folders(struct builder *b)
{
    for (size_t i = 0; i < b->snapshot->model_count; i++) {
        const struct td_model *model = &b->snapshot->models[i];
        struct td_text above = td_text_of(model->id);
        bool is_folder = model->directory_len == above.len && !model->is_other_revision;
        const char *slash = is_folder ? strrchr(model->id, '/') : NULL;
        const struct td_plain_path plain = td_plain_path(model, model->id);
        if (model->is_kept_version && plain.after.len == 0 &&
            !add_row(b, plain.before, false, &(struct td_version){.name = model->revision, .model = model}))
            return false;
        if (slash == NULL || !td_version_name_parse(td_text_of(slash + 1), b->families->prefixes, NULL))
            continue;
        above.len = (size_t)(slash - model->id);
        if (!td_id_is_reserved(above) &&
            !add_row(b, above, false, &(struct td_version){.name = slash + 1, .model = model}))
            return false;
    }
    sort_rows(b->rows, b->count);
    b->folder_rows = b->count;
    return true;
}

static int compare_families(const void *a, const void *b)
{
    return td_text_compare(((const struct row *)a)->family, ((const struct row *)b)->family);
}

/* Returns whether the folder has subfolders that are versions. */
static bool has_version_folders(const struct builder *b, const char *folder)
{
    const struct row wanted = {.family = td_text_of(folder)};
    return b->folder_rows > 0 && bsearch(&wanted, b->rows, b->folder_rows, sizeof wanted, compare_families) != NULL;
}

/* ---- snapshots of caches ------------------------------------------------------------------------------- */

/* A ref to one of the snapshots of a cache. */
struct ref_to {
    const char *name;
    size_t snapshot; /* its place in the run of the cache's snapshots */
};

/* One cache: its snapshots, the main one first, the others sorted by commit; and the refs that lead to them. */
struct cache {
    const struct td_cache_folder *const *snapshots;
    size_t count;
    struct ref_to *refs; /* sorted by name, then by snapshot and name */
    size_t ref_count;
};

static int compare_snapshots(const void *a, const void *b)
{
    const struct td_cache_folder *x = *(const struct td_cache_folder *const *)a;
    const struct td_cache_folder *y = *(const struct td_cache_folder *const *)b;
    int order = strcmp(x->folder, y->folder);
    if (order == 0)
        order = (x->is_other_revision ? 1 : 0) - (y->is_other_revision ? 1 : 0);
    return order != 0 ? order : strcmp(x->commit, y->commit);
}

static int compare_refs_by_name(const void *a, const void *b)
{
    return strcmp(((const struct ref_to *)a)->name, ((const struct ref_to *)b)->name);
}

static int compare_refs_by_snapshot(const void *a, const void *b)
{
    const struct ref_to *x = a;
    const struct ref_to *y = b;
    int order = (x->snapshot > y->snapshot) - (x->snapshot < y->snapshot);
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* Returns the place of the snapshot with this commit, or `count`. */
static size_t find_snapshot(const struct cache *cache, const char *commit)
{
    size_t low = 1;
    size_t high = cache->count;
    if (strcmp(cache->snapshots[0]->commit, commit) == 0)
        return 0;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(cache->snapshots[mid]->commit, commit);
        if (order == 0)
            return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return cache->count;
}

/* Returns whether a ref of this name leads to another snapshot than number `own`. The refs are sorted by name. */
static bool names_another(const struct cache *cache, const char *name, size_t own)
{
    const struct ref_to wanted = {.name = name};
    const struct ref_to *found =
        cache->ref_count == 0 ? NULL
                              : bsearch(&wanted, cache->refs, cache->ref_count, sizeof wanted, compare_refs_by_name);
    return found != NULL && found->snapshot != own;
}

/* Returns the name of the snapshot with these refs: the highest ref with a version's name, else that of its folder;
 * NULL if that is a ref to another snapshot, as `is_hidden` says. */
static const char *name_of(const struct builder *b, const char *commit, bool is_hidden, const struct ref_to *refs,
                           size_t count)
{
    const char *best = NULL;
    uint64_t best_number = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = 0;
        struct td_text name = td_text_of(refs[i].name);
        if (!td_version_name_parse(name, b->families->prefixes, &number))
            continue;
        if (best == NULL || td_version_name_compare(number, name, best_number, td_text_of(best)) > 0) {
            best = refs[i].name;
            best_number = number;
        }
    }
    return best != NULL ? best : is_hidden ? NULL : commit;
}

/* Adds a version for snapshot number `i`, unless it is no model or has no name. `refs` are those to it. */
static bool add_snapshot(struct builder *b, const struct cache *cache, size_t i, bool is_hidden,
                         const struct ref_to *refs, size_t count)
{
    const struct td_cache_folder *folder = cache->snapshots[i];
    const struct td_model *model = td_snapshot_find_model(b->snapshot, td_text_of(folder->path));
    const char *name = name_of(b, folder->commit, is_hidden, refs, count);
    if (model == NULL || name == NULL || model->entry_count == 0)
        return true;
    const char **names = td_arena_array(&b->snapshot->arena, count, sizeof *names);
    if (names == NULL)
        return td_error_no_memory(b->err);
    for (size_t k = 0; k < count; k++)
        names[k] = refs[k].name;
    return add_row(b, td_text_of(folder->folder), true,
                   &(struct td_version){
                       .name = name, .model = model, .commit = folder->commit, .refs = names, .ref_count = count});
}

/* Adds versions for the snapshots of a cache. hidden: for each snapshot, room for a flag. */
static bool add_snapshots(struct builder *b, struct cache *cache, bool *hidden)
{
    if (cache->ref_count > 0)
        qsort(cache->refs, cache->ref_count, sizeof *cache->refs, compare_refs_by_name);
    for (size_t i = 0; i < cache->count; i++)
        hidden[i] = names_another(cache, cache->snapshots[i]->commit, i);
    if (cache->ref_count > 0)
        qsort(cache->refs, cache->ref_count, sizeof *cache->refs, compare_refs_by_snapshot);
    size_t first = 0;
    for (size_t i = 0; i < cache->count; i++) {
        size_t end = first;
        while (end < cache->ref_count && cache->refs[end].snapshot == i)
            end++;
        if (!add_snapshot(b, cache, i, hidden[i], &cache->refs[first], end - first))
            return false;
        first = end;
    }
    return true;
}

/* Adds versions for one cache, whose snapshots are sorted. */
static bool add_cache(struct builder *b, const struct td_cache_folder *const *snapshots, size_t count)
{
    const struct td_cache_folder *main = snapshots[0];
    struct cache cache = {.snapshots = snapshots, .count = count};
    if (main->is_other_revision || has_version_folders(b, main->folder))
        return true;
    struct ref_to *refs = calloc(main->ref_count + 1, sizeof *refs);
    bool *hidden = calloc(count, sizeof *hidden);
    if (refs == NULL || hidden == NULL) {
        free(refs);
        free(hidden);
        return td_error_no_memory(b->err);
    }
    cache.refs = refs;
    for (size_t i = 0; i < main->ref_count; i++) {
        size_t at = find_snapshot(&cache, main->refs[i].commit);
        if (at < count)
            refs[cache.ref_count++] = (struct ref_to){.name = main->refs[i].name, .snapshot = at};
    }
    bool ok = add_snapshots(b, &cache, hidden);
    free(refs);
    free(hidden);
    return ok;
}

static bool add_caches(struct builder *b)
{
    const struct td_repos *repos = td_repos_of(b->snapshot);
    const struct td_cache_folder **sorted = calloc(repos->cache_count + 1, sizeof *sorted);
    if (sorted == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < repos->cache_count; i++)
        sorted[i] = &repos->caches[i];
    qsort(sorted, repos->cache_count, sizeof *sorted, compare_snapshots);
    bool ok = true;
    for (size_t first = 0, end; ok && first < repos->cache_count; first = end) {
        for (end = first + 1; end < repos->cache_count && strcmp(sorted[first]->folder, sorted[end]->folder) == 0;
             end++)
            ;
        ok = add_cache(b, sorted + first, end - first);
    }
    free(sorted);
    sort_rows(b->rows, b->count);
    return ok;
}

/* ---- families ------------------------------------------------------------------------------------------ */

/* Returns whether the model is served without an error. */
static bool is_served(const struct td_model *model)
{
    return model->checkpoint_count > 0 && model->problems.count == 0;
}

/* Returns the family's latest version, or NULL. Of the versions of a cache without a number only the main one can be
 * it: the others are in the order of their hashes, and may be commits whose last ref was deleted. */
static const struct td_version *find_latest(const struct td_family *family)
{
    bool has_numbers = family->versions[family->count - 1].has_number; /* those with a number come last */
    for (size_t i = family->count; i > 0; i--) {
        const struct td_version *version = &family->versions[i - 1];
        const struct td_model *model = version->model;
        bool is_main = !model->is_other_revision && !model->is_delta;
        bool may_be = version->has_number || !family->is_cache || is_main;
        if (family->is_cache && !has_numbers ? is_main : may_be && is_served(model))
            return version;
    }
    return NULL;
}

/* A name that leads to a version while the list is made. */
struct made_alias {
    const char *name;
    int order; /* of equal names, the one with the lowest order counts */
    size_t version;
};

static int compare_aliases(const void *a, const void *b)
{
    const struct made_alias *x = a;
    const struct made_alias *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->order - y->order;
}

bool td_family_list_aliases(struct td_family *family, struct td_arena *arena, struct td_error *err)
{
    enum { NAME, REF, COMMIT };
    size_t most = 2 * family->count;
    size_t count = 0;
    for (size_t i = 0; i < family->count; i++)
        most += family->versions[i].ref_count;
    struct made_alias *made = calloc(most + 1, sizeof *made);
    struct td_version_alias *aliases = td_arena_array(arena, most, sizeof *aliases);
    if (made == NULL || aliases == NULL) {
        free(made);
        return td_error_no_memory(err);
    }
    for (size_t i = 0; i < family->count; i++) {
        const struct td_version *version = &family->versions[i];
        made[count++] = (struct made_alias){version->name, NAME, i};
        for (size_t k = 0; k < version->ref_count; k++)
            made[count++] = (struct made_alias){version->refs[k], REF, i};
        if (version->commit != NULL)
            made[count++] = (struct made_alias){version->commit, COMMIT, i};
    }
    if (count > 0)
        qsort(made, count, sizeof *made, compare_aliases);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(made[i].name, made[i - 1].name) != 0)
            aliases[family->alias_count++] =
                (struct td_version_alias){.name = made[i].name, .version = made[i].version};
    family->aliases = aliases;
    free(made);
    return true;
}

/* Turns a run of rows into a family. */
static bool list_versions(struct builder *b, const struct row *rows, size_t count, struct td_family *family)
{
    struct td_arena *arena = &b->snapshot->arena;
    struct td_version *versions = td_arena_array(arena, count, sizeof *versions);
    *family = (struct td_family){
        .id = td_arena_strndup(arena, rows[0].family), .is_cache = rows[0].is_cache, .versions = versions};
    if (versions == NULL || family->id == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < count; i++)
        versions[family->count++] = rows[i].version;
    family->latest = find_latest(family);
    return td_family_list_aliases(family, arena, b->err);
}

/* Makes families of the sorted rows. */
static bool list_families(struct builder *b)
{
    struct td_families *families = b->families;
    size_t count = 0;
    for (size_t i = 0; i < b->count; i++)
        count += i == 0 || compare_families(&b->rows[i], &b->rows[i - 1]) != 0 ? 1 : 0;
    families->items = td_arena_array(&b->snapshot->arena, count, sizeof *families->items);
    families->states = calloc(count + 1, sizeof *families->states);
    if (families->items == NULL || families->states == NULL)
        return td_error_no_memory(b->err);
    for (size_t first = 0, end; first < b->count; first = end) {
        for (end = first + 1; end < b->count && compare_families(&b->rows[first], &b->rows[end]) == 0; end++)
            ;
        struct td_family *family = &families->items[families->count];
        if (!list_versions(b, b->rows + first, end - first, family))
            return false;
        family->list_state = &families->states[families->count++];
    }
    return true;
}

/* ---- repositories -------------------------------------------------------------------------------------- */

/* Returns whether clients of the Hub can know a folder of this path: it has one or two segments and is not in
 * datasets/. */
static bool can_be_repository(struct td_text id)
{
    struct td_text first = td_text_take_until(&id, '/');
    return !td_text_equals(first, "datasets") && (id.len == 0 || memchr(id.p, '/', id.len) == NULL);
}

/* Makes the revision for a version that is a folder. */
static bool make_revision(struct builder *b, const struct td_family *family, const struct td_version *version,
                          struct td_repo *out)
{
    const struct td_model *model = version->model;
    *out = (struct td_repo){.id = family->id,
                            .is_other_revision = true,
                            .folder = model->id,
                            .revision = version->name,
                            .first_entry = model->first_entry,
                            .entry_count = model->entry_count,
                            .prefix_len = model->directory_len + 1};
    return td_repo_describe(b->snapshot, out, b->err);
}

static int compare_revisions(const void *a, const void *b)
{
    return strcmp(((const struct td_repo *)a)->revision, ((const struct td_repo *)b)->revision);
}

/* Sets the other revisions of repos[0]: those of the repository that is there, and one for each version that is a
 * folder. */
static bool add_revisions(struct builder *b, const struct td_family *family, const struct td_repo *there,
                          struct td_repo *repos)
{
    size_t count = there == NULL ? 0 : there->other_count;
    if (count > 0)
        memcpy(repos + 1, there + 1, count * sizeof *repos);
    for (size_t i = 0; !family->is_cache && i < family->count; i++) {
        const struct td_version *version = &family->versions[i];
        bool is_taken = there != NULL && td_repo_at(there, td_text_of(version->name)) != NULL;
        if (!is_taken && version->model->entry_count > 0 && !make_revision(b, family, version, &repos[1 + count++]))
            return false;
    }
    repos[0].other_count = count;
    qsort(repos + 1, count, sizeof *repos, compare_revisions);
    return true;
}

static int compare_repo_refs(const void *a, const void *b)
{
    return strcmp(((const struct td_repo_ref *)a)->name, ((const struct td_repo_ref *)b)->name);
}

/* Returns whether one of `count` refs, which are sorted, has this name. */
static bool has_ref(const struct td_repo_ref *refs, size_t count, const char *name)
{
    const struct td_repo_ref wanted = {.name = name};
    return count > 0 && bsearch(&wanted, refs, count, sizeof wanted, compare_repo_refs) != NULL;
}

/* Sets the refs of the main revision: those of the repository that is there, one for each version, and "latest". A ref
 * of the same name that is there takes precedence. */
static bool add_refs(struct builder *b, const struct td_family *family, struct td_repo *main)
{
    size_t there = main->ref_count;
    size_t count = there;
    struct td_repo_ref *refs = td_arena_array(&b->snapshot->arena, there + family->count + 1, sizeof *refs);
    if (refs == NULL)
        return td_error_no_memory(b->err);
    if (there > 0)
        memcpy(refs, main->refs, there * sizeof *refs);
    for (size_t i = 0; i < family->count; i++) {
        const struct td_version *version = &family->versions[i];
        const char *commit = family->is_cache ? version->commit : version->name;
        if (version->has_number && !has_ref(refs, there, version->name))
            refs[count++] = (struct td_repo_ref){.name = version->name, .commit = commit};
        if (version == family->latest && !has_ref(refs, there, TD_VERSION_LATEST))
            refs[count++] = (struct td_repo_ref){.name = TD_VERSION_LATEST, .commit = commit};
    }
    qsort(refs, count, sizeof *refs, compare_repo_refs);
    main->refs = refs;
    main->ref_count = count;
    return true;
}

/* Makes the repository of a family and sets *out to its main revision. there: the main revision of the repository that
 * has the family's folder already; NULL: none has. */
static bool make_repository(struct builder *b, const struct td_family *family, const struct td_repo *there,
                            const struct td_repo **out)
{
    size_t most = 1 + (there == NULL ? 0 : there->other_count) + (family->is_cache ? 0 : family->count);
    struct td_repo *repos = td_arena_array(&b->snapshot->arena, most, sizeof *repos);
    if (repos == NULL)
        return td_error_no_memory(b->err);
    if (there != NULL)
        repos[0] = *there;
    else if (family->latest == NULL)
        repos[0] = (struct td_repo){.lacks_main = true};
    else if (!make_revision(b, family, family->latest, &repos[0]))
        return false;
    repos[0].is_other_revision = false;
    repos[0].is_added = there == NULL;
    if (there == NULL) {
        repos[0].id = family->id;
        repos[0].folder = family->id;
    }
    if (repos[0].lacks_main && !td_repo_describe(b->snapshot, &repos[0], b->err))
        return false;
    *out = &repos[0];
    return add_revisions(b, family, there, repos) && add_refs(b, family, &repos[0]);
}

static int compare_repositories(const void *a, const void *b)
{
    const struct td_repo *x = *(const struct td_repo *const *)a;
    const struct td_repo *y = *(const struct td_repo *const *)b;
    return strcmp(x->id, y->id);
}

/* Returns whether clients of the Hub may know more revisions of the family than they know without families. */
static bool needs_repository(const struct td_snapshot *snapshot, const struct td_family *family,
                             const struct td_repo *there)
{
    if (family->is_cache)
        return there != NULL && family->versions[family->count - 1].has_number;
    return there != NULL ||
           (can_be_repository(td_text_of(family->id)) && td_repo_find(snapshot, false, td_text_of(family->id)) == NULL);
}

/* Finds for each family the repository that has its folder. there: for each family, room for a pointer. */
static void find_repositories(const struct builder *b, const struct td_repo **there)
{
    const struct td_families *families = b->families;
    const struct td_repos *repos = td_repos_of(b->snapshot);
    for (size_t i = 0; i < repos->count; i++) {
        const struct td_repo *repo = &repos->items[i];
        bool is_main = !repo->is_other_revision && !repo->is_dataset_folder;
        const struct td_family *family = is_main ? td_family_find(b->snapshot, td_text_of(repo->folder)) : NULL;
        if (family != NULL)
            there[family - families->items] = repo;
    }
}

/* Adds the families to the snapshot's repositories. */
static bool add_repositories(struct builder *b)
{
    const struct td_families *families = b->families;
    size_t count = 0;
    bool ok = true;
    const struct td_repo **there = calloc(families->count + 1, sizeof *there);
    const struct td_repo **list = td_arena_array(&b->snapshot->arena, families->count, sizeof *list);
    if (there == NULL || list == NULL) {
        free(there);
        return td_error_no_memory(b->err);
    }
    find_repositories(b, there);
    for (size_t i = 0; ok && i < families->count; i++)
        if (needs_repository(b->snapshot, &families->items[i], there[i]))
            ok = make_repository(b, &families->items[i], there[i], &list[count++]);
    free(there);
    if (ok && count > 0)
        qsort(list, count, sizeof *list, compare_repositories);
    if (ok)
        td_repos_set_families(b->snapshot, list, count);
    return ok;
}

/* ---- building ------------------------------------------------------------------------------------------ */

static void destroy_families(struct td_snapshot_part *part)
{
    struct td_families *families = (struct td_families *)(void *)part;
    for (size_t i = 0; i < families->count; i++)
        free(atomic_load(&families->states[i]));
    free(families->states);
    free(families);
}

bool td_families_build(struct td_snapshot *snapshot, const struct td_version_prefixes *prefixes, struct td_error *err)
{
    struct td_families *families = calloc(1, sizeof *families);
    if (families == NULL)
        return td_error_no_memory(err);
    families->part.destroy = destroy_families;
    families->prefixes = prefixes;
    (void)td_snapshot_add_part(snapshot, TD_PART_FAMILIES, &families->part);
    struct builder b = {.snapshot = snapshot, .families = families, .err = err};
    bool ok = add_folders(&b) && add_caches(&b) && list_families(&b) && add_repositories(&b);
    free(b.rows);
    return ok;
}

const struct td_families *td_families_of(const struct td_snapshot *snapshot)
{
    static const struct td_families none = {.count = 0};
    return (const struct td_families *)(const void *)td_snapshot_part_or(snapshot, TD_PART_FAMILIES, &none.part);
}

/* ---- finding them -------------------------------------------------------------------------------------- */

static struct td_text id_of(const void *context, size_t i)
{
    return td_text_of(((const struct td_family *)context)[i].id);
}

const struct td_family *td_family_find(const struct td_snapshot *snapshot, struct td_text id)
{
    const struct td_families *families = td_families_of(snapshot);
    const struct td_names names = {.count = families->count, .context = families->items, .get = id_of};
    bool found = false;
    size_t at = td_names_search(&names, id, &found);
    return found && at < families->count ? &families->items[at] : NULL;
}

const struct td_family *td_family_route(const struct td_snapshot *snapshot, struct td_text path, size_t *rest)
{
    for (size_t len = path.len; len > 0; len--) {
        if (len < path.len && path.p[len] != '/')
            continue;
        const struct td_family *family = td_family_find(snapshot, td_text_n(path.p, len));
        if (family == NULL)
            continue;
        *rest = len < path.len ? len + 1 : len;
        return family;
    }
    return NULL;
}

static struct td_text alias_of(const void *context, size_t i)
{
    return td_text_of(((const struct td_version_alias *)context)[i].name);
}

/* Returns the place of the version that has this name, ref or folder, or family->count. */
static size_t find_alias(const struct td_family *family, struct td_text name)
{
    const struct td_names names = {.count = family->alias_count, .context = family->aliases, .get = alias_of};
    bool found = false;
    size_t at = td_names_search(&names, name, &found);
    return found && at < family->alias_count ? family->aliases[at].version : family->count;
}

/* A place in the order of a family's versions. */
struct place {
    bool has_number;
    uint64_t number;
    struct td_text name;
};

/* Returns the place of the first version that does not come before `wanted`. */
static size_t lower_bound(const struct td_family *family, const struct place *wanted)
{
    size_t low = 0;
    size_t high = family->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct td_version *version = &family->versions[mid];
        int order = (version->has_number ? 1 : 0) - (wanted->has_number ? 1 : 0);
        if (order == 0)
            order = td_version_name_compare(version->number, td_text_of(version->name), wanted->number, wanted->name);
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

enum td_version_found td_family_find_version(const struct td_family *family, struct td_text text,
                                             const struct td_version **out)
{
    struct place wanted = {.has_number = true};
    size_t named = find_alias(family, text);
    *out = NULL;
    if (named < family->count) {
        *out = &family->versions[named];
        return TD_VERSION_FOUND;
    }
    if (text.len <= TD_VERSION_DIGITS && td_number_read(text, UINT64_MAX, &wanted.number)) {
        size_t at = lower_bound(family, &wanted);
        const struct td_version *first = at < family->count ? &family->versions[at] : NULL;
        if (first != NULL && first->number == wanted.number) {
            *out = first;
            bool is_alone = at + 1 == family->count || first[1].number != wanted.number;
            return is_alone ? TD_VERSION_FOUND : TD_VERSION_AMBIGUOUS;
        }
    }
    if (td_text_equals(text, TD_VERSION_LATEST))
        *out = family->latest;
    return *out != NULL ? TD_VERSION_FOUND : TD_VERSION_UNKNOWN;
}

size_t td_family_after(const struct td_snapshot *snapshot, const struct td_family *family, struct td_text name)
{
    size_t named = find_alias(family, name);
    if (named < family->count && td_text_equals(name, family->versions[named].name))
        return named + 1;
    struct place wanted = {.name = name};
    wanted.has_number = td_version_name_parse(name, td_families_of(snapshot)->prefixes, &wanted.number);
    return lower_bound(family, &wanted);
}
