/* Finds files of another model, or of another version, in a directory that existed before a pull. */
#ifndef TD_SERVER_CMD_PULL_OTHERS_H
#define TD_SERVER_CMD_PULL_OTHERS_H

#include "server/cmd/pull_change.h"
#include "server/cmd/pull_directory.h"

#include <stddef.h>

/* Writes a warning to `text` if the directory of the pull, without its subdirectories, has checkpoint files that do not
 * belong to the pull, since a program may load both models; also if the pull replaces files of another size. `files`
 * are the files of the pull, and `what` names them in the warning. Writes an empty text if there is nothing to warn
 * about, and for a pull with a staging directory. */
void td_pull_others_describe(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                             struct td_pull_files files, const char *what, char *text, size_t capacity);

#endif
