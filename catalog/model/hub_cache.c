#include "catalog/model/hub_cache.h"

#include "core/text.h"
#include "core/utf8.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool td_hub_cache_id(const char *name, char *id, size_t capacity)
{
    static const char models[] = "models--";
    static const char datasets[] = "datasets--";
    static const char below[] = "datasets/";
    size_t used = 0;
    if (strncmp(name, models, sizeof models - 1) == 0) {
        name += sizeof models - 1;
    } else if (strncmp(name, datasets, sizeof datasets - 1) == 0 && capacity > sizeof below) {
        name += sizeof datasets - 1;
        used = sizeof below - 1;
        memcpy(id, below, used);
    } else {
        return false;
    }
    bool begins = true; /* at the beginning of a segment, which is never empty, hidden or ".." in a repository's name */
    while (*name != '\0') {
        bool separator = name[0] == '-' && name[1] == '-';
        if (used + 1 >= capacity || (begins && (separator || *name == '.')))
            return false;
        id[used++] = separator ? '/' : *name;
        name += separator ? 2 : 1;
        begins = separator;
    }
    id[used] = '\0';
    return !begins;
}

bool td_hub_cache_place(const char *path, struct td_hub_place *place)
{
    static const char snapshots[] = "/snapshots/";
    const size_t between = sizeof snapshots - 1;
    size_t len = strlen(path);
    if (len >= sizeof place->folder)
        return false;
    for (const char *at = strstr(path, snapshots); at != NULL; at = strstr(at + 1, snapshots)) {
        const char *name = at;
        while (name > path && name[-1] != '/')
            name--;
        size_t commit_len = strcspn(at + between, "/");
        size_t folder_len = (size_t)(at - path);
        memcpy(place->folder, path, folder_len);
        place->folder[folder_len] = '\0';
        if (commit_len == 0 || commit_len >= sizeof place->commit ||
            !td_hub_cache_id(place->folder + (name - path), place->id, sizeof place->id))
            continue;
        memcpy(place->commit, at + between, commit_len);
        place->commit[commit_len] = '\0';
        memcpy(place->below, at + 1, len - folder_len);
        /* the id is shorter than the folder's name, so there is room */
        memmove(place->id + strlen(place->id), at + between + commit_len, len - folder_len - between - commit_len + 1);
        return true;
    }
    return false;
}

/* Reads the commit in a ref's file: its first line. Returns false when it cannot be a commit's name. */
static bool read_ref(const struct td_root *root, const char *path, char *commit, size_t capacity)
{
    int fd;
    struct td_file_id id;
    if (!td_root_open_file(root, path, &fd, &id, NULL))
        return false;
    ssize_t n = read(fd, commit, capacity - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    commit[n] = '\0';
    commit[strcspn(commit, " \t\r\n/")] = '\0';
    return commit[0] != '\0' && commit[0] != '.' && td_utf8_valid(commit, strlen(commit));
}

/* Reads the commit that refs/main names. Returns false when its snapshot does not exist. */
static bool commit_of_main(const struct td_root *root, const char *path, char *commit, size_t capacity)
{
    char at[PATH_MAX];
    struct stat st;
    return snprintf(at, sizeof at, "%s/refs/main", path) < (int)sizeof at && read_ref(root, at, commit, capacity) &&
           snprintf(at, sizeof at, "%s/snapshots/%s", path, commit) < (int)sizeof at &&
           td_root_stat(root, at, &st, NULL) && S_ISDIR(st.st_mode);
}

/* Opens a directory for listing. Returns NULL when it cannot be opened. */
static DIR *open_listing(const struct td_root *root, const char *path)
{
    int fd;
    if (!td_root_open_directory(root, path, &fd, NULL))
        return NULL;
    DIR *dir = fdopendir(fd);
    if (dir == NULL)
        (void)close(fd);
    return dir;
}

/* Returns the next item of this kind (S_IFDIR, S_IFREG, 0 for both) that is no dot-file; NULL at the end. Does not
 * follow links. */
static const char *next_item(DIR *dir, mode_t kind, struct stat *st)
{
    struct dirent *item;
    while ((item = readdir(dir)) != NULL) // NOLINT(concurrency-mt-unsafe): each DIR is used by one thread
        if (item->d_name[0] != '.' && fstatat(dirfd(dir), item->d_name, st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (kind == 0 ? S_ISDIR(st->st_mode) || S_ISREG(st->st_mode) : (st->st_mode & S_IFMT) == kind))
            return item->d_name;
    return NULL;
}

bool td_hub_cache_commits(const struct td_root *root, const char *path,
                          bool (*visit)(void *context, const char *commit), void *context)
{
    char at[PATH_MAX];
    struct stat st;
    const char *name;
    bool ok = true;
    DIR *dir = snprintf(at, sizeof at, "%s/snapshots", path) < (int)sizeof at ? open_listing(root, at) : NULL;
    if (dir == NULL)
        return true;
    while (ok && (name = next_item(dir, S_IFDIR, &st)) != NULL)
        ok = visit(context, name);
    (void)closedir(dir);
    return ok;
}

bool td_hub_cache_downloads(const struct td_root *root, const char *path,
                            bool (*visit)(void *context, const char *physical, const struct td_file_id *id),
                            void *context)
{
    char at[PATH_MAX];
    char physical[PATH_MAX];
    struct stat st;
    const struct dirent *item;
    bool ok = true;
    DIR *dir = snprintf(at, sizeof at, "%s/blobs", path) < (int)sizeof at ? open_listing(root, at) : NULL;
    if (dir == NULL)
        return true;
    /* names alone are read, since there may be many blobs */
    while (ok && (item = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): each DIR is used by one thread
        if (!td_has_extension(item->d_name, ".incomplete") ||
            fstatat(dirfd(dir), item->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
            snprintf(physical, sizeof physical, "%s/%s", at, item->d_name) >= (int)sizeof physical)
            continue;
        struct td_file_id id = td_file_id_of(&st);
        ok = visit(context, physical, &id);
    }
    (void)closedir(dir);
    return ok;
}

/* The directories below refs/ that are still to be listed, as paths below it. Those that find no room are left out. */
struct pending {
    char names[TD_HUB_CACHE_REF_FOLDERS][NAME_MAX + 1];
    size_t count;
};

/* Handles one item of refs/ or of a directory in it. Returns false when the visitor does. */
static bool visit_ref(const struct td_root *root, const char *refs, const char *name, bool is_directory,
                      struct pending *pending, bool (*visit)(void *, const char *, const char *), void *context)
{
    char at[PATH_MAX];
    char commit[NAME_MAX + 1];
    if (is_directory) {
        if (pending->count < sizeof pending->names / sizeof *pending->names)
            memcpy(pending->names[pending->count++], name, strlen(name) + 1);
        return true;
    }
    if (snprintf(at, sizeof at, "%s/%s", refs, name) >= (int)sizeof at || !read_ref(root, at, commit, sizeof commit))
        return true;
    return visit(context, name, commit);
}

bool td_hub_cache_refs(const struct td_root *root, const char *path,
                       bool (*visit)(void *context, const char *name, const char *commit), void *context)
{
    char refs[PATH_MAX];
    char at[PATH_MAX];
    struct pending pending = {.count = 1}; /* refs/ itself, the empty name */
    size_t left = TD_HUB_CACHE_REFS;
    bool ok = snprintf(refs, sizeof refs, "%s/refs", path) < (int)sizeof refs;
    while (ok && pending.count > 0) {
        char below[NAME_MAX + 1];
        memcpy(below, pending.names[--pending.count], sizeof below);
        DIR *dir = snprintf(at, sizeof at, "%s/%s", refs, below) < (int)sizeof at ? open_listing(root, at) : NULL;
        struct stat st;
        const char *name = NULL;
        while (ok && dir != NULL && left > 0 && (name = next_item(dir, 0, &st)) != NULL) {
            char whole[NAME_MAX + 1];
            left--;
            if (snprintf(whole, sizeof whole, "%s%s%s", below, below[0] == '\0' ? "" : "/", name) < (int)sizeof whole)
                ok = visit_ref(root, refs, whole, S_ISDIR(st.st_mode), &pending, visit, context);
        }
        if (dir != NULL)
            (void)closedir(dir);
    }
    return ok;
}

/* The search for the snapshot that was changed last. */
struct newest {
    const struct td_root *root;
    const char *path;
    char *commit;
    size_t capacity;
    int64_t changed_ns;
    bool found;
};

static bool look_at_commit(void *context, const char *commit)
{
    struct newest *newest = context;
    char at[PATH_MAX];
    struct stat st;
    if (strlen(commit) >= newest->capacity || !td_utf8_valid(commit, strlen(commit)) ||
        snprintf(at, sizeof at, "%s/snapshots/%s", newest->path, commit) >= (int)sizeof at ||
        !td_root_stat(newest->root, at, &st, NULL))
        return true;
    int64_t changed_ns = td_file_id_of(&st).mtime_ns;
    /* equal times: the greater name wins, so that every scan chooses the same */
    if (newest->found &&
        (changed_ns < newest->changed_ns || (changed_ns == newest->changed_ns && strcmp(commit, newest->commit) < 0)))
        return true;
    newest->found = true;
    newest->changed_ns = changed_ns;
    memcpy(newest->commit, commit, strlen(commit) + 1);
    return true;
}

bool td_hub_cache_commit(const struct td_root *root, const char *path, char *commit, size_t capacity)
{
    struct newest newest = {.root = root, .path = path, .commit = commit, .capacity = capacity};
    return commit_of_main(root, path, commit, capacity) ||
           (td_hub_cache_commits(root, path, look_at_commit, &newest) && newest.found);
}
