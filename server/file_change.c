#include "server/file_change.h"

#include "core/clock.h"

#include <string.h>
#include <sys/stat.h>

#define SECOND_NS UINT64_C(1000000000)

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * (int64_t)SECOND_NS + time->tv_nsec;
}

static struct td_file_state state_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (struct td_file_state){0};
    return (struct td_file_state){.device = (uint64_t)st.st_dev,
                                  .inode = (uint64_t)st.st_ino,
                                  .size_bytes = (uint64_t)st.st_size,
                                  .modified_ns = nanoseconds(&st.st_mtim),
                                  .changed_ns = nanoseconds(&st.st_ctim)};
}

static bool is_same(const struct td_file_state *a, const struct td_file_state *b)
{
    return a->device == b->device && a->inode == b->inode && a->size_bytes == b->size_bytes &&
           a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

void td_file_change_init(struct td_file_change *change, const char *const *paths, size_t count)
{
    memset(change, 0, sizeof *change);
    change->count = count < TD_FILE_CHANGE_MAX ? count : TD_FILE_CHANGE_MAX;
    for (size_t i = 0; i < change->count; i++) {
        change->paths[i] = paths[i];
        change->states[i] = state_of(paths[i]);
    }
    change->looked_ns = td_clock_ns();
}

bool td_file_change_look(struct td_file_change *change, bool always)
{
    bool is_changed = false;
    uint64_t now_ns = td_clock_ns();
    if (!always && now_ns - change->looked_ns < SECOND_NS)
        return false;
    change->looked_ns = now_ns;
    for (size_t i = 0; i < change->count; i++) {
        struct td_file_state state = state_of(change->paths[i]);
        is_changed = is_changed || !is_same(&state, &change->states[i]);
        change->states[i] = state;
    }
    return is_changed;
}
