/* Plan: a list of directories, visited in order; each visit appends the sub-directories. A directory knows its parent,
 * so a symlink loop is a directory that is its own ancestor. A folder models--org--name appends its snapshots instead,
 * under the path org/name (main) or org/name@commit. At the end, files are sorted by path and duplicates are dropped.
 *
 * What is hard: one path must have one meaning. A real directory can have the path that a cache's snapshot would get,
 * and one cache's id can begin with another's; both become problems, and nothing is published twice. Names inside a
 * snapshot are the repository's own, so they are never taken for caches. */
#include "catalog/scan/walk.h"

#include "catalog/model/file_kind.h"
#include "catalog/model/hub_cache.h"
#include "catalog/model/version_name.h"
#include "catalog/scan/seen_blobs.h"
#include "core/array.h"
#include "core/text.h"
#include "core/utf8.h"
#include "parser/format/names.h"
#include "storage/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WALK_MAX_DEPTH = 64 };

/* A directory to visit. Parents stay in the list, so that a directory knows its ancestors. */
struct directory {
    const char *physical, *path, *revision;
    bool other_revision;
    const char *kept_version; /* as in struct td_found, like the next one */
    bool is_of_subfolder;
    size_t parent; /* number in the list; SIZE_MAX for the root */
    unsigned depth;
    struct td_watched watched;
    unsigned commit_depth;       /* 1 for the directory of a cache's commit, 2 below it ...; 0 elsewhere */
    struct td_blobs_place place; /* where its links lead, while it is listed; inode 0: not known */
    struct td_watched blobs;     /* where the links of a cache's snapshot lead; zeros elsewhere */
    int64_t arrived_until_ns;    /* files with a later change time have not arrived with this directory; 0: none has */
};

/* Commits of caches. They are compared by their pointers: each commit of a walk has a string of its own. */
struct commits {
    const char **items; /* owned */
    size_t count, capacity;
};

struct walker {
    struct td_walk *walk;
    const struct td_root *root;
    struct directory *directories;
    size_t directory_count, directory_capacity;
    const struct td_walk_limits *limits;
    struct td_seen_blobs seen;
    bool files_cut, directories_cut;
    struct commits cut; /* those that lack a file or a directory beyond the limits */
    _Atomic uint64_t *files_found;
    struct td_error *err;
};

bool td_walk_ignores(const char *name)
{
    return (name[0] == '.' && td_file_kind_of(name) != TD_FILE_DCP_METADATA) || td_has_extension(name, ".incomplete") ||
           td_has_extension(name, ".tmp");
}

static const char *join_path(struct td_arena *arena, const char *directory, const char *name)
{
    size_t a = strlen(directory);
    size_t b = strlen(name);
    char *joined = td_arena_alloc(arena, a + b + 2);
    if (joined == NULL)
        return NULL;
    memcpy(joined, directory, a);
    if (a > 0)
        joined[a++] = '/';
    memcpy(joined + a, name, b + 1);
    return joined;
}

static bool add_commit(struct commits *commits, const char *commit, struct td_error *err)
{
    if (!TD_ARRAY_GROW(commits->items, commits->count, commits->capacity, err))
        return false;
    commits->items[commits->count++] = commit;
    return true;
}

static int commit_compare(const void *a, const void *b)
{
    const char *one = *(const char *const *)a;
    const char *other = *(const char *const *)b;
    return (uintptr_t)one < (uintptr_t)other ? -1 : one == other ? 0 : 1;
}

/* Sorts the commits, so that has_commit finds them. */
static void sort_commits(struct commits *commits)
{
    if (commits->count > 0)
        qsort(commits->items, commits->count, sizeof *commits->items, commit_compare);
}

static bool has_commit(const struct commits *commits, const char *commit)
{
    return commits->count > 0 &&
           bsearch(&commit, commits->items, commits->count, sizeof *commits->items, commit_compare) != NULL;
}

/* Notes that something beyond the limits was left out of a commit. NULL: it is in no commit. */
static bool note_cut(struct walker *w, const char *commit)
{
    bool is_noted = commit == NULL || (w->cut.count > 0 && w->cut.items[w->cut.count - 1] == commit);
    return is_noted || add_commit(&w->cut, commit, w->err);
}

/* Adds an item. id: of a regular file; of the item itself with an error. until_ns: a change time up to which a file has
 * arrived. */
static bool add_found(struct walker *w, const struct directory *directory, const char *name,
                      const struct td_file_id *id, int64_t until_ns, const char *error)
{
    struct td_walk *walk = w->walk;
    if (walk->count >= w->limits->max_files) {
        w->files_cut = true;
        return note_cut(w, directory->revision);
    }
    if (!TD_ARRAY_GROW(walk->found, walk->count, walk->capacity, w->err))
        return false;
    struct td_found *item = &walk->found[walk->count];
    memset(item, 0, sizeof *item);
    item->path = join_path(walk->names, directory->path, name);
    item->physical = join_path(&walk->scratch, directory->physical, name);
    item->revision = directory->revision;
    item->other_revision = directory->other_revision;
    item->kept_version = directory->kept_version;
    item->is_of_subfolder = directory->is_of_subfolder;
    item->id = *id;
    item->has_arrived = until_ns != 0 && id->ctime_ns <= until_ns;
    if (error != NULL)
        item->error = td_arena_strndup(walk->names, td_text_of(error));
    if (item->path == NULL || item->physical == NULL || (error != NULL && item->error == NULL))
        return td_error_no_memory(w->err);
    walk->count++;
    atomic_fetch_add(w->files_found, 1);
    return true;
}

/* Adds a directory of a commit whose items were listed. `fd` is open on it. */
static bool add_folder(struct walker *w, const struct directory *directory, int fd)
{
    struct td_walk *walk = w->walk;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return td_error_sys(w->err, TD_IO, errno, "cannot stat \"%s\"", directory->path);
    if (!TD_ARRAY_GROW(walk->folders, walk->folder_count, walk->folder_capacity, w->err))
        return false;
    struct td_found_folder *folder = &walk->folders[walk->folder_count];
    *folder = (struct td_found_folder){.path = join_path(&walk->scratch, directory->path, ""),
                                       .physical = directory->physical,
                                       .revision = directory->revision,
                                       .id = td_file_id_of(&st),
                                       .is_watched = directory->watched.is_known && td_sees_every_writer(fd)};
    folder->has_arrived = directory->arrived_until_ns != 0 && folder->id.ctime_ns <= directory->arrived_until_ns;
    walk->folder_count++;
    return folder->path != NULL || td_error_no_memory(w->err);
}

/* Appends a directory. physical and path must live in the walk's arenas. */
static bool push_directory(struct walker *w, const char *physical, const char *path, const char *revision,
                           size_t parent)
{
    if (physical == NULL || path == NULL)
        return td_error_no_memory(w->err);
    if (w->directory_count >= w->limits->max_directories) {
        w->directories_cut = true;
        return note_cut(w, revision);
    }
    if (!TD_ARRAY_GROW(w->directories, w->directory_count, w->directory_capacity, w->err))
        return false;
    unsigned depth = parent == SIZE_MAX ? 0 : w->directories[parent].depth + 1;
    if (depth > WALK_MAX_DEPTH) {
        td_problems_add(w->walk->problems, w->walk->names, path, "nested deeper than 64 directories, not looked into");
        return true;
    }
    w->directories[w->directory_count++] =
        (struct directory){.physical = physical, .path = path, .revision = revision, .parent = parent, .depth = depth};
    return true;
}

/* A cache folder whose snapshots are being appended. */
struct cache {
    struct walker *walker;
    size_t parent;        /* the directory that holds the folder */
    const char *physical; /* physical path of the folder */
    const char *id, *path;
    const char *commit;          /* the chosen commit */
    struct td_watched snapshots; /* its directory of snapshots; zeros: unknown */
    struct td_watched blobs;     /* its directory of blobs; zeros: unknown */
    int64_t arrived_until_ns;    /* as in struct directory */
    struct td_repo_ref *refs;    /* in the walk's names */
    size_t ref_count, ref_capacity;
};

static bool add_cache(struct walker *w, const struct td_cache_folder *folder)
{
    struct td_walk *walk = w->walk;
    if (!TD_ARRAY_GROW(walk->caches, walk->cache_count, walk->cache_capacity, w->err))
        return false;
    walk->caches[walk->cache_count++] = *folder;
    return true;
}

/* Returns whether a directory has the path that a cache's snapshot would get, and adds a problem then. */
static bool is_taken(const struct cache *cache, const char *commit, const char *path)
{
    struct walker *w = cache->walker;
    struct stat st;
    if (!td_root_stat(w->root, path, &st, NULL))
        return false;
    char why[PATH_MAX + 128];
    (void)snprintf(why, sizeof why,
                   "the snapshot \"%s/snapshots/%s\" of a Hugging Face cache is not published: this directory has its "
                   "id; remove or rename one of the two",
                   cache->physical, commit);
    td_problems_add(w->walk->problems, w->walk->names, path, why);
    return true;
}

/* Returns the change time up to which the files of a snapshot have arrived: with the whole cache folder, or with the
 * snapshot's directory at `physical`. */
static int64_t snapshot_until_ns(const struct cache *cache, const char *commit, const char *physical)
{
    const struct walker *w = cache->walker;
    struct stat st;
    int64_t until_ns = 0;
    if (cache->snapshots.inode == 0 || !td_root_stat(w->root, physical, &st, NULL) || !S_ISDIR(st.st_mode) ||
        !td_tree_watch_arrived(w->limits->watch, &cache->snapshots, -1, commit, &st, &until_ns))
        until_ns = 0;
    return until_ns > cache->arrived_until_ns ? until_ns : cache->arrived_until_ns;
}

/* Sets folder->seen. Returns whether the commit, at `physical`, need not be walked. Only a cache that this program
 * publishes to has notes on its commits. */
static bool is_known(const struct cache *cache, const char *physical, struct td_cache_folder *folder)
{
    const struct walker *w = cache->walker;
    struct stat st;
    char note[PATH_MAX];
    if (!td_root_stat(w->root, physical, &st, NULL) || !S_ISDIR(st.st_mode))
        return false;
    folder->seen = td_file_id_of(&st);
    return w->limits->is_known != NULL &&
           snprintf(note, sizeof note, "%s/commits/%s", cache->physical, folder->commit) < (int)sizeof note &&
           td_root_stat(w->root, note, &st, NULL) && S_ISREG(st.st_mode) &&
           w->limits->is_known(w->limits->known_context, folder);
}

/* Appends one snapshot: the chosen one under org/name, another under org/name@commit. */
static bool push_revision(void *context, const char *commit)
{
    struct cache *cache = context;
    struct walker *w = cache->walker;
    struct td_walk *walk = w->walk;
    struct td_cache_folder folder = {
        .path = cache->path, .folder = cache->path, .id = cache->id, .commit = cache->commit};
    char at[PATH_MAX];
    folder.is_other_revision = strcmp(commit, cache->commit) != 0;
    if (folder.is_other_revision) {
        if (!td_utf8_valid(commit, strlen(commit)) ||
            snprintf(at, sizeof at, "%s@%s", cache->path, commit) >= (int)sizeof at || is_taken(cache, commit, at))
            return true;
        folder.path = td_arena_strndup(walk->names, td_text_of(at));
        folder.commit = folder.path == NULL ? NULL : folder.path + strlen(cache->path) + 1;
    } else {
        folder.refs = cache->refs;
        folder.ref_count = cache->ref_count;
    }
    if (snprintf(at, sizeof at, "%s/snapshots/%s", cache->physical, commit) >= (int)sizeof at)
        return true;
    if (folder.path == NULL)
        return td_error_no_memory(w->err);
    folder.is_known = is_known(cache, at, &folder);
    if (folder.is_known) {
        walk->has_known = true;
        return add_cache(w, &folder);
    }
    size_t before = w->directory_count;
    if (!push_directory(w, td_arena_strndup(&walk->scratch, td_text_of(at)), folder.path, folder.commit,
                        cache->parent) ||
        !add_cache(w, &folder))
        return false;
    if (w->directory_count > before) {
        w->directories[before].other_revision = folder.is_other_revision;
        w->directories[before].blobs = cache->blobs;
        w->directories[before].commit_depth = 1;
        w->directories[before].arrived_until_ns = snapshot_until_ns(cache, commit, at);
    }
    return true;
}

/* Appends a snapshot that is not the chosen one, which was appended before, symlink or not. */
static bool push_other_revision(void *context, const char *commit)
{
    const struct cache *cache = context;
    return strcmp(commit, cache->commit) == 0 || push_revision(context, commit);
}

static bool add_ref(void *context, const char *name, const char *commit)
{
    struct cache *cache = context;
    struct td_arena *names = cache->walker->walk->names;
    struct td_repo_ref ref = {.name = td_arena_strndup(names, td_text_of(name)),
                              .commit = td_arena_strndup(names, td_text_of(commit))};
    struct td_repo_ref *refs = td_arena_grow(names, cache->refs, cache->ref_count, &cache->ref_capacity, sizeof *refs);
    if (ref.name == NULL || ref.commit == NULL || refs == NULL)
        return td_error_no_memory(cache->walker->err);
    cache->refs = refs;
    if (td_utf8_valid(name, strlen(name)) && td_utf8_valid(commit, strlen(commit)))
        refs[cache->ref_count++] = ref;
    return true;
}

static int compare_refs(const void *a, const void *b)
{
    return strcmp(((const struct td_repo_ref *)a)->name, ((const struct td_repo_ref *)b)->name);
}

static bool push_snapshots(struct cache *cache)
{
    struct walker *w = cache->walker;
    if (!w->limits->all_revisions)
        return push_revision(cache, cache->commit);
    bool ok = td_hub_cache_refs(w->root, cache->physical, add_ref, cache);
    if (cache->ref_count > 0)
        qsort(cache->refs, cache->ref_count, sizeof *cache->refs, compare_refs);
    return ok && push_revision(cache, cache->commit) &&
           td_hub_cache_commits(w->root, cache->physical, push_other_revision, cache);
}

/* Adds a directory to the watch that is not listed, but decides what is published. Sets *out, or leaves it alone when
 * the directory does not exist. */
static void watch_only(const struct walker *w, const char *physical, const struct td_watched *parent,
                       struct td_watched *out)
{
    struct td_error ignored = TD_ERROR_INIT;
    struct stat st;
    int fd;
    if (!td_root_open_directory(w->root, physical, &fd, &ignored))
        return;
    if (fstat(fd, &st) == 0)
        td_tree_watch_visit(w->limits->watch, physical, fd, &st, parent, out);
    (void)close(fd);
}

/* Adds a cache folder's own directories to the watch, before they are read. Returns false without memory. */
static bool watch_cache(const struct walker *w, struct cache *cache)
{
    static const char *const below[] = {"refs", "snapshots", "blobs"};
    struct td_watched folder = {0};
    struct td_watched refs = {0};
    if (w->limits->watch == NULL)
        return true;
    watch_only(w, cache->physical, &w->directories[cache->parent].watched, &folder);
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        const char *physical = join_path(&w->walk->scratch, cache->physical, below[i]);
        struct td_watched *const out[] = {&refs, &cache->snapshots, &cache->blobs};
        if (physical == NULL)
            return td_error_no_memory(w->err);
        watch_only(w, physical, &folder, out[i]);
    }
    return true;
}

/* Appends the snapshots of models--org--name or datasets--org--name under org/name or datasets/org/name. */
static bool push_hub_cache(struct walker *w, size_t parent, const char *physical, const char *id, int64_t until_ns)
{
    struct td_walk *walk = w->walk;
    char commit[NAME_MAX + 1];
    struct stat st;
    struct cache cache = {.walker = w,
                          .parent = parent,
                          .physical = physical,
                          .arrived_until_ns = until_ns,
                          .id = td_arena_strndup(walk->names, td_text_of(id)),
                          .path = join_path(walk->names, w->directories[parent].path, id)};
    if (cache.path == NULL || cache.id == NULL || physical == NULL)
        return td_error_no_memory(w->err);
    if (td_root_stat(w->root, cache.path, &st, NULL)) {
        char why[PATH_MAX + 128];
        (void)snprintf(why, sizeof why,
                       "this entry of a Hugging Face cache is not published: the directory \"%s\" has its id; remove "
                       "or rename one of the two",
                       cache.path);
        td_problems_add(walk->problems, walk->names, physical, why);
        return true;
    }
    if (!watch_cache(w, &cache))
        return false;
    if (!td_hub_cache_commit(w->root, physical, commit, sizeof commit))
        return true; /* nothing downloaded yet */
    cache.commit = td_arena_strndup(walk->names, td_text_of(commit));
    return cache.commit == NULL ? td_error_no_memory(w->err) : push_snapshots(&cache);
}

/* Sets the version that a directory keeps, by its name or because the directory above it keeps one. */
static void set_kept_version(const struct walker *w, const struct directory *parent, struct directory *directory)
{
    struct td_text name;
    struct td_text version;
    bool can_keep = w->limits->keeps_versions && parent->depth < 2 && parent->revision == NULL;
    directory->kept_version = parent->kept_version;
    directory->is_of_subfolder = parent->is_of_subfolder;
    if (parent->kept_version == NULL && can_keep &&
        td_version_split_folder(td_text_of(td_base_name(directory->path)), &name, &version,
                                &directory->is_of_subfolder))
        directory->kept_version = version.p;
}

/* until_ns: as struct directory has it. */
static bool visit_directory(struct walker *w, size_t parent, const char *name, int64_t until_ns)
{
    struct td_walk *walk = w->walk;
    char id[NAME_MAX + 1];
    const char *physical = join_path(&walk->scratch, w->directories[parent].physical, name);
    /* in a snapshot such a name has no meaning: the repository's author chose it */
    if (w->directories[parent].revision == NULL && td_hub_cache_id(name, id, sizeof id))
        return push_hub_cache(w, parent, physical, id, until_ns);
    size_t at = w->directory_count;
    if (!push_directory(w, physical, join_path(walk->names, w->directories[parent].path, name),
                        w->directories[parent].revision, parent))
        return false;
    if (w->directory_count > at) {
        set_kept_version(w, &w->directories[parent], &w->directories[at]);
        w->directories[at].other_revision = w->directories[parent].other_revision;
        w->directories[at].blobs = w->directories[parent].blobs;
        w->directories[at].commit_depth =
            w->directories[parent].commit_depth == 0 ? 0 : w->directories[parent].commit_depth + 1;
        w->directories[at].arrived_until_ns = until_ns;
    }
    return true;
}

/* Returns why a symlink cannot be followed, for the operator. */
static const char *broken_link(const struct td_error *why)
{
    if (why->code == TD_NOT_FOUND)
        return "is a symlink to something that does not exist";
    if (why->sys == ELOOP)
        return "is a symlink that leads in a circle, or through too many others";
    if (why->code == TD_PERMISSION_DENIED && why->sys == 0)
        return "is a symlink that leads outside DIR; if it belongs to a Hugging Face cache, serve the folder that "
               "holds models--org--name";
    return "is a symlink that cannot be followed";
}

/* Returns the change time up to which the file that a snapshot's link leads to has arrived: with the whole cache
 * folder, or among its blobs. Returns 0 elsewhere. blob: its name; NULL: it must be read from the link. */
static int64_t link_until_ns(const struct walker *w, const struct directory *directory, const char *physical,
                             const char *blob, const struct stat *st)
{
    char name[NAME_MAX + 1];
    int64_t until_ns = 0;
    if (directory->blobs.inode == 0)
        return directory->arrived_until_ns;
    if (blob == NULL && td_root_link_name(w->root, physical, name, sizeof name))
        blob = name;
    if (blob == NULL || !td_tree_watch_arrived(w->limits->watch, &directory->blobs, -1, blob, st, &until_ns))
        until_ns = 0;
    return until_ns > directory->arrived_until_ns ? until_ns : directory->arrived_until_ns;
}

/* Visits a symlink as what it leads to, as long as that is inside the root. link_id is that of the link itself. */
static bool visit_link(struct walker *w, size_t parent, const char *name, const struct td_file_id *link_id)
{
    const char *physical = join_path(&w->walk->scratch, w->directories[parent].physical, name);
    struct td_error why = TD_ERROR_INIT;
    struct stat st;
    if (physical == NULL)
        return td_error_no_memory(w->err);
    if (!td_root_stat(w->root, physical, &st, &why))
        return add_found(w, &w->directories[parent], name, link_id, 0, broken_link(&why));
    if (S_ISDIR(st.st_mode))
        return visit_directory(w, parent, name, 0);
    struct td_file_id file_id = td_file_id_of(&st);
    if (S_ISREG(st.st_mode))
        return add_found(w, &w->directories[parent], name, &file_id,
                         link_until_ns(w, &w->directories[parent], physical, NULL, &st), NULL);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the walk's arenas hold every name
    return add_found(w, &w->directories[parent], name, link_id, 0, "is not a regular file");
}

/* Returns the change time up to which the item, or what is in it, has arrived: by itself or with its directory. */
static int64_t item_until_ns(const struct walker *w, const struct directory *directory, int fd, const char *name,
                             const struct stat *st)
{
    int64_t until_ns;
    if (!td_tree_watch_arrived(w->limits->watch, &directory->watched, fd, name, st, &until_ns))
        until_ns = 0;
    return until_ns > directory->arrived_until_ns ? until_ns : directory->arrived_until_ns;
}

/* Visits a link of a commit to a blob that the walk looks at once. Sets *done to false, and does nothing, for any other
 * link. */
static bool visit_blob_link(struct walker *w, size_t parent, int fd, const char *name, bool *done)
{
    const struct directory *directory = &w->directories[parent];
    char blob[TD_BLOB_NAME_BYTES];
    *done = td_blob_link_read(fd, name, directory->commit_depth, blob);
    if (!*done)
        return true;
    const struct stat *seen = td_seen_blobs_find(&w->seen, &directory->place, blob);
    struct stat st;
    if (seen != NULL) {
        st = *seen;
    } else {
        const char *physical = join_path(&w->walk->scratch, directory->physical, name);
        if (physical == NULL)
            return td_error_no_memory(w->err);
        *done = td_root_stat(w->root, physical, &st, NULL) && S_ISREG(st.st_mode);
        if (!*done)
            return true;
        td_seen_blobs_add(&w->seen, &directory->place, blob, &st);
    }
    const struct td_file_id id = td_file_id_of(&st);
    return add_found(w, directory, name, &id, link_until_ns(w, directory, NULL, blob, &st), NULL);
}

/* `type` is that of the directory's entry, which may be DT_UNKNOWN. */
static bool visit_item(struct walker *w, size_t parent, int fd, const char *name, unsigned char type)
{
    struct stat st;
    bool done;
    bool is_of_fsck = parent == 0 && strcmp(name, "lost+found") == 0; /* a file system has it, and only root reads it */
    if (td_walk_ignores(name) || is_of_fsck)
        return true;
    if (!td_utf8_valid(name, strlen(name))) {
        char shown[4 * NAME_MAX + 1];
        td_utf8_escape(td_text_of(name), shown, sizeof shown);
        td_problems_add(w->walk->problems, w->walk->names, shown, "its name is not UTF-8, so it has no URL");
        return true;
    }
    if (type == DT_LNK && w->directories[parent].place.inode != 0) {
        bool ok = visit_blob_link(w, parent, fd, name, &done);
        if (!ok || done)
            return ok;
    }
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return true; /* the item was removed in the meantime */
    struct td_file_id id = td_file_id_of(&st);
    if (S_ISLNK(st.st_mode))
        return visit_link(w, parent, name, &id);
    int64_t until_ns = item_until_ns(w, &w->directories[parent], fd, name, &st);
    if (S_ISDIR(st.st_mode))
        return visit_directory(w, parent, name, until_ns);
    if (S_ISREG(st.st_mode))
        return add_found(w, &w->directories[parent], name, &id, until_ns, NULL);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the walk's arenas hold every name
    return add_found(w, &w->directories[parent], name, &id, 0, "is not a regular file");
}

static bool is_own_ancestor(const struct walker *w, size_t at)
{
    const struct directory *here = &w->directories[at];
    for (size_t up = here->parent; up != SIZE_MAX; up = w->directories[up].parent)
        if (w->directories[up].watched.inode == here->watched.inode &&
            w->directories[up].watched.device == here->watched.device)
            return true;
    return false;
}

static bool cannot_list(const struct walker *w, size_t at)
{
    return td_error_sys(w->err, TD_IO, errno, "cannot list \"%s\"", at == 0 ? w->root->path : w->directories[at].path);
}

/* Visits the items that the directory lists. A listing that fails half-way ends the whole walk: the files that it did
 * not get to would look deleted. */
static bool visit_items(struct walker *w, size_t at, DIR *dir)
{
    for (;;) {
        errno = 0;
        const struct dirent *item = readdir(dir); // NOLINT(concurrency-mt-unsafe): each DIR is used by one thread
        if (item == NULL)
            return errno == 0 || cannot_list(w, at);
        if (!visit_item(w, at, dirfd(dir), item->d_name, item->d_type))
            return false;
    }
}

/* Visits a directory. Returns false only for errors that must end the whole walk. */
static bool visit_all(struct walker *w, size_t at)
{
    int fd;
    struct td_error why = TD_ERROR_INIT;
    struct stat st;
    if (!td_root_open_directory(w->root, w->directories[at].physical, &fd, &why)) {
        if (at == 0)
            return td_error_set(w->err, why.code, "%s", why.message);
        td_error_name_it(&why, w->directories[at].physical);
        td_problems_add(w->walk->problems, w->walk->names, w->directories[at].path, why.message);
        return true;
    }
    DIR *dir = NULL;
    if (fstat(fd, &st) == 0) {
        struct directory *directory = &w->directories[at];
        const struct directory *parent = directory->parent == SIZE_MAX ? NULL : &w->directories[directory->parent];
        td_tree_watch_visit(w->limits->watch, directory->physical, fd, &st, parent == NULL ? NULL : &parent->watched,
                            &directory->watched);
        if (is_own_ancestor(w, at)) {
            (void)close(fd);
            return true; /* a symlink loop ends here */
        }
        directory->place = td_blobs_place_of(fd, directory->commit_depth);
        dir = fdopendir(fd);
    }
    if (dir == NULL) {
        (void)cannot_list(w, at);
        (void)close(fd);
        return false;
    }
    bool ok = visit_items(w, at, dir) &&
              (w->directories[at].revision == NULL || add_folder(w, &w->directories[at], dirfd(dir)));
    (void)closedir(dir);
    return ok;
}

static int found_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_found *)a)->path, ((const struct td_found *)b)->path);
}

static int folder_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_found_folder *)a)->path, ((const struct td_found_folder *)b)->path);
}

/* Keeps the first of several files with one path. Only cache folders can make such paths, never one directory. */
static void drop_duplicates(struct td_walk *walk)
{
    size_t kept = 0;
    for (size_t i = 0; i < walk->count; i++) {
        if (kept > 0 && strcmp(walk->found[kept - 1].path, walk->found[i].path) == 0) {
            td_problems_add(walk->problems, walk->names, walk->found[i].path,
                            "two files have this path; one is published");
            continue;
        }
        walk->found[kept++] = walk->found[i];
    }
    walk->count = kept;
}

static int cache_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_cache_folder *)a)->path, ((const struct td_cache_folder *)b)->path);
}

static struct td_text cache_path(const void *context, size_t i)
{
    const char *path = ((const struct td_cache_folder *)context)[i].path;
    return td_text_of(path);
}

/* Returns whether the cache's path begins with that of another: models--gpt2 and models--gpt2--sub. */
static bool is_in_another(const struct td_walk *walk, const struct td_cache_folder *cache)
{
    struct td_names names = {.count = walk->cache_count, .context = walk->caches, .get = cache_path};
    bool found = false;
    for (size_t len = 1; cache->path[len] != '\0' && !found; len++)
        if (cache->path[len] == '/')
            (void)td_names_search(&names, td_text_n(cache->path, len), &found);
    return found;
}

/* Removes the commits, which are sorted, with their files, folders and caches. */
static void drop_commits(struct td_walk *walk, const struct commits *dropped)
{
    size_t left = 0;
    if (dropped->count == 0)
        return;
    for (size_t i = 0; i < walk->count; i++)
        if (!has_commit(dropped, walk->found[i].revision))
            walk->found[left++] = walk->found[i];
    walk->count = left;
    left = 0;
    for (size_t i = 0; i < walk->folder_count; i++)
        if (!has_commit(dropped, walk->folders[i].revision))
            walk->folders[left++] = walk->folders[i];
    walk->folder_count = left;
    left = 0;
    for (size_t i = 0; i < walk->cache_count; i++)
        if (!has_commit(dropped, walk->caches[i].commit))
            walk->caches[left++] = walk->caches[i];
    walk->cache_count = left;
}

/* Sorts the caches, and removes a cache if its files would be among those of another cache's commit. */
static bool drop_inner_caches(struct td_walk *walk, struct td_error *err)
{
    struct commits dropped = {.count = 0};
    bool ok = true;
    if (walk->cache_count > 0)
        qsort(walk->caches, walk->cache_count, sizeof *walk->caches, cache_compare);
    for (size_t i = 0; ok && i < walk->cache_count; i++) {
        const struct td_cache_folder *cache = &walk->caches[i];
        if (!is_in_another(walk, cache))
            continue;
        td_problems_add(walk->problems, walk->names, cache->path,
                        "not published: the id of another Hugging Face cache entry is the beginning of this one's");
        ok = add_commit(&dropped, cache->commit, err);
    }
    sort_commits(&dropped);
    if (ok)
        drop_commits(walk, &dropped);
    free(dropped.items);
    return ok;
}

/* Removes the commits that were cut, so that each commit is shown whole or not at all; with a main commit also the
 * others of its cache. The caches must be sorted: a main commit stands before the others of its cache. */
static bool drop_cut_commits(struct walker *w)
{
    struct td_walk *walk = w->walk;
    struct commits dropped = {.count = 0};
    const char *main = NULL;
    bool ok = true;
    sort_commits(&w->cut);
    for (size_t i = 0; ok && w->cut.count > 0 && i < walk->cache_count; i++) {
        const struct td_cache_folder *cache = &walk->caches[i];
        bool follows_main = main != NULL && cache->is_other_revision && strcmp(main, cache->folder) == 0;
        if (!follows_main && !has_commit(&w->cut, cache->commit))
            continue;
        if (!cache->is_other_revision) {
            main = cache->folder;
            td_problems_add(walk->problems, walk->names, cache->path,
                            "not published: with all files of this commit there would be too many files or "
                            "directories (--max-files)");
        }
        ok = add_commit(&dropped, cache->commit, w->err);
    }
    sort_commits(&dropped);
    if (ok)
        drop_commits(walk, &dropped);
    free(dropped.items);
    return ok;
}

/* Removes all but the first of several commits with one path, so that no files of two commits are mixed. The files and
 * the caches must be sorted. */
static bool drop_twin_commits(struct td_walk *walk, struct td_error *err)
{
    struct commits dropped = {.count = 0};
    bool ok = true;
    for (size_t i = 1; ok && i < walk->cache_count; i++)
        if (strcmp(walk->caches[i - 1].path, walk->caches[i].path) == 0)
            ok = add_commit(&dropped, walk->caches[i].commit, err);
    sort_commits(&dropped);
    for (size_t i = 0; ok && dropped.count > 0 && i < walk->count; i++)
        if (has_commit(&dropped, walk->found[i].revision))
            td_problems_add(walk->problems, walk->names, walk->found[i].path,
                            "two files have this path, or two Hugging Face caches this id; one is published");
    if (ok)
        drop_commits(walk, &dropped);
    free(dropped.items);
    return ok;
}

static bool push_first(struct walker *w, const struct td_hub_place *place)
{
    struct td_arena *names = w->walk->names;
    if (place == NULL)
        return push_directory(w, "", "", NULL, SIZE_MAX);
    const char *path = td_arena_strndup(names, td_text_of(place->id));
    const char *revision = td_arena_strndup(names, td_text_of(place->commit));
    if (revision == NULL)
        return td_error_no_memory(w->err);
    return push_directory(w, place->below, path, revision, SIZE_MAX);
}

/* Visits the directories of other revisions of caches, or all others. Those of other revisions come last, so that kept
 * commits do not take the places of files that everybody sees. */
static bool visit_directories(struct walker *w, bool of_other_revisions, const _Atomic bool *stop)
{
    for (size_t at = 0; at < w->directory_count; at++) {
        if (w->directories[at].other_revision != of_other_revisions)
            continue;
        if (atomic_load(stop))
            return td_error_set(w->err, TD_UNAVAILABLE, "the scan was stopped");
        if (!visit_all(w, at))
            return false;
    }
    return true;
}

bool td_walk_run(struct td_walk *walk, const struct td_root *root, const struct td_hub_place *place,
                 struct td_arena *names, struct td_problems *problems, const struct td_walk_limits *limits,
                 _Atomic uint64_t *files_found, const _Atomic bool *stop, struct td_error *err)
{
    memset(walk, 0, sizeof *walk);
    td_arena_init(&walk->scratch, 0);
    walk->names = names;
    walk->problems = problems;
    struct walker w = {.walk = walk, .root = root, .limits = limits, .files_found = files_found, .err = err};
    bool ok = push_first(&w, place) && visit_directories(&w, false, stop) && visit_directories(&w, true, stop) &&
              drop_inner_caches(walk, err) && drop_cut_commits(&w);
    free(w.cut.items);
    free(w.directories);
    td_seen_blobs_fini(&w.seen);
    if (!ok)
        return false;
    char message[128];
    if (w.files_cut) {
        (void)snprintf(message, sizeof message, "more than %zu files; the rest is not listed (--max-files)",
                       limits->max_files);
        td_problems_add(problems, names, "", message);
    }
    if (w.directories_cut) {
        (void)snprintf(message, sizeof message, "more than %zu directories; the rest is not listed",
                       limits->max_directories);
        td_problems_add(problems, names, "", message);
    }
    if (walk->count > 0)
        qsort(walk->found, walk->count, sizeof *walk->found, found_compare);
    if (walk->folder_count > 0)
        qsort(walk->folders, walk->folder_count, sizeof *walk->folders, folder_compare);
    if (!drop_twin_commits(walk, err))
        return false;
    drop_duplicates(walk);
    return true;
}

bool td_walk_passes_over(const struct td_walk *walk, size_t i)
{
    const char *path = walk->found[i].path;
    size_t directory_len = (size_t)(td_base_name(path) - path);
    if (td_file_kind_of(path) != TD_FILE_DCP_METADATA)
        return false;
    for (i++; i < walk->count; i++) { /* it sorts before the parts */
        const char *other = walk->found[i].path;
        if (strncmp(path, other, directory_len) != 0)
            return true;
        if (strchr(other + directory_len, '/') == NULL && td_file_kind_of(other) == TD_FILE_DCP_PART)
            return false;
    }
    return true;
}

void td_walk_fini(struct td_walk *walk)
{
    free(walk->found);
    free(walk->folders);
    free(walk->caches);
    if (walk->names != NULL)
        td_arena_fini(&walk->scratch);
}
