#include "storage/own_folder.h"

#include "core/checked.h"
#include "core/clock.h"
#include "core/log.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- opening --------------------------------------------------------------------------------------------- */

static bool make_folder(int at, const char *name)
{
    return mkdirat(at, name, 0755) == 0 || errno == EEXIST;
}

bool td_own_folder_make(const struct td_own_folder *folder, const char *name)
{
    return make_folder(folder->fd, name);
}

static bool make_children(const struct td_own_folder *folder)
{
    bool ok = make_folder(folder->fd, "trash");
    for (size_t i = 0; ok && folder->rules->children[i] != NULL; i++)
        ok = make_folder(folder->fd, folder->rules->children[i]);
    return ok;
}

static bool cannot_write(const struct td_own_folder *folder, const char *root, struct td_error *err)
{
    int sys = errno;
    return td_error_sys(err, sys == EACCES || sys == EPERM || sys == EROFS ? TD_PERMISSION_DENIED : TD_IO, sys,
                        "%s keeps models in \"%s\", which must be writable for this process", folder->rules->option,
                        root);
}

static bool take_lock(struct td_own_folder *folder, const char *root, struct td_error *err)
{
    folder->lock_fd = openat(folder->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (folder->lock_fd < 0)
        return cannot_write(folder, root, err);
    if (flock(folder->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno == EWOULDBLOCK)
        return td_error_set(err, TD_FAILED_PRECONDITION, "another tensord with %s %s \"%s\"; %s", folder->rules->option,
                            folder->rules->deed, root, folder->rules->when_taken);
    return td_error_sys(err, TD_IO, errno, "%s needs a lock on \"%s/%s/lock\"", folder->rules->option, root,
                        folder->rules->name);
}

/* Checks that the file system can rename without replacing, which publishing needs: NFS and some FUSE file systems
 * cannot. The trial folder is moved to the trash, which the start empties. */
static bool check_renames(const struct td_own_folder *folder, const char *root, struct td_error *err)
{
    static const char from[] = "trial";
    static const char to[] = "trash/trial";
    if (!make_folder(folder->fd, from) || renameat2(folder->fd, from, folder->fd, to, RENAME_NOREPLACE) == 0)
        return true; /* a full disk is found later, and is no reason not to start */
    int sys = errno;
    (void)unlinkat(folder->fd, from, AT_REMOVEDIR);
    return (sys != EINVAL && sys != ENOSYS && sys != EOPNOTSUPP) ||
           td_error_sys(err, TD_FAILED_PRECONDITION, sys,
                        "%s publishes by renames that replace nothing (RENAME_NOREPLACE), which the file system of "
                        "\"%s\" lacks; give it one of a local disk",
                        folder->rules->option, root);
}

bool td_own_folder_open(struct td_own_folder *folder, const struct td_own_folder_rules *rules, const char *root,
                        struct td_error *err)
{
    struct td_root *served;
    folder->rules = rules;
    folder->root = NULL;
    folder->root_fd = folder->fd = folder->lock_fd = -1;
    if (!td_root_create(root, &served, err)) /* the errors of a directory that is served without this folder */
        return false;
    td_root_unref(served);
    folder->root = realpath(root, NULL);
    if (folder->root == NULL)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open \"%s\"", root);
    folder->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->root_fd < 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open \"%s\"", root);
    if (!make_folder(folder->root_fd, rules->name))
        return cannot_write(folder, root, err);
    folder->fd = openat(folder->root_fd, rules->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->fd < 0 || !make_children(folder))
        return cannot_write(folder, root, err);
    return take_lock(folder, root, err) && check_renames(folder, root, err);
}

void td_own_folder_close(struct td_own_folder *folder)
{
    const int fds[] = {folder->lock_fd, folder->fd, folder->root_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    free(folder->root);
}

/* Returns whether a path still leads to the file that was opened as `fd`. */
static bool is_still(int at, const char *path, int fd)
{
    struct stat now;
    struct stat opened;
    return fstatat(at, path, &now, 0) == 0 && fstat(fd, &opened) == 0 && now.st_dev == opened.st_dev &&
           now.st_ino == opened.st_ino;
}

/* Sets the error for a folder that was removed or replaced. Returns false. */
static bool refuse_replaced(const struct td_own_folder *folder, struct td_error *err)
{
    return td_error_set(
        err, TD_FAILED_PRECONDITION,
        "\"%s/%s\", or what is in it, was removed or replaced while the server runs; restart the server", folder->root,
        folder->rules->name);
}

bool td_own_folder_check(const struct td_own_folder *folder, struct td_error *err)
{
    if (!is_still(AT_FDCWD, folder->root, folder->root_fd) ||
        !is_still(folder->root_fd, folder->rules->name, folder->fd) || !is_still(folder->fd, "lock", folder->lock_fd))
        return refuse_replaced(folder, err);
    return make_children(folder) || cannot_write(folder, folder->root, err);
}

/* ---- items ----------------------------------------------------------------------------------------------- */

/* A call of td_own_folder_each. */
struct each {
    bool (*visit)(void *context, const char *name, struct td_error *err);
    void *context;
};

static bool visit_name(void *context, int at, const char *name, struct td_error *err)
{
    const struct each *each = context;
    (void)at;
    return each->visit(each->context, name, err);
}

bool td_own_folder_each(const struct td_own_folder *folder, const char *name,
                        bool (*visit)(void *context, const char *name, struct td_error *err), void *context,
                        struct td_error *err)
{
    char shown[TD_OWN_NAME_BYTES + 32];
    struct each each = {.visit = visit, .context = context};
    (void)snprintf(shown, sizeof shown, "%s/%s", folder->rules->name, name);
    return td_disk_list(openat(folder->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), shown, visit_name,
                        &each, err);
}

void td_own_folder_path(const struct td_own_folder *folder, const char *name, char out[TD_OWN_PATH_BYTES])
{
    (void)snprintf(out, TD_OWN_PATH_BYTES, "/proc/self/fd/%d/%s", folder->fd, name);
}

bool td_own_folder_open_root(const struct td_own_folder *folder, const char *name, struct td_root **out,
                             struct td_error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s/%s", folder->root, folder->rules->name, name);
    if (n < 0 || n >= PATH_MAX)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the path of the served directory is too long");
    if (!td_root_create(path, out, err))
        return false;
    if (is_still(folder->fd, name, (*out)->fd))
        return true;
    td_root_unref(*out);
    return refuse_replaced(folder, err);
}

uint64_t td_own_folder_free_bytes(const struct td_own_folder *folder)
{
    struct statvfs fs;
    uint64_t free_bytes;
    if (fstatvfs(folder->fd, &fs) != 0 || fs.f_blocks == 0 || !td_mul_u64(fs.f_bavail, fs.f_frsize, &free_bytes))
        return UINT64_MAX; /* unknown: a write reports a full disk */
    return free_bytes;
}

uint64_t td_own_folder_disk_bytes(const struct td_own_folder *folder)
{
    struct statvfs fs;
    uint64_t disk_bytes;
    if (fstatvfs(folder->fd, &fs) != 0 || !td_mul_u64(fs.f_blocks, fs.f_frsize, &disk_bytes))
        return 0;
    return disk_bytes;
}

bool td_own_folder_check_room(const struct td_own_folder *folder, uint64_t bytes, struct td_error *err)
{
    uint64_t free_bytes = td_own_folder_free_bytes(folder);
    if (free_bytes >= bytes)
        return true;
    return td_error_sys(err, TD_RESOURCE_EXHAUSTED, ENOSPC,
                        "it needs %" PRIu64 " more bytes, and the disk has %" PRIu64 " left", bytes, free_bytes);
}

/* ---- removing -------------------------------------------------------------------------------------------- */

bool td_own_folder_trash(struct td_own_folder *folder, int at, const char *path, char trash[TD_OWN_NAME_BYTES])
{
    uint64_t number = atomic_fetch_add_explicit(&folder->trash_number, 1, memory_order_relaxed);
    (void)snprintf(trash, TD_OWN_NAME_BYTES, "trash/%" PRId64 "-%" PRIu64, td_wall_now().seconds, number);
    return renameat(at, path, folder->fd, trash) == 0;
}

void td_own_folder_remove(const struct td_own_folder *folder, const char *name)
{
    char path[TD_OWN_PATH_BYTES];
    td_own_folder_path(folder, name, path);
    if (!td_disk_tree_remove(path) && errno != ENOENT)
        td_log(TD_LOG_WARN, "cannot remove \"%s/%s/%s\": %s", folder->root, folder->rules->name, name, strerror(errno));
}

/* The folder whose items are removed. */
struct emptying {
    const struct td_own_folder *folder;
    const char *name;
};

static bool remove_item(void *context, const char *name, struct td_error *err)
{
    const struct emptying *emptying = context;
    char path[TD_OWN_NAME_BYTES];
    (void)err;
    (void)snprintf(path, sizeof path, "%s/%s", emptying->name, name);
    td_own_folder_remove(emptying->folder, path);
    return true;
}

bool td_own_folder_empty(const struct td_own_folder *folder, const char *name, struct td_error *err)
{
    struct emptying emptying = {.folder = folder, .name = name};
    return td_own_folder_each(folder, name, remove_item, &emptying, err);
}
