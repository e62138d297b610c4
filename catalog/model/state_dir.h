/* The state directory: a directory that nobody else can write to, for data that must not be forged.
 *
 * The directory that the operator names is used itself when it belongs to the user of this process and nobody else may
 * write to it. When its group or others may write to it (a Kubernetes emptyDir, /tmp, a volume with an fsGroup), a
 * sub-directory is used instead: tensord-UID, mode 0700. Somebody who may write to the directory can create that name
 * first, or move our sub-directory away and put something else there, but cannot make that belong to our user. So the
 * name is opened without following a link, the open descriptor is checked, and every file in the directory is reached
 * from that descriptor. */
#ifndef TD_CATALOG_MODEL_STATE_DIR_H
#define TD_CATALOG_MODEL_STATE_DIR_H

#include "core/error.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Opens the directory at `path`, or its sub-directory, and sets *fd, which the caller closes, for openat. With
 * `create`, creates what is missing; when a sub-directory is used, logs its name. Errors: TD_PERMISSION_DENIED (it
 * belongs to another user, or others can write to it), TD_FAILED_PRECONDITION (it is `root` or inside it; root NULL:
 * not checked), TD_IO. After an error nothing new is left in `root`. */
bool td_state_dir_open(const char *path, const char *root, bool create, int *fd, struct td_error *err);

/* Opens the folder `name` in the state directory, creates what is missing, and sets *fd, which the caller closes.
 * Errors as td_state_dir_open. */
bool td_state_folder_open(const char *path, const char *root, const char *name, int *fd, struct td_error *err);

/* Returns whether the file of this stat belongs to the user of this process and nobody else may write to it. */
bool td_state_is_ours_alone(const struct stat *st);

#endif
