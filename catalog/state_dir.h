/* A directory that nobody else can write to, for what must not be forged.
 *
 * The directory that an operator names is used itself when it belongs to us and nobody else may write to it. When group
 * or others may write to it (a Kubernetes emptyDir, /tmp, a volume with an fsGroup), a sub-directory of our own is used
 * instead: tensord-UID, mode 0700. Who may write to the directory can take that name first, or move our sub-directory
 * away and put something else there; nobody can make what he put there belong to us. So what bears the name is opened
 * without following a link, judged by its open descriptor, and everything in it is reached from that descriptor. */
#ifndef TD_CATALOG_STATE_DIR_H
#define TD_CATALOG_STATE_DIR_H

#include "core/error.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Opens the directory at `path`, or our sub-directory of it; *fd is for openat. With `create` what is missing is made,
 * and a line in the log names the sub-directory. Errors: TD_PERMISSION_DENIED (another's), TD_FAILED_PRECONDITION (the
 * directory is root or lies in it; root NULL: not looked at), TD_IO. After an error nothing new is left in root. */
bool td_state_dir_open(const char *path, const char *root, bool create, int *fd, struct td_error *err);

/* Whether what was looked at belongs to us and nobody else may write to it. */
bool td_state_is_ours_alone(const struct stat *st);

#endif
