#include "catalog/publish/publish_folder.h"

#include "core/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int td_folder_open(int at, const char *name)
{
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void td_folder_close(int fd)
{
    int sys = errno;
    if (fd >= 0)
        (void)close(fd);
    errno = sys;
}

/* Opens a directory in `at`, which is closed; makes it when it is missing, if `create`. */
static int step_into(int at, const char *name, bool create)
{
    bool made = create && mkdirat(at, name, 0755) == 0;
    bool ok = made ? fsync(at) == 0 : !create || errno == EEXIST;
    int fd = ok ? td_folder_open(at, name) : -1;
    td_folder_close(at);
    return fd;
}

int td_folder_open_parent(int at, const char *path, bool create, const char **name)
{
    struct td_text rest = td_text_of(path);
    int fd = td_folder_open(at, ".");
    while (fd >= 0 && memchr(rest.p, '/', rest.len) != NULL) {
        char part[NAME_MAX + 1];
        struct td_text step = td_text_take_until(&rest, '/');
        if (step.len >= sizeof part) {
            (void)close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, step.p, step.len);
        part[step.len] = '\0';
        fd = step_into(fd, part, create);
    }
    *name = rest.p;
    return fd;
}

bool td_folder_sync(int at, const char *name)
{
    int fd = td_folder_open(at, name);
    bool ok = fd >= 0 && fsync(fd) == 0;
    td_folder_close(fd);
    return ok;
}

/* ---- walks ----------------------------------------------------------------------------------------------- */

/* A walk goes down before it continues in a directory, so the open directories are those on the way to the current
 * item. */
struct walk {
    DIR *open[TD_FOLDER_DEPTH + 1];
    size_t path_len[TD_FOLDER_DEPTH + 1]; /* of each of them, with its '/' */
    size_t depth;                         /* number of open directories */
    char path[PATH_MAX];
    struct td_error *err;
};

/* Opens a directory for listing, whose path is the first `path_len` bytes of walk->path. */
static bool enter(struct walk *walk, int at, const char *name, size_t path_len)
{
    if (walk->depth > TD_FOLDER_DEPTH)
        return td_error_set(walk->err, TD_FAILED_PRECONDITION, "\"%s\" is more than %d folders deep", walk->path,
                            TD_FOLDER_DEPTH);
    int fd = td_folder_open(at, name);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        int sys = errno;
        if (fd >= 0)
            (void)close(fd);
        bool is_short = sys == ENOMEM || sys == EMFILE || sys == ENFILE;
        return td_error_sys(walk->err, is_short ? TD_RESOURCE_EXHAUSTED : TD_IO, sys, "cannot list \"%s\"", walk->path);
    }
    walk->open[walk->depth] = dir;
    walk->path_len[walk->depth++] = path_len;
    return true;
}

/* Returns the kind of an item, or 0 with errno. */
static mode_t kind_of(int at, const struct dirent *item)
{
    struct stat st;
    if (item->d_type != DT_UNKNOWN)
        return (mode_t)DTTOIF(item->d_type);
    return fstatat(at, item->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode & S_IFMT : 0;
}

/* Visits one item, and enters it if it is a directory. */
static bool visit_item(struct walk *walk, const struct dirent *item,
                       bool (*visit)(void *, const struct td_folder_item *, struct td_error *), void *context)
{
    DIR *dir = walk->open[walk->depth - 1];
    size_t begin = walk->path_len[walk->depth - 1];
    size_t len = strlen(item->d_name);
    if (begin + len + 2 > sizeof walk->path)
        return td_error_set(walk->err, TD_FAILED_PRECONDITION, "a path below \"%.200s\" is too long", walk->path);
    memcpy(walk->path + begin, item->d_name, len + 1);
    const struct td_folder_item found = {.at = dirfd(dir),
                                         .name = item->d_name,
                                         .path = walk->path,
                                         .depth = walk->depth - 1,
                                         .kind = kind_of(dirfd(dir), item),
                                         .inode = item->d_ino};
    if (found.kind == 0)
        return td_error_sys(walk->err, TD_IO, errno, "cannot look at \"%s\"", walk->path);
    if (!visit(context, &found, walk->err))
        return false;
    if (found.kind != S_IFDIR)
        return true;
    if (!enter(walk, found.at, found.name, begin + len + 1))
        return false;
    memcpy(walk->path + begin + len, "/", 2);
    return true;
}

bool td_folder_walk(int fd, size_t most,
                    bool (*visit)(void *context, const struct td_folder_item *item, struct td_error *err),
                    void *context, struct td_error *err)
{
    struct walk walk = {.err = err};
    size_t count = 0;
    bool ok = enter(&walk, fd, ".", 0);
    while (ok && walk.depth > 0) {
        DIR *dir = walk.open[walk.depth - 1];
        errno = 0;
        const struct dirent *item = readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread uses it
        if (item == NULL) {
            ok = errno == 0 || td_error_sys(err, TD_IO, errno, "cannot list \"%s\"", walk.path);
            (void)closedir(dir);
            walk.depth--;
        } else if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            ok = count++ < most ? visit_item(&walk, item, visit, context)
                                : td_error_set(err, TD_FAILED_PRECONDITION, "it has more than %zu items", most);
        }
    }
    while (walk.depth > 0)
        (void)closedir(walk.open[--walk.depth]);
    return ok;
}
