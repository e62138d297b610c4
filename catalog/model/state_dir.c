#include "catalog/model/state_dir.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

bool td_state_is_ours_alone(const struct stat *st)
{
    return st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Checks whether the open directory is the served root or inside it, by any path. Sets *inside. Returns false, with
 * *inside false, when that cannot be determined. */
static bool find_if_inside(int dir_fd, const char *root, bool *inside)
{
    struct stat root_st;
    struct stat at;
    struct stat above;
    int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    *inside = false;
    bool ok = fd >= 0 && stat(root, &root_st) == 0 && fstat(fd, &at) == 0;
    for (bool top = false; ok && !top && !*inside;) {
        *inside = at.st_dev == root_st.st_dev && at.st_ino == root_st.st_ino;
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        ok = up >= 0 && fstat(up, &above) == 0;
        top = ok && above.st_dev == at.st_dev && above.st_ino == at.st_ino;
        at = above;
        (void)close(fd);
        fd = up;
    }
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

static bool check_outside(int fd, const char *path, const char *root, struct td_error *err)
{
    bool inside = false;
    if (root != NULL && !find_if_inside(fd, root, &inside))
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot access \"%s\"", path);
    return !inside || td_error_set(err, TD_FAILED_PRECONDITION,
                                   "--state-dir: \"%s\" is in the served directory; choose another", path);
}

static bool open_named(const char *path, const char *root, bool create, int *fd, struct stat *st, struct td_error *err)
{
    bool created = create && mkdir(path, 0700) == 0;
    if (create && !created && errno != EEXIST)
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot create \"%s\"", path);
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot open \"%s\"", path);
    if (fstat(*fd, st) != 0)
        return td_error_sys(err, TD_IO, errno, "--state-dir: cannot access \"%s\"", path);
    if (check_outside(*fd, path, root, err))
        return true;
    if (created)
        (void)rmdir(path); /* a directory must not be left there */
    return false;
}

/* Opens our own sub-directory of the open directory, to which others may write. */
static bool open_own(int dir_fd, const char *path, const char *root, bool create, int *fd, struct td_error *err)
{
    char name[32];
    struct stat st;
    (void)snprintf(name, sizeof name, "tensord-%u", (unsigned)geteuid());
    bool created = create && mkdirat(dir_fd, name, 0700) == 0;
    if (create && !created && errno != EEXIST)
        return td_error_sys(
            err, TD_PERMISSION_DENIED, errno,
            "--state-dir: others can write to \"%s\", and its own sub-directory \"%s\" cannot be created there", path,
            name);
    *fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return td_error_set(err, TD_PERMISSION_DENIED,
                            "--state-dir: others can write to \"%s\", and there is no sub-directory \"%s\" in it", path,
                            name);
    if (*fd < 0 || fstat(*fd, &st) != 0 || !td_state_is_ours_alone(&st))
        return td_error_set(err, TD_PERMISSION_DENIED,
                            "--state-dir: others can write to \"%s\", and \"%s\" there is not a directory that "
                            "belongs to the user that tensord runs as (%u) and that nobody else can write to: "
                            "somebody else put it there; remove it or choose another directory",
                            path, name, (unsigned)geteuid());
    if (!check_outside(*fd, name, root, err))
        return false;
    static _Atomic bool has_logged; /* all logs have the same directory */
    if (create && !atomic_exchange(&has_logged, true))
        td_log(TD_LOG_INFO,
               "--state-dir: others can write to \"%s\"; digests are kept in its sub-directory \"%s\", "
               "to which nobody else can",
               path, name);
    return true;
}

bool td_state_dir_open(const char *path, const char *root, bool create, int *fd, struct td_error *err)
{
    struct stat st = {0};
    int named_fd = -1;
    *fd = -1;
    bool ok = open_named(path, root, create, &named_fd, &st, err);
    if (ok && td_state_is_ours_alone(&st)) {
        *fd = named_fd;
        return true;
    }
    if (ok && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        ok = td_error_set(err, TD_PERMISSION_DENIED,
                          "--state-dir: \"%s\" must belong to the user that tensord runs as (%u), or that user "
                          "must be able to write to it: its files decide what digests the server reports",
                          path, (unsigned)geteuid());
    ok = ok && open_own(named_fd, path, root, create, fd, err);
    if (named_fd >= 0)
        (void)close(named_fd);
    if (!ok && *fd >= 0)
        (void)close(*fd);
    if (!ok)
        *fd = -1;
    return ok;
}

bool td_state_folder_open(const char *path, const char *root, const char *name, int *fd, struct td_error *err)
{
    int above;
    struct stat st;
    if (!td_state_dir_open(path, root, true, &above, err))
        return false;
    int refused = mkdirat(above, name, 0700) == 0 || errno == EEXIST ? 0 : errno;
    *fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int sys = refused != 0 ? refused : errno;
    (void)close(above);
    if (*fd < 0)
        return td_error_sys(err, TD_IO, sys, "--state-dir: cannot open the folder \"%s\" in \"%s\"", name, path);
    if (fstat(*fd, &st) == 0 && td_state_is_ours_alone(&st))
        return true;
    (void)close(*fd);
    return td_error_set(err, TD_PERMISSION_DENIED, "--state-dir: others can write to the folder \"%s\" in \"%s\"", name,
                        path);
}
