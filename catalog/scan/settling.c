/* Plan: is_settled() compares times and earlier observations.
 *
 * What is hard: when a file can be trusted. Two versions can share an mtime, so a file counts as settled only when its
 * mtime, or a change seen half-way, is settle_ns old; a lease, or a rename that the watch reported, can prove earlier
 * that no process writes to it. */
#include "catalog/scan/settling.h"

#include "core/clock.h"
#include "storage/file_system.h"

#include <string.h>

bool td_settling_is_same_place(const struct td_entry *shown, const struct td_found *found)
{
    return shown != NULL && strcmp(shown->file->source.path, found->physical) == 0;
}

bool td_settling_is_same_file(const struct td_entry *shown, const struct td_found *found)
{
    return td_settling_is_same_place(shown, found) && td_file_id_equal(&shown->file->source.id, &found->id) &&
           !shown->file->transient;
}

struct td_young td_settling_file(const struct td_settling *settling, const struct td_found *found,
                                 const struct td_entry *shown)
{
    return (struct td_young){.is_file = true,
                             .physical = found->physical,
                             .id = found->id,
                             .has_arrived = found->has_arrived,
                             .before = td_unsettled_find(settling->before, found->path),
                             .shown = td_settling_is_same_place(shown, found) ? &shown->file->source.id : NULL,
                             .settle_ns = settling->settle_ns};
}

/* Returns whether a change may have been seen half-way: a truncation sets the size before the times, so the size
 * differs under the same mtime. The file need not be the same one: a copy with the same mtime may have come between two
 * scans, and be truncated in its turn. */
static bool is_half_changed(const struct td_file_id *before, const struct td_file_id *now)
{
    return before != NULL && before->mtime_ns == now->mtime_ns && before->size_bytes != now->size_bytes;
}

/* Returns whether what came by a rename, and so is complete, can be published: every later change will give it another
 * identity. If that needs some time, seen->due_ns becomes the end of that time. */
static bool is_arrived(const struct td_young *young, struct td_seen *seen)
{
    struct td_wall wall = td_wall_now();
    uint64_t wait_ns = 0;
    if (!seen->has_arrived)
        return false;
    enum td_rest rest =
        td_change_time_at_rest(young->id.ctime_ns, wall.seconds * TD_NS_PER_S + wall.nanoseconds, &wait_ns);
    uint64_t due_ns = td_clock_ns() + wait_ns;
    if (rest == TD_REST_SOON && due_ns < seen->due_ns)
        seen->due_ns = due_ns;
    return rest == TD_REST_YES;
}

/* Returns whether a process has the file open for writing, as far as a lease shows, or the file has changed again. */
static bool is_written(const struct td_settling *settling, const struct td_young *young)
{
    uint64_t wait_ns;
    return td_file_at_rest(settling->root, young->physical, &young->id, settling->lease_signal, &wait_ns) ==
           TD_REST_WRITTEN;
}

/* Returns the time since the mtime; -1 for an mtime in the future. Returns 0 if the mtime does not show when the last
 * change was. */
static int64_t age_of(const struct td_settling *settling, const struct td_young *young, const struct td_seen *seen)
{
    int64_t age_ns;
    if (seen->half_changed || young->must_be_seen)
        return 0;
    if (__builtin_sub_overflow(settling->wall_now_ns, young->id.mtime_ns, &age_ns))
        return -1; /* past the year 2262, which 64 bits cannot hold: treated as the future */
    return age_ns;
}

bool td_settling_is_settled(const struct td_settling *settling, const struct td_young *young, struct td_seen *seen)
{
    const struct td_unsettled *before = young->before;
    const struct td_file_id *was = before == NULL ? NULL : &before->id;
    bool same = was != NULL && td_file_id_equal(was, &young->id);
    *seen = (struct td_seen){.first_ns = same ? before->first_seen_ns : settling->now_ns,
                             .is_pending = true,
                             .has_arrived = young->has_arrived || (same && before->has_arrived)};
    seen->half_changed = young->is_file && ((same && before->half_changed) || is_half_changed(was, &young->id) ||
                                            is_half_changed(young->shown, &young->id));
    int64_t age_ns = age_of(settling, young, seen);
    uint64_t seen_ns = settling->now_ns - seen->first_ns;
    if (young->settle_ns == 0 || (age_ns >= 0 && (uint64_t)age_ns >= young->settle_ns))
        return true;
    if (seen->first_ns != settling->now_ns && seen_ns >= young->settle_ns) {
        if (!seen->half_changed || !is_written(settling, young))
            return true;
        seen_ns = 0; /* waits once more */
    }
    uint64_t quiet_ns = age_ns > 0 && (uint64_t)age_ns > seen_ns ? (uint64_t)age_ns : seen_ns;
    seen->due_ns = settling->now_ns + (young->settle_ns - quiet_ns);
    return is_arrived(young, seen);
}

bool td_settling_is_finished(const struct td_settling *settling, const struct td_young *young, struct td_seen *seen)
{
    uint64_t wait_ns = 0;
    if (!settling->publish_complete)
        return false;
    enum td_rest rest = td_file_at_rest(settling->root, young->physical, &young->id, settling->lease_signal, &wait_ns);
    seen->is_pending = rest != TD_REST_WRITTEN;
    seen->is_racy = rest == TD_REST_SOON;
    if (seen->is_racy && settling->now_ns + wait_ns < seen->due_ns)
        seen->due_ns = settling->now_ns + wait_ns;
    return rest == TD_REST_YES;
}
