/* The directory that the files of a pull go to. A new directory appears complete, by one rename, so that a server that
 * serves the directory above never sees half a model. */
#ifndef TD_SERVER_CMD_PULL_DIRECTORY_H
#define TD_SERVER_CMD_PULL_DIRECTORY_H

#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* All are owned. */
struct td_pull_directory {
    char *final;   /* the directory that was asked for, without slashes at its end */
    char *staging; /* ".NAME.tensord-pull" beside it, which has the files until all are complete; NULL: they go to final
                    */
    struct td_root *root; /* staging or final, where files go */
    int lock;             /* the staging directory, locked while files are put there; -1: none */
    bool has_noted;       /* this pull has written the note */
    mode_t mode;          /* of the final directory; the staging one has fewer bits */
};

/* Returns whether a file belongs to what is pulled. `path` is below the directory. */
struct td_pull_belonging {
    bool (*belongs)(void *context, const char *path);
    void *context;
};

/* Opens the directory for files, and makes missing directories. An existing directory is used as it is. For a new one
 * the staging directory is used, which may remain from an earlier pull. `content` says what is pulled, such as "org/m
 * at main", and is written to a note there, so that the directory never has files of two contents. Removes files and
 * partial files of an earlier pull that do not belong to this one, unless another pull is running there: it may have
 * listed other files. (If that pull began alone, it has removed them itself.) Network file systems and FUSE do not show
 * the locks of other machines, so nothing is removed there. Zeroes *out first; the caller closes it in any case.
 * Errors: TD_FAILED_PRECONDITION when the staging directory has an unfinished pull of another content, or files but no
 * note; TD_PERMISSION_DENIED when the staging directory is another user's, in a directory where everybody may make one;
 * TD_IO, with the directory, when it cannot be made, written into or tidied; as td_root_create;
 * TD_RESOURCE_EXHAUSTED. */
bool td_pull_directory_open(const char *path, const char *content, const struct td_pull_belonging *belonging,
                            struct td_pull_directory *out, struct td_error *err);

/* Opens a staging directory ".NAME" + end beside `path`, for a command that writes all files of a new directory in one
 * run. Removes the files of a run that was killed. Zeroes *out first; the caller closes it in any case. Errors:
 * TD_CONFLICT when `path` is there, or another process writes into the staging directory; TD_FAILED_PRECONDITION when
 * the file system does not show whether one does; TD_PERMISSION_DENIED, TD_IO, and those of td_root_create as above. */
bool td_pull_directory_open_alone(const char *path, const char *end, struct td_pull_directory *out,
                                  struct td_error *err);

/* Removes the staging directory with all that is in it, unless it was published. For td_pull_directory_open_alone. */
void td_pull_directory_discard(const struct td_pull_directory *directory);

/* Renames the staging directory to its final name. Does nothing without a staging directory, or when another pull has
 * renamed it already. Errors: TD_IO when the name has been taken since. */
bool td_pull_directory_publish(const struct td_pull_directory *directory, struct td_error *err);

/* Returns whether files may be removed from the directory: it is the staging directory, no other pull is running there,
 * and none has published it. If so, no other pull enters it until the caller calls td_pull_directory_share. */
bool td_pull_directory_claim(const struct td_pull_directory *directory);
void td_pull_directory_share(const struct td_pull_directory *directory);

/* Returns the directory where the files are before td_pull_directory_publish, for messages. */
const char *td_pull_directory_kept(const struct td_pull_directory *directory);

void td_pull_directory_close(struct td_pull_directory *directory);

/* Makes the directory and those above it that are missing. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_directories_make(const char *path, struct td_error *err);

#endif
