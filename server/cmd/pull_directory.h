/* Where the files of a pull go, so that a directory that did not exist appears complete, by one rename: a server that
 * serves the directory above never sees half a model. */
#ifndef TD_SERVER_CMD_PULL_DIRECTORY_H
#define TD_SERVER_CMD_PULL_DIRECTORY_H

#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <sys/types.h>

/* All are owned. */
struct td_pull_directory {
    char *final;          /* the directory that was asked for, without slashes at its end */
    char *staging;        /* ".NAME.tensord-pull" beside it, where the files are until all are there; NULL: in final */
    struct td_root *root; /* the one of the two that files go to */
    int lock;             /* the staging directory, locked while files are put there; -1: none */
    bool has_noted;       /* this pull has written there what is pulled */
    mode_t mode;          /* of the final directory; the staging one has less */
};

/* Returns whether a file belongs to what is pulled. `path` is below the directory. */
struct td_pull_belonging {
    bool (*belongs)(void *context, const char *path);
    void *context;
};

/* Opens the directory for files, and makes what is missing: a directory that is there is used as it is; for one that is
 * not there the staging directory is used, which an earlier pull may have left. `content` says what is pulled, such as
 * "org/m at main", and is noted there, so that files of two contents never come together. From what an earlier pull has
 * left, files and parts of files that do not belong to this one are removed, unless another pull is at work there: it
 * may have listed other files, and removed them after all if it began alone. Network file systems and FUSE do not tell
 * of other machines, so nothing is removed there. Zeroes *out first; the caller closes it in any case.
 * Errors: TD_FAILED_PRECONDITION when an unfinished pull of another content is there, or files without such a note;
 * TD_PERMISSION_DENIED when the staging directory is another user's, in a directory where everybody may make one;
 * TD_IO, with the directory, when it cannot be made, written into or tidied; as td_root_create; TD_RESOURCE_EXHAUSTED.
 */
bool td_pull_directory_open(const char *path, const char *content, const struct td_pull_belonging *belonging,
                            struct td_pull_directory *out, struct td_error *err);

/* Gives the staging directory its final name; does nothing without one, or when another pull of the same directory has
 * done so. Errors, TD_IO: the name was taken meanwhile. */
bool td_pull_directory_publish(const struct td_pull_directory *directory, struct td_error *err);

/* Returns whether files may be removed from the directory: it is the staging directory, no other pull is at work there,
 * and none has published it. Then no other pull enters it until td_pull_directory_share, which the caller calls. */
bool td_pull_directory_claim(const struct td_pull_directory *directory);
void td_pull_directory_share(const struct td_pull_directory *directory);

/* Returns the directory where the files are before td_pull_directory_publish, for messages. */
const char *td_pull_directory_kept(const struct td_pull_directory *directory);

void td_pull_directory_close(struct td_pull_directory *directory);

#endif
