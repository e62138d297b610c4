#include "tests/unit/storage/watch_hooks.h"

#include <errno.h>
#include <stdint.h>
#include <sys/vfs.h>

int init_fails, add_fails;
unsigned long file_system_is_said;

int __wrap_inotify_init1(int flags);
int __real_inotify_init1(int flags);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __real_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_fstatfs64(int fd, struct statfs *out);
int __real_fstatfs64(int fd, struct statfs *out);

int __wrap_inotify_init1(int flags)
{
    errno = init_fails;
    return init_fails != 0 ? -1 : __real_inotify_init1(flags);
}

int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask)
{
    errno = add_fails;
    return add_fails != 0 ? -1 : __real_inotify_add_watch(fd, path, mask);
}

int __wrap_fstatfs64(int fd, struct statfs *out)
{
    int result = __real_fstatfs64(fd, out);
    if (file_system_is_said != 0)
        out->f_type = (__typeof__(out->f_type))file_system_is_said;
    return result;
}
