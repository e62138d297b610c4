#include "tests/unit/catalog/disk_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <unistd.h>

struct fault write_fault, fdatasync_fault, fsync_fault, rename_fault, read_only;
size_t write_at_most;

ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __real_write(int fd, const void *bytes, size_t len);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
int __real_openat64(int dir_fd, const char *path, int flags, ...);

static bool fails(struct fault *fault)
{
    fault->calls++;
    if (fault->countdown == 0 || fault->calls < (unsigned)fault->countdown)
        return false;
    errno = fault->sys;
    return true;
}

void arm(struct fault *fault, int countdown, int sys)
{
    *fault = (struct fault){.countdown = countdown, .sys = sys};
}

void disarm(void)
{
    arm(&write_fault, 0, 0);
    arm(&fdatasync_fault, 0, 0);
    arm(&fsync_fault, 0, 0);
    arm(&rename_fault, 0, 0);
    arm(&read_only, 0, 0);
    write_at_most = 0;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    if (fd <= STDERR_FILENO) /* messages of the program's log */
        return __real_write(fd, bytes, len);
    if (fails(&write_fault))
        return -1;
    return __real_write(fd, bytes, write_at_most > 0 && len > write_at_most ? write_at_most : len);
}

int __wrap_fdatasync(int fd)
{
    (void)fd;
    return fails(&fdatasync_fault) ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    return fails(&fsync_fault) ? -1 : 0;
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return fails(&rename_fault) ? -1 : __real_renameat(from_dir, from, to_dir, to);
}

/* Fails as on a file system that is mounted read-only. */
int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    if ((flags & O_ACCMODE) != O_RDONLY && fails(&read_only))
        return -1;
    return __real_openat64(dir_fd, path, flags, mode);
}
