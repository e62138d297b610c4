/* Checks the paths that are given to commands. */
#ifndef TD_SERVER_CMD_LOCAL_PATH_H
#define TD_SERVER_CMD_LOCAL_PATH_H

#include "core/error.h"

#include <stdbool.h>

/* Refuses a URL, and a path that does not exist. `command` is the command's name, for the message. Errors:
 * TD_NOT_FOUND, with advice. */
bool td_local_path_check(const char *path, const char *command, struct td_error *err);

#endif
