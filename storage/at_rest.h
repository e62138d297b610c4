/* Checks whether a file is at rest: no process on this machine has it open for writing, and every later change gives
 * the file another identity. A read lease (fcntl, F_SETLEASE) shows the former without waiting, the change time shows
 * the latter. */
#ifndef TD_STORAGE_AT_REST_H
#define TD_STORAGE_AT_REST_H

#include "storage/served_root.h"

enum td_rest {
    TD_REST_YES,
    TD_REST_SOON,    /* after *wait_ns: a write before then could leave the same change time */
    TD_REST_WRITTEN, /* somebody has the file open or mapped for writing, or it changed or is gone */
    TD_REST_UNKNOWN, /* no lease: another user's file, a file system that other machines write to, or no lease_signal;
                        or a change time without fractions of a second or in the future; or the file does not open */
};

/* Returns TD_REST_YES when every change from `wall_ns` on (the wall clock, ns since 1970) gives a file of this change
 * time another one. Sets *wait_ns for TD_REST_SOON only. A change time without fractions of a second may come from a
 * file system that stores none, and one in the future from a clock that was set back: both are TD_REST_UNKNOWN. */
enum td_rest td_change_time_at_rest(int64_t ctime_ns, int64_t wall_ns, uint64_t *wait_ns);

/* Returns whether the file at `path` below the root, last seen as `id`, is at rest. Sets *wait_ns for TD_REST_SOON
 * only. Takes a lease and gives it back at once, so a writer waits for microseconds at most; the kernel then sends
 * lease_signal, which must be blocked in all threads. lease_signal 0: takes no lease and returns TD_REST_UNKNOWN.
 * Thread-safe. */
enum td_rest td_file_at_rest(const struct td_root *root, const char *path, const struct td_file_id *id,
                             int lease_signal, uint64_t *wait_ns);

#endif
