/* Plan: the commits of the walk, sorted by path, have runs of the sorted files and folders. A unit's files are joined
 * with the entries of the same commit in the snapshot before, in one pass over both. judge() compares them: an
 * unchanged unit costs nothing more. Else every file and folder must have settled.
 *
 * What is hard: (1) a list of names has no end mark. The mtime of a folder shows when a name was last added, and a
 * folder that was renamed into place is complete. The clients of the Hub add one link after the other, each when its
 * blob is complete; between two links a download is running, see is_downloading(). (2) The folders of one commit are
 * listed one after the other, so one that was listed first may have changed before the last one was; all are looked at
 * again before a new state is shown. (3) A commit has one path as main and another beside main, so its earlier state is
 * found by the commit, not by the path. */
#include "catalog/scan/cache_unit.h"

#include "catalog/model/file_kind.h"
#include "catalog/model/hub_cache.h"
#include "catalog/names/repo.h"
#include "parser/format/names.h"
#include "storage/file_system.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A commit that was not shown before is held until no download into its cache has been written to for so long. A
 * client that was killed leaves its download behind. */
static const int64_t download_ns = INT64_C(60000000000);
/* In a folder whose changes are all reported, and as files there settle by themselves, names settle in less time than
 * files may be given. */
static const uint64_t names_settle_ns = UINT64_C(2000000000);

/* ---- sorted lists of paths ------------------------------------------------------------------------------ */

/* Orders the paths of commits as if each ended in '/', as the paths of their files are ordered. */
static int path_compare(const char *x, const char *y)
{
    while (*x == *y && *x != '\0') {
        x++;
        y++;
    }
    int a = *x == '\0' ? '/' : (unsigned char)*x;
    int b = *y == '\0' ? '/' : (unsigned char)*y;
    return a != b ? a - b : (*x != '\0') - (*y != '\0');
}

static int unit_compare(const void *a, const void *b)
{
    return path_compare(((const struct td_unit *)a)->folder->path, ((const struct td_unit *)b)->folder->path);
}

static struct td_text found_path(const void *items, size_t i)
{
    return td_text_of(((const struct td_found *)items)[i].path);
}

static struct td_text found_folder_path(const void *items, size_t i)
{
    return td_text_of(((const struct td_found_folder *)items)[i].path);
}

/* Sets the run of the paths below a directory, in a list that is in byte order. */
static void find_below(const struct td_names *paths, const char *directory, size_t *first, size_t *count)
{
    char text[PATH_MAX + 1];
    size_t len = strnlen(directory, PATH_MAX);
    memcpy(text, directory, len);
    text[len] = '/';
    *first = td_names_search(paths, td_text_n(text, len + 1), NULL);
    text[len]++;
    *count = td_names_search(paths, td_text_n(text, len + 1), NULL) - *first;
}

static struct td_text cache_path(const void *items, size_t i)
{
    return td_text_of(((const struct td_cache_folder *)items)[i].path);
}

static struct td_text unit_path(const void *items, size_t i)
{
    return td_text_of(((const struct td_unit *)items)[i].folder->path);
}

/* Returns whether the path, with a '/' at its end, comes before a text of `len` bytes with `border` after it. */
static bool comes_before(struct td_text path, const char *text, size_t len, char border)
{
    for (size_t i = 0; i <= len; i++) {
        int a = i < path.len ? (unsigned char)path.p[i] : i == path.len ? '/' : -1;
        int b = (unsigned char)(i < len ? text[i] : border);
        if (a != b)
            return a < b;
    }
    return false;
}

/* Returns the place of the first commit that does not come before the path with `border` after it, in a list in the
 * order of path_compare. Such a list is not in byte order: "o/n-x" comes before "o/n". */
static size_t find_border(const struct td_names *commits, const char *path, char border)
{
    size_t len = strlen(path);
    size_t low = 0;
    size_t high = commits->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (comes_before(commits->get(commits->context, mid), path, len, border))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns the place of a commit's path in such a list, or SIZE_MAX. */
static size_t find_commit(const struct td_names *commits, const char *path)
{
    size_t at = find_border(commits, path, '/');
    return at < commits->count && td_text_equals(commits->get(commits->context, at), path) ? at : SIZE_MAX;
}

/* Writes the path that a commit has beside the main one, folder@commit. Returns false when it is too long. */
static bool write_other_path(const char *folder, const char *commit, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s@%s", folder, commit) < PATH_MAX;
}

/* ---- the snapshot before -------------------------------------------------------------------------------- */

/* Returns what the snapshot before showed at this path. */
static struct td_unit_state state_at(const struct td_units *units, const char *path)
{
    struct td_unit_state state = {.folder = NULL};
    if (units->previous == NULL)
        return state;
    const struct td_repos *repos = td_repos_of(units->previous);
    const struct td_names paths = {.context = repos->caches, .count = repos->cache_count, .get = cache_path};
    size_t at = find_commit(&paths, path);
    if (at == SIZE_MAX)
        return state;
    state.folder = &repos->caches[at];
    td_snapshot_entries_below(units->previous, td_text_of(path), &state.first, &state.count);
    return state;
}

/* Returns what the snapshot before showed of the commit, as the main one of its cache or beside it. */
static struct td_unit_state state_of(const struct td_units *units, const struct td_cache_folder *folder)
{
    char path[PATH_MAX];
    struct td_unit_state state = state_at(units, folder->folder);
    if (state.folder != NULL && strcmp(state.folder->commit, folder->commit) == 0)
        return state;
    return write_other_path(folder->folder, folder->commit, path) ? state_at(units, path)
                                                                  : (struct td_unit_state){.folder = NULL};
}

bool td_units_know(const struct td_snapshot *previous, const struct td_cache_folder *folder)
{
    const struct td_units units = {.previous = previous};
    const struct td_unit_state state = state_of(&units, folder);
    if (state.folder == NULL || folder->seen.inode == 0 || !td_file_id_equal(&state.folder->seen, &folder->seen))
        return false;
    for (size_t i = 0; i < previous->problems.count; i++)
        if (td_text_begins(td_text_of(previous->problems.items[i].path), td_text_of(state.folder->path)))
            return false;
    return td_snapshot_has_all_problems(previous);
}

/* Finds the entry of each file of the unit in the commit's earlier state. Both lists are sorted by the path below the
 * commit. */
static void join_before(struct td_units *units, const struct td_unit *unit)
{
    const struct td_unit_state *before = &unit->before;
    size_t prefix_len = strlen(unit->folder->path) + 1;
    size_t before_prefix_len = before->folder == NULL ? 0 : strlen(before->folder->path) + 1;
    size_t at = before->first;
    for (size_t i = unit->first; i < unit->first + unit->count; i++) {
        const char *path = units->walk->found[i].path + prefix_len;
        int order = -1;
        while (at < before->first + before->count &&
               (order = strcmp(units->previous->entries[at].path + before_prefix_len, path)) < 0)
            at++;
        if (at < before->first + before->count && order == 0)
            units->before[i] = &units->previous->entries[at++];
    }
}

/* ---- what has settled ----------------------------------------------------------------------------------- */

/* Returns what the scan before knew of something that had not settled, also if its commit had its other path then. */
static const struct td_unsettled *find_unsettled(const struct td_units *units, const struct td_unit *unit,
                                                 const char *path)
{
    char other[PATH_MAX];
    const struct td_unsettled_list *list = units->settling->before;
    const struct td_unsettled *before = list->count == 0 ? NULL : td_unsettled_find(list, path);
    if (before != NULL || list->count == 0)
        return before;
    const struct td_cache_folder *folder = unit->folder;
    const char *rest = path + strlen(folder->path);
    int len = folder->is_other_revision ? snprintf(other, sizeof other, "%s%s", folder->folder, rest)
                                        : snprintf(other, sizeof other, "%s@%s%s", folder->path, folder->commit, rest);
    return len < (int)sizeof other ? td_unsettled_find(list, other) : NULL;
}

struct td_young td_units_young(const struct td_units *units, const struct td_unit *unit, size_t i)
{
    const struct td_found *found = &units->walk->found[i];
    struct td_young young = td_settling_file(units->settling, found, units->before[i]);
    if (young.before == NULL)
        young.before = find_unsettled(units, unit, found->path);
    if (found->error != NULL) {
        /* the times are those of the link, which do not change when the file behind it is removed */
        young.must_be_seen = units->before[i] != NULL;
        young.is_file = false;
        young.has_arrived = false;
        young.shown = NULL;
    }
    if (unit->is_published)
        young.settle_ns = 0;
    return young;
}

bool td_units_is_finished(const struct td_units *units, size_t i)
{
    return units->finished[i];
}

bool td_units_file_is_settled(struct td_units *units, const struct td_unit *unit, size_t i, struct td_seen *seen)
{
    const struct td_found *found = &units->walk->found[i];
    if (td_walk_passes_over(units->walk, i) || units->finished[i] ||
        (found->error == NULL && td_settling_is_same_file(units->before[i], found)))
        return true;
    const struct td_young young = td_units_young(units, unit, i);
    if (td_settling_is_settled(units->settling, &young, seen))
        return true;
    units->finished[i] = found->error == NULL && td_settling_is_finished(units->settling, &young, seen);
    return units->finished[i];
}

/* The search for a download that is running. */
struct download {
    const struct td_settling *settling;
    struct td_seen *seen;
    bool is_running;
};

/* Returns false when the download is running. A scan that was requested knows better than by the time: no process may
 * have the file open any more. */
static bool look_at_download(void *context, const char *physical, const struct td_file_id *id)
{
    struct download *download = context;
    const struct td_settling *settling = download->settling;
    int64_t age_ns;
    uint64_t wait_ns;
    if (__builtin_sub_overflow(settling->wall_now_ns, id->mtime_ns, &age_ns) || age_ns <= -download_ns ||
        age_ns >= download_ns)
        return true; /* also with a time far in the future, which would never come to pass */
    if (settling->publish_complete &&
        td_file_at_rest(settling->root, physical, id, settling->lease_signal, &wait_ns) == TD_REST_YES)
        return true;
    uint64_t left_ns = (uint64_t)download_ns - (age_ns > 0 ? (uint64_t)age_ns : 0);
    download->is_running = true;
    download->seen->due_ns = settling->now_ns + left_ns;
    download->seen->is_pending = false;
    return false;
}

/* Returns whether a client of the Hub downloads a blob into the cache of the unit, whose own folder is at
 * `physical`. */
static bool is_downloading(const struct td_units *units, const char *physical, struct td_seen *seen)
{
    static const char between[] = "/snapshots/";
    char cache[PATH_MAX];
    struct download download = {.settling = units->settling, .seen = seen};
    size_t name_len = strlen(td_base_name(physical));
    size_t len = strlen(physical);
    if (len < name_len + sizeof between - 1 || len >= sizeof cache)
        return false;
    len -= name_len + sizeof between - 1;
    memcpy(cache, physical, len);
    cache[len] = '\0';
    (void)td_hub_cache_downloads(units->settling->root, cache, look_at_download, &download);
    return download.is_running;
}

bool td_units_folder_is_settled(const struct td_units *units, const struct td_unit *unit, size_t i,
                                struct td_seen *seen)
{
    const struct td_settling *settling = units->settling;
    const struct td_found_folder *folder = &units->walk->folders[i];
    uint64_t settle_ns = unit->is_published ? 0 : settling->settle_ns;
    const struct td_young young = {.physical = folder->physical,
                                   .id = folder->id,
                                   .has_arrived = folder->has_arrived,
                                   .before = find_unsettled(units, unit, folder->path),
                                   .settle_ns =
                                       folder->is_watched && settle_ns > names_settle_ns ? names_settle_ns : settle_ns};
    struct stat st;
    if (!td_settling_is_settled(settling, &young, seen))
        return false;
    struct td_file_id now = {0};
    if (td_root_stat(settling->root, folder->physical, &st, NULL))
        now = td_file_id_of(&st);
    if (!td_file_id_equal(&now, &folder->id)) {
        seen->due_ns = settling->now_ns + young.settle_ns;
        return false;
    }
    bool is_new = unit->before.folder == NULL && i == unit->folder_first;
    return !is_new || settle_ns == 0 || !is_downloading(units, folder->physical, seen);
}

/* Returns whether the unit on disk differs from the commit's earlier state. */
static bool is_changed(const struct td_units *units, const struct td_unit *unit)
{
    size_t same_count = 0;
    for (size_t i = unit->first; i < unit->first + unit->count; i++) {
        const struct td_found *found = &units->walk->found[i];
        if (found->error == NULL && td_settling_is_same_file(units->before[i], found))
            same_count++;
        else if (units->before[i] != NULL || (found->error == NULL && !td_walk_passes_over(units->walk, i)))
            return true;
    }
    return unit->before.folder == NULL || same_count != unit->before.count;
}

/* Returns whether the unit has changed, and something of it has not settled. */
static bool judge(struct td_units *units, const struct td_unit *unit)
{
    struct td_seen seen;
    if (!is_changed(units, unit))
        return false;
    for (size_t i = unit->first; i < unit->first + unit->count; i++)
        if (!td_units_file_is_settled(units, unit, i, &seen))
            return true;
    for (size_t i = unit->folder_first; i < unit->folder_first + unit->folder_count; i++)
        if (!td_units_folder_is_settled(units, unit, i, &seen))
            return true;
    return false;
}

/* ---- units ---------------------------------------------------------------------------------------------- */

/* Hides the other commits of a cache whose main one is held: the one that is kept as the main one, or all of them. */
static void hide_others(struct td_units *units, const struct td_unit *main)
{
    const char *folder = main->folder->folder;
    const struct td_names paths = {.context = units->items, .count = units->count, .get = unit_path};
    size_t end = find_border(&paths, folder, '@' + 1);
    for (size_t i = find_border(&paths, folder, '@'); i < end; i++) {
        struct td_unit *unit = &units->items[i];
        if (unit->folder->is_other_revision && strcmp(unit->folder->folder, folder) == 0)
            unit->is_hidden = main->kept.folder == NULL || strcmp(unit->folder->commit, main->kept.folder->commit) == 0;
    }
}

void td_units_hold(struct td_units *units, struct td_unit *unit)
{
    unit->is_held = true;
    unit->kept = unit->before;
    if (unit->folder->is_other_revision)
        return;
    if (unit->kept.folder == NULL)
        unit->kept = state_at(units, unit->folder->path);
    hide_others(units, unit);
}

/* Returns whether this program has published the commit, so that it need not settle. */
static bool is_published(const struct td_settling *settling, const struct td_cache_folder *folder)
{
    size_t low = 0;
    size_t high = settling->published_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(settling->published[mid].commit, folder->commit) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < settling->published_count && strcmp(settling->published[low].commit, folder->commit) == 0; low++)
        if (strcmp(settling->published[low].folder, folder->folder) == 0)
            return true;
    return false;
}

/* Sets the units' runs and earlier states. */
static void fill_units(struct td_units *units)
{
    const struct td_walk *walk = units->walk;
    const struct td_names files = {.context = walk->found, .count = walk->count, .get = found_path};
    const struct td_names folders = {.context = walk->folders, .count = walk->folder_count, .get = found_folder_path};
    for (size_t i = 0; i < units->count; i++)
        units->items[i].folder = &walk->caches[i];
    if (units->count > 0)
        qsort(units->items, units->count, sizeof *units->items, unit_compare);
    for (size_t i = 0; i < units->count; i++) {
        struct td_unit *unit = &units->items[i];
        find_below(&files, unit->folder->path, &unit->first, &unit->count);
        find_below(&folders, unit->folder->path, &unit->folder_first, &unit->folder_count);
        unit->is_published = is_published(units->settling, unit->folder);
        unit->before = state_of(units, unit->folder);
        join_before(units, unit);
    }
}

bool td_units_create(struct td_units *units, const struct td_settling *settling, const struct td_walk *walk,
                     const struct td_snapshot *previous, struct td_error *err)
{
    *units = (struct td_units){.items = calloc(walk->cache_count + 1, sizeof *units->items),
                               .count = walk->cache_count,
                               .before = calloc(walk->count + 1, sizeof *units->before),
                               .finished = calloc(walk->count + 1, sizeof *units->finished),
                               .settling = settling,
                               .walk = walk,
                               .previous = previous,
                               .err = err};
    if (units->items == NULL || units->before == NULL || units->finished == NULL) {
        td_units_fini(units);
        return td_error_no_memory(err);
    }
    fill_units(units);
    for (size_t i = 0; i < units->count; i++)
        if (units->items[i].folder->is_known || judge(units, &units->items[i]))
            td_units_hold(units, &units->items[i]);
    return true;
}

const struct td_unit *td_units_of_file(const struct td_units *units, size_t i)
{
    size_t low = 0;
    size_t high = units->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (units->items[mid].first + units->items[mid].count <= i)
            low = mid + 1;
        else
            high = mid;
    }
    return low < units->count && units->items[low].first <= i ? &units->items[low] : NULL;
}

/* Returns the place of the unit of a commit, or SIZE_MAX. `folder` is the path of the cache's main commit. */
static size_t find_unit(const struct td_units *units, const char *folder, const char *commit)
{
    char path[PATH_MAX];
    const struct td_names paths = {.context = units->items, .count = units->count, .get = unit_path};
    size_t at = find_commit(&paths, folder);
    if (at != SIZE_MAX && strcmp(units->items[at].folder->commit, commit) == 0)
        return at;
    return write_other_path(folder, commit, path) ? find_commit(&paths, path) : SIZE_MAX;
}

const struct td_unit *td_units_of_kept(const struct td_units *units, const struct td_unit *unit)
{
    size_t at = find_unit(units, unit->folder->folder, unit->kept.folder->commit);
    return at == SIZE_MAX ? NULL : &units->items[at];
}

/* ---- the commits that are shown ------------------------------------------------------------------------- */

/* The list that td_units_list makes. */
struct list {
    const struct td_units *units;
    struct td_arena *arena;
    struct td_cache_folder *items;
    size_t count;
};

/* Returns whether the list has the commit, which `main` is the main one of or which is beside it. */
static bool is_listed(const struct list *list, const struct td_cache_folder *main, const char *commit)
{
    char path[PATH_MAX];
    const struct td_names paths = {.context = list->items, .count = list->count, .get = cache_path};
    return strcmp(main->commit, commit) == 0 ||
           (write_other_path(main->path, commit, path) && find_commit(&paths, path) != SIZE_MAX);
}

/* Returns the commit that the ref named in the snapshot before, or NULL. */
static const char *former_commit(const struct td_unit_state *former, const char *name)
{
    for (size_t i = 0; former->folder != NULL && i < former->folder->ref_count; i++)
        if (strcmp(former->folder->refs[i].name, name) == 0)
            return former->folder->refs[i].commit;
    return NULL;
}

/* Gives a cache's main commit the refs that name commits of the list, or commits that are not here at all. */
static bool set_refs(const struct list *list, struct td_cache_folder *main)
{
    const struct td_repo_ref *refs = main->refs;
    struct td_repo_ref *shown = td_arena_array(list->arena, main->ref_count + 1, sizeof *shown);
    const struct td_unit_state former = state_at(list->units, main->path);
    size_t count = 0;
    if (shown == NULL)
        return td_error_no_memory(list->units->err);
    for (size_t i = 0; i < main->ref_count; i++) {
        const char *commit = refs[i].commit;
        if (!is_listed(list, main, commit) && find_unit(list->units, main->path, commit) != SIZE_MAX) {
            commit = former_commit(&former, refs[i].name);
            if (commit == NULL || !is_listed(list, main, commit))
                continue;
            commit = td_arena_strndup(list->arena, td_text_of(commit));
            if (commit == NULL)
                return td_error_no_memory(list->units->err);
        }
        shown[count++] = (struct td_repo_ref){.name = refs[i].name, .commit = commit};
    }
    main->refs = shown;
    main->ref_count = count;
    return true;
}

/* Returns whether the walk found something in the unit that cannot be served. */
static bool has_errors(const struct td_units *units, const struct td_unit *unit)
{
    for (size_t i = unit->first; i < unit->first + unit->count; i++)
        if (units->walk->found[i].error != NULL)
            return true;
    return false;
}

bool td_units_list(const struct td_units *units, struct td_arena *arena, struct td_cache_folder **out, size_t *count)
{
    struct list list = {.units = units, .arena = arena};
    list.items = td_arena_array(arena, units->count + 1, sizeof *list.items);
    if (list.items == NULL)
        return td_error_no_memory(units->err);
    for (size_t i = 0; i < units->count; i++) {
        const struct td_unit *unit = &units->items[i];
        if (unit->is_hidden || (unit->is_held && unit->kept.folder == NULL))
            continue;
        struct td_cache_folder *folder = &list.items[list.count++];
        *folder = *unit->folder;
        if (unit->is_held)
            folder->commit = td_arena_strndup(arena, td_text_of(unit->kept.folder->commit));
        if (!unit->folder->is_known && (unit->is_held || has_errors(units, unit)))
            folder->seen = (struct td_file_id){0};
        if (folder->commit == NULL)
            return td_error_no_memory(units->err);
    }
    for (size_t i = 0; i < list.count; i++)
        if (list.items[i].ref_count > 0 && !set_refs(&list, &list.items[i]))
            return false;
    *out = list.items;
    *count = list.count;
    return true;
}

void td_units_fini(struct td_units *units)
{
    free(units->items);
    free(units->before);
    free(units->finished);
    *units = (struct td_units){.items = NULL};
}
