/* Mistakes in the path of a file or directory that is given to a command. */
#ifndef TD_SERVER_CMD_LOCAL_PATH_H
#define TD_SERVER_CMD_LOCAL_PATH_H

#include "core/error.h"

#include <stdbool.h>

/* Refuses a URL, and what does not exist. `command` is the command's name. Errors: TD_NOT_FOUND, with what to do. */
bool td_local_path_check(const char *path, const char *command, struct td_error *err);

#endif
