#include "storage/at_rest.h"

#include "core/clock.h"
#include "storage/file_system.h"

#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

/* The longest tick of the clock that file systems stamp with, with a margin: CONFIG_HZ is 100 or more. */
static const int64_t clock_tick_ns = 40000000;
static const int64_t second_ns = 1000000000;

static enum td_rest look_for_writers(int fd, int lease_signal)
{
    switch (td_find_writers(fd, lease_signal)) {
    case TD_WRITERS_NONE:
        return TD_REST_YES;
    case TD_WRITERS_SOME:
        return TD_REST_WRITTEN;
    case TD_WRITERS_UNKNOWN:
        break;
    }
    return TD_REST_UNKNOWN;
}

enum td_rest td_change_time_at_rest(int64_t ctime_ns, int64_t wall_ns, uint64_t *wait_ns)
{
    int64_t age_ns;
    if (ctime_ns % second_ns == 0 || __builtin_sub_overflow(wall_ns, ctime_ns, &age_ns) || age_ns < -clock_tick_ns)
        return TD_REST_UNKNOWN;
    if (age_ns >= clock_tick_ns)
        return TD_REST_YES;
    *wait_ns = (uint64_t)(clock_tick_ns - age_ns);
    return TD_REST_SOON;
}

enum td_rest td_file_at_rest(const struct td_root *root, const char *path, const struct td_file_id *id,
                             int lease_signal, uint64_t *wait_ns)
{
    struct td_error ignored = TD_ERROR_INIT;
    struct td_file_id now;
    int fd;
    if (lease_signal == 0)
        return TD_REST_UNKNOWN;
    if (!td_root_open_file(root, path, &fd, &now, &ignored))
        return ignored.code == TD_NOT_FOUND ? TD_REST_WRITTEN : TD_REST_UNKNOWN;
    struct td_wall wall = td_wall_now(); /* read before fstat finds the file unchanged */
    enum td_rest rest = look_for_writers(fd, lease_signal);
    bool same = td_file_id_is(fd, id);
    (void)close(fd);
    if (!same)
        return TD_REST_WRITTEN;
    if (rest != TD_REST_YES)
        return rest;
    return td_change_time_at_rest(id->ctime_ns, wall.seconds * second_ns + wall.nanoseconds, wait_ns);
}
