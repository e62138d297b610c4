/* Detects changes of files, such as the tokens file or a certificate and its key, by their identities and times. At
 * least one of these changes when a file is written to, replaced by a rename, or reached by another link (as Kubernetes
 * replaces secrets). A change is reported once two polls have seen the same state, so that files that belong together
 * are not read while one of them is being written. Threads: one at a time. */
#ifndef TD_SERVER_HOST_FILE_CHANGE_H
#define TD_SERVER_HOST_FILE_CHANGE_H

#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_FILE_CHANGE_MAX = 3 }; /* files that are checked together */

/* Least time between two polls. The second poll after a change reports it. */
#define TD_FILE_CHANGE_LOOK_NS UINT64_C(900000000)

/* The state of the files at one poll; all zero for a missing file. */
struct td_file_states {
    struct td_file_id ids[TD_FILE_CHANGE_MAX];
};

struct td_file_change {
    const char *paths[TD_FILE_CHANGE_MAX]; /* borrowed; NULL or empty: none. Set once; the rest is zero at first */
    struct td_file_states known;           /* when a change was last reported, or noted */
    struct td_file_states last;            /* at the last poll */
    uint64_t looked_ns;
};

/* Records the current state as known. To miss no change, call this before the files are read. */
void td_file_change_note(struct td_file_change *change);

/* Polls the files, if the last poll was at least TD_FILE_CHANGE_LOOK_NS ago. Returns true, and records their state as
 * known, when it differs from the known state and is the same as at the last poll: the caller then reads the files. */
bool td_file_change_look(struct td_file_change *change);

/* Makes the next poll report the change once more, because the files could not be read. */
void td_file_change_forget(struct td_file_change *change);

#endif
