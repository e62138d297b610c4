#include "server/host/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Most bytes of a path that a message shows. */
enum { PATH_SHOWN = 160 };

/* Appends the file's content. Reads to the end, since a file may grow after its size was queried. */
static bool read_content(int fd, const char *path, const char *what, size_t limit, struct td_buffer *out,
                         struct td_error *err)
{
    enum { STEP = 64 * 1024 };
    for (;;) {
        if (!td_buffer_reserve(out, STEP))
            return td_buffer_refuse(out, err);
        ssize_t n = read(fd, out->data + out->len, STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return td_error_sys(err, TD_IO, errno, "cannot read the %s \"%.*s\"", what,
                                TD_SHOW(td_text_of(path), PATH_SHOWN));
        if (n == 0)
            return true;
        out->len += (size_t)n;
        if (out->len > limit)
            return td_error_set(err, TD_FAILED_PRECONDITION, "\"%.*s\" has more than %zu bytes, too many for a %s",
                                TD_SHOW(td_text_of(path), PATH_SHOWN), limit, what);
    }
}

bool td_whole_file_read(const char *path, const char *what, size_t limit, struct td_buffer *out, struct stat *st,
                        struct td_error *err)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return td_error_sys(err, TD_IO, errno, "cannot open the %s \"%.*s\"", what,
                            TD_SHOW(td_text_of(path), PATH_SHOWN));
    bool is_regular = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    bool ok = is_regular ? read_content(fd, path, what, limit, out, err)
                         : td_error_set(err, TD_FAILED_PRECONDITION, "the %s \"%.*s\" is not a regular file", what,
                                        TD_SHOW(td_text_of(path), PATH_SHOWN));
    (void)close(fd);
    if (ok && st != NULL)
        *st = found;
    return ok;
}
