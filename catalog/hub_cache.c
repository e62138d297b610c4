#include "catalog/hub_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool td_hub_cache_id(const char *name, char *id, size_t capacity)
{
    static const char prefix[] = "models--";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    name += sizeof prefix - 1;
    size_t used = 0;
    bool begins = true; /* a segment of the id: never empty, hidden or ".." in a repository's name */
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
        /* the id is shorter than the folder's name: there is room */
        memmove(place->id + strlen(place->id), at + between + commit_len,
                len - folder_len - between - commit_len + 1);
        return true;
    }
    return false;
}

/* The first line of refs/main, when it names a snapshot that is there. */
static bool commit_of_main(const struct td_root *root, const char *path, char *commit, size_t capacity)
{
    char at[PATH_MAX];
    int fd;
    struct td_file_id id;
    if (snprintf(at, sizeof at, "%s/refs/main", path) >= (int)sizeof at ||
        !td_root_open_file(root, at, &fd, &id, NULL))
        return false;
    ssize_t n = read(fd, commit, capacity - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    commit[n] = '\0';
    commit[strcspn(commit, " \t\r\n/")] = '\0';
    if (commit[0] == '\0' || commit[0] == '.')
        return false;
    struct stat st;
    if (snprintf(at, sizeof at, "%s/snapshots/%s", path, commit) >= (int)sizeof at ||
        !td_root_stat(root, at, &st, NULL))
        return false;
    return S_ISDIR(st.st_mode);
}

bool td_hub_cache_commit(const struct td_root *root, const char *path, char *commit, size_t capacity)
{
    if (commit_of_main(root, path, commit, capacity))
        return true;
    char at[PATH_MAX];
    int fd;
    if (snprintf(at, sizeof at, "%s/snapshots", path) >= (int)sizeof at ||
        !td_root_open_directory(root, at, &fd, NULL))
        return false;
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        (void)close(fd);
        return false;
    }
    bool found = false;
    int64_t newest = 0;
    struct dirent *item;
    while ((item = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): each DIR is used by one thread
        struct stat st;
        if (item->d_name[0] == '.' || strlen(item->d_name) >= capacity ||
            fstatat(fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
            continue;
        int64_t changed = td_file_id_of(&st).mtime_ns;
        /* equal times: the greater name, so that every scan chooses the same */
        if (found && (changed < newest || (changed == newest && strcmp(item->d_name, commit) < 0)))
            continue;
        found = true;
        newest = changed;
        memcpy(commit, item->d_name, strlen(item->d_name) + 1);
    }
    (void)closedir(dir);
    return found;
}
