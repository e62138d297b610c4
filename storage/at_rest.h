/* Whether a file is finished: nobody on this machine has it open for writing, and whatever is done to it from now on
 * gives it another identity. A read lease (fcntl, F_SETLEASE) tells the first without waiting, the change time the
 * second. */
#ifndef TD_STORAGE_AT_REST_H
#define TD_STORAGE_AT_REST_H

#include "storage/served_root.h"

enum td_rest {
    TD_REST_YES,
    TD_REST_SOON,    /* when the clock has moved on: a write now could leave the same change time */
    TD_REST_WRITTEN, /* somebody has it open for writing, or maps it so, or it changed meanwhile */
    TD_REST_UNKNOWN, /* no lease to be had: another's file, or a file system that other machines write to as well */
};

/* Looks at the file at `path` below the root, which was found to be `id`. The lease is let go at once, so a writer that
 * comes in between waits for microseconds; the kernel announces it by lease_signal, which must be blocked in all
 * threads. lease_signal 0: takes none, always TD_REST_UNKNOWN. *wait_ns: of TD_REST_SOON, how long. Any thread. */
enum td_rest td_file_at_rest(const struct td_root *root, const char *path, const struct td_file_id *id,
                             int lease_signal, uint64_t *wait_ns);

#endif
