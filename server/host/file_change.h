/* Notices that files have changed, such as the tokens file or a certificate and its key: by identity and times, of
 * which one changes when a file is written to, replaced by a rename, or reached by another link (as Kubernetes replaces
 * secrets). A change counts once the files are the same in two looks, so that files that belong together are not taken
 * while one of them is being written. Threads: one at a time. */
#ifndef TD_SERVER_HOST_FILE_CHANGE_H
#define TD_SERVER_HOST_FILE_CHANGE_H

#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_FILE_CHANGE_MAX = 3 }; /* files that are looked at together */

/* Least time between two looks. A change is told of at the second look after it. */
#define TD_FILE_CHANGE_LOOK_NS UINT64_C(900000000)

/* What a look sees; all zero for a file that is missing. */
struct td_file_states {
    struct td_file_id ids[TD_FILE_CHANGE_MAX];
};

struct td_file_change {
    const char *paths[TD_FILE_CHANGE_MAX]; /* borrowed; NULL or empty: none. Set once; the rest is zero at first */
    struct td_file_states known;           /* when the files were last said to be read */
    struct td_file_states last;            /* at the last look */
    uint64_t looked_ns;
};

/* Takes the files as they are for known. To miss no change, call this before the files are read. */
void td_file_change_note(struct td_file_change *change);

/* Looks at the files, if the last look was TD_FILE_CHANGE_LOOK_NS ago. Returns true, and takes the files for known,
 * when one of them has changed and all are as at the last look: the caller then reads them. */
bool td_file_change_look(struct td_file_change *change);

/* Makes the next look tell of a change once more, because the files could not be read. */
void td_file_change_forget(struct td_file_change *change);

#endif
