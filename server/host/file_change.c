#include "server/host/file_change.h"

#include "core/clock.h"

#include <string.h>
#include <sys/stat.h>

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

void td_file_change_forget(struct td_file_change *change)
{
    memset(&change->known, 0xFF, sizeof change->known); /* no file has this identity */
}

bool td_file_change_look(struct td_file_change *change)
{
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
