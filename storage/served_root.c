/* All opens go through open_beneath, where the kernel refuses every path that leaves the root (RESOLVE_BENEATH).
 *
 * What is hard: RESOLVE_BENEATH also refuses absolute symlinks that point back into the root, which Hugging Face caches
 * and copied trees have. open_inside rewrites such a path, one symlink at a time, to a path relative to the root and
 * tries again. The rewriting decides nothing: the kernel checks every rewritten path again, so a race can only make an
 * open fail. */
#include "storage/served_root.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ROOT_MAX_REWRITES = 40, /* of symlinks in one path */
    ROOT_MAX_TRIES = 64,    /* of one open, when the kernel asks to repeat it */
};

/* Returns nanoseconds since 1970. A time that does not fit into 64 bits wraps around, so that two times still
 * differ. */
static int64_t nanoseconds_of(const struct timespec *time)
{
    return (int64_t)((uint64_t)time->tv_sec * TD_NS_PER_S + (uint64_t)time->tv_nsec);
}

struct td_file_id td_file_id_of(const struct stat *st)
{
    return (struct td_file_id){
        .device = st->st_dev,
        .inode = st->st_ino,
        .size_bytes = (uint64_t)st->st_size,
        .mtime_ns = nanoseconds_of(&st->st_mtim),
        .ctime_ns = nanoseconds_of(&st->st_ctim),
    };
}

bool td_file_id_equal(const struct td_file_id *a, const struct td_file_id *b)
{
    return a->device == b->device && a->inode == b->inode && a->size_bytes == b->size_bytes &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

bool td_file_id_is(int fd, const struct td_file_id *id)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    struct td_file_id now = td_file_id_of(&st);
    return td_file_id_equal(&now, id);
}

/* Opens a path below dir_fd with openat2. Returns the descriptor, or -1 with errno: EXDEV when the path leaves
 * dir_fd. */
static int open_beneath(int dir_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    /* EAGAIN: a rename raced with the resolution of "..". The number of tries is bounded, because renames may
     * continue. */
    for (int tries = 0; tries < ROOT_MAX_TRIES; tries++) {
        fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
        if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
            break;
    }
    return (int)fd;
}

/* Sets the error for an errno value of an open. Returns false. */
static bool open_failed(int sys, const char *path, struct td_error *err)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return td_error_set(err, TD_NOT_FOUND, "\"%s\" does not exist", path);
    case EXDEV:
        return td_error_set(err, TD_PERMISSION_DENIED, "\"%s\" leads outside the served directory", path);
    case ELOOP:
    case EACCES:
    case EPERM:
        return td_error_sys(err, TD_PERMISSION_DENIED, sys, "cannot open \"%s\"", path);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot open \"%s\"", path);
    default:
        return td_error_sys(err, TD_IO, sys, "cannot open \"%s\"", path);
    }
}

bool td_root_create(const char *path, struct td_root **out, struct td_error *err)
{
    struct td_root *root = calloc(1, sizeof *root);
    if (root == NULL)
        return td_error_no_memory(err);
    atomic_init(&root->refs, 1);
    root->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root->fd < 0) {
        int sys = errno;
        if (sys == ENOTDIR)
            (void)td_error_set(err, TD_FAILED_PRECONDITION, "\"%s\" is not a directory", path);
        else
            (void)open_failed(sys, path, err);
        goto fail;
    }
    root->path = strdup(path);
    root->real_path = realpath(path, NULL);
    if (root->path == NULL || root->real_path == NULL) {
        (void)td_error_no_memory(err);
        goto fail;
    }
    struct stat st;
    if (fstat(root->fd, &st) != 0) {
        (void)td_error_sys(err, TD_IO, errno, "cannot stat \"%s\"", path);
        goto fail;
    }
    root->device = st.st_dev;
    root->inode = st.st_ino;
    int probe = open_beneath(root->fd, ".", O_PATH | O_DIRECTORY);
    if (probe < 0 && (errno == ENOSYS || errno == EPERM)) {
        (void)td_error_sys(
            err, TD_FAILED_PRECONDITION, errno,
            "openat2 is not available: Linux 5.6 or newer and a seccomp profile that allows it are needed");
        goto fail;
    }
    if (probe >= 0)
        (void)close(probe);
    *out = root;
    return true;
fail:
    td_root_unref(root);
    return false;
}

struct td_root *td_root_ref(struct td_root *root)
{
    atomic_fetch_add(&root->refs, 1);
    return root;
}

void td_root_unref(struct td_root *root)
{
    if (root == NULL || atomic_fetch_sub(&root->refs, 1) != 1)
        return;
    if (root->fd >= 0)
        (void)close(root->fd);
    free(root->path);
    free(root->real_path);
    free(root);
}

/* Returns the part of an absolute symlink target below the root, or NULL when the target is not below the root. */
static const char *inside_root(const struct td_root *root, const char *target)
{
    size_t n = strlen(root->real_path);
    if (n == 1) /* the root is "/" */
        return target + 1;
    if (strncmp(target, root->real_path, n) != 0 || (target[n] != '/' && target[n] != '\0'))
        return NULL;
    while (target[n] == '/')
        n++;
    return target + n;
}

/* Replaces the first symlink in `path` by its target, relative to the root. Replaces a relative symlink, too, because
 * its target may be absolute. Returns false when there is no symlink, or its target is not below the root. */
static bool rewrite_link(const struct td_root *root, char path[PATH_MAX])
{
    char prefix[PATH_MAX];
    char target[PATH_MAX];
    size_t len = strlen(path);
    size_t base = 0; /* where the last name of `prefix` begins */
    for (size_t end = 1; end <= len; end++) {
        if (path[end] != '/' && path[end] != '\0')
            continue;
        memcpy(prefix, path, end);
        prefix[end] = '\0';
        int fd = open_beneath(root->fd, prefix, O_PATH | O_NOFOLLOW);
        if (fd < 0)
            return false;
        ssize_t n = readlinkat(fd, "", target, sizeof target - 1);
        (void)close(fd);
        if (n <= 0) { /* no symlink */
            base = end + 1;
            continue;
        }
        target[n] = '\0';
        const char *below = target;
        if (target[0] == '/') {
            base = 0;
            below = inside_root(root, target);
        }
        if (below == NULL)
            return false;
        size_t below_len = strlen(below);
        size_t rest_len = len - end;
        if (base + below_len + rest_len + 2 > PATH_MAX)
            return false;
        memmove(path + base + below_len, path + end, rest_len + 1);
        memcpy(path + base, below, below_len);
        if (path[0] == '\0')
            memcpy(path, ".", 2);
        else if (path[0] == '/')
            memmove(path, path + 1, strlen(path));
        return true;
    }
    return false;
}

/* Opens a path below the root, through absolute symlinks as well. Returns the descriptor, or -1 with errno. */
static int open_inside(const struct td_root *root, const char *path, uint64_t flags)
{
    int fd = open_beneath(root->fd, path[0] == '\0' ? "." : path, flags);
    if (fd >= 0 || errno != EXDEV || strlen(path) >= PATH_MAX)
        return fd;
    char rewritten[PATH_MAX];
    memcpy(rewritten, path, strlen(path) + 1);
    for (int i = 0; i < ROOT_MAX_REWRITES && rewrite_link(root, rewritten); i++) {
        fd = open_beneath(root->fd, rewritten, flags);
        if (fd >= 0 || errno != EXDEV)
            return fd;
    }
    errno = EXDEV;
    return -1;
}

bool td_root_stat(const struct td_root *root, const char *path, struct stat *st, struct td_error *err)
{
    int fd = open_inside(root, path, O_PATH);
    if (fd < 0)
        return open_failed(errno, path, err);
    int failed = fstat(fd, st);
    int sys = errno;
    (void)close(fd);
    if (failed != 0)
        return td_error_sys(err, TD_IO, sys, "cannot stat \"%s\"", path);
    return true;
}

bool td_root_open_file(const struct td_root *root, const char *path, int *fd, struct td_file_id *id,
                       struct td_error *err)
{
    /* Stat first: opening a device can have effects, even with O_NONBLOCK. */
    struct stat st = {0};
    if (!td_root_stat(root, path, &st, err))
        return false;
    if (!S_ISREG(st.st_mode))
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%s\" is not a regular file", path);
    int opened = open_inside(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (opened < 0)
        return open_failed(errno, path, err);
    if (fstat(opened, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(opened);
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%s\" is not a regular file", path);
    }
    *id = td_file_id_of(&st);
    *fd = opened;
    return true;
}

bool td_root_link_name(const struct td_root *root, const char *path, char *name, size_t capacity)
{
    char target[PATH_MAX];
    int fd = open_inside(root, path, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return false;
    ssize_t n = readlinkat(fd, "", target, sizeof target - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    const char *last = slash == NULL ? target : slash + 1;
    if (strlen(last) >= capacity)
        return false;
    memcpy(name, last, strlen(last) + 1);
    return true;
}

bool td_root_open_directory(const struct td_root *root, const char *path, int *fd, struct td_error *err)
{
    int opened = open_inside(root, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (opened < 0)
        return open_failed(errno, path[0] == '\0' ? root->path : path, err);
    *fd = opened;
    return true;
}

bool td_root_remove(const struct td_root *root, const char *path, int flags)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int len = snprintf(directory, sizeof directory, "%.*s", slash == NULL ? 0 : (int)(slash - path), path);
    if (len < 0 || (size_t)len >= sizeof directory) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = open_inside(root, directory, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return false;
    bool ok = unlinkat(fd, slash == NULL ? path : slash + 1, flags) == 0;
    int sys = errno;
    (void)close(fd);
    errno = sys;
    return ok;
}
