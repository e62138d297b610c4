#include "server/host/option_file.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
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

/* ---- changes ------------------------------------------------------------------------------------------- */

static struct td_file_states look_at(const struct td_file_change *change)
{
    struct td_file_states states;
    memset(&states, 0, sizeof states);
    for (size_t i = 0; i < TD_FILE_CHANGE_MAX; i++) {
        struct stat st;
        const char *path = change->paths[i];
        if (path != NULL && path[0] != '\0' && stat(path, &st) == 0)
            states.ids[i] = td_file_id_of(&st);
    }
    return states;
}

static bool is_same(const struct td_file_states *a, const struct td_file_states *b)
{
    bool same = true;
    for (size_t i = 0; i < TD_FILE_CHANGE_MAX; i++)
        same = same && td_file_id_equal(&a->ids[i], &b->ids[i]);
    return same;
}

void td_file_change_note(struct td_file_change *change)
{
    change->known = change->last = look_at(change);
    change->looked_ns = td_clock_ns();
}

bool td_file_change_end(struct td_file_change *change, const struct td_error *err)
{
    bool was_waiting = change->is_waiting;
    change->is_waiting = err->code == TD_IO || err->code == TD_RESOURCE_EXHAUSTED;
    if (change->is_waiting)
        memset(&change->known, 0xFF, sizeof change->known); /* no file has this identity */
    return err->code != TD_OK && !(was_waiting && change->is_waiting);
}

bool td_file_change_look(struct td_file_change *change, bool always)
{
    if (always) {
        td_file_change_note(change);
        return true;
    }
    uint64_t now_ns = td_clock_ns();
    if (now_ns - change->looked_ns < TD_FILE_CHANGE_LOOK_NS)
        return false;
    change->looked_ns = now_ns;
    struct td_file_states states = look_at(change);
    bool is_at_rest = is_same(&states, &change->last);
    change->last = states;
    if (!is_at_rest || is_same(&states, &change->known))
        return false;
    change->known = states;
    return true;
}
