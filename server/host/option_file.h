/* Small files that an option names, such as a configuration, the tokens, or a certificate and its key: reads one whole,
 * and detects changes, by identities and times. At least one of these changes when a file is written to, replaced by a
 * rename, or reached by another link (as Kubernetes replaces secrets). A change is reported once two polls have seen
 * the same state, so that files that belong together are not read while one of them is being written. Threads: one at a
 * time. */
#ifndef TD_SERVER_HOST_OPTION_FILE_H
#define TD_SERVER_HOST_OPTION_FILE_H

#include "core/buffer.h"
#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Appends the content of the regular file at `path` to `out`, at most `limit` bytes. `what` names the kind of file in
 * messages: "configuration". *st describes the file; NULL: not wanted. Does not wait for the writer of a FIFO. Errors:
 * TD_IO, TD_FAILED_PRECONDITION for anything but a regular file and for a longer one, TD_RESOURCE_EXHAUSTED. */
bool td_whole_file_read(const char *path, const char *what, size_t limit, struct td_buffer *out, struct stat *st,
                        struct td_error *err);

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
    bool is_waiting; /* the files could not be read, which may pass; reading is retried until it succeeds */
};

/* Records the current state as known. To miss no change, call this before the files are read. */
void td_file_change_note(struct td_file_change *change);

/* Polls the files, if the last poll was at least TD_FILE_CHANGE_LOOK_NS ago. Returns true, and records their state as
 * known, when it differs from the known state and is the same as at the last poll: the caller then reads the files.
 * always: records their state and returns true in any case. */
bool td_file_change_look(struct td_file_change *change, bool always);

/* Ends each reading of the files after the first: *err says whether it has failed. After a fault that may pass, such as
 * a lack of descriptors or memory, the next poll reports the change once more. Returns whether a fault is to be logged:
 * one that may pass is logged once. */
bool td_file_change_end(struct td_file_change *change, const struct td_error *err);

#endif
