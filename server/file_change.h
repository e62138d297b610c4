/* Notices that files have changed, such as the tokens file: by identity and times, of which one changes when a file is
 * written to, replaced by a rename, or reached by another link (as Kubernetes replaces secrets). Threads: one at a
 * time. */
#ifndef TD_SERVER_FILE_CHANGE_H
#define TD_SERVER_FILE_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_FILE_CHANGE_MAX = 4 }; /* files that are looked at together */

/* What a look sees of a file; all zero: there is none. */
struct td_file_state {
    uint64_t device, inode, size_bytes;
    int64_t modified_ns, changed_ns;
};

struct td_file_change {
    const char *paths[TD_FILE_CHANGE_MAX]; /* borrowed */
    struct td_file_state states[TD_FILE_CHANGE_MAX];
    size_t count;
    uint64_t looked_ns;
};

/* Takes the first look. `paths` has at most TD_FILE_CHANGE_MAX paths, which must outlive *change. To miss no change,
 * call this before the files are read. */
void td_file_change_init(struct td_file_change *change, const char *const *paths, size_t count);

/* Looks at the files, and returns whether one of them is not as at the last look. Without `always` looks only if the
 * last look was 1 s ago. Read the files afterwards. */
bool td_file_change_look(struct td_file_change *change, bool always);

#endif
