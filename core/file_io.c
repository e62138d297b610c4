#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ssize_t td_read_at(int fd, void *out, size_t len, uint64_t off)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(fd, (char *)out + got, len - got, (off_t)(off + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

bool td_write_at(int fd, const void *bytes, size_t len, uint64_t off)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

bool td_write_all(int fd, const void *bytes, size_t len)
{
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

bool td_durable_file_begin(struct td_durable_file *file, int at, const char *path, mode_t mode)
{
    int n = snprintf(file->new_path, sizeof file->new_path, "%s.new", path);
    file->at = at;
    file->path = path;
    file->fd = -1;
    errno = ENAMETOOLONG;
    if (n <= 0 || (size_t)n >= sizeof file->new_path)
        return false;
    (void)unlinkat(at, file->new_path, 0);
    file->fd = openat(at, file->new_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    return file->fd >= 0;
}

/* Makes the name of a file durable: writes the directory that it is in. */
static bool sync_directory_of(const struct td_durable_file *file)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(file->path, '/');
    int len = slash == NULL ? 1 : (int)(slash - file->path) + 1;
    (void)snprintf(directory, sizeof directory, "%.*s", len, slash == NULL ? "." : file->path);
    int fd = openat(file->at, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fsync(fd) == 0;
    int sys = errno;
    (void)close(fd);
    errno = sys;
    return ok;
}

int td_durable_file_end(struct td_durable_file *file, bool is_written)
{
    if (is_written && fsync(file->fd) == 0 && renameat(file->at, file->new_path, file->at, file->path) == 0 &&
        sync_directory_of(file))
        return file->fd;
    int sys = errno;
    (void)unlinkat(file->at, file->new_path, 0);
    (void)close(file->fd);
    errno = sys;
    return -1;
}

bool td_durable_file_write(int at, const char *path, struct td_text content, mode_t mode)
{
    struct td_durable_file file;
    if (!td_durable_file_begin(&file, at, path, mode))
        return false;
    int fd = td_durable_file_end(&file, td_write_all(file.fd, content.p, content.len));
    if (fd < 0)
        return false;
    (void)close(fd);
    return true;
}
