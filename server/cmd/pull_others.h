/* Files of another model, or of another version, in a directory that was there before a pull. */
#ifndef TD_SERVER_CMD_PULL_OTHERS_H
#define TD_SERVER_CMD_PULL_OTHERS_H

#include "server/cmd/pull_change.h"
#include "server/cmd/pull_directory.h"

#include <stddef.h>

/* Looks at the directory of a pull whose files are listed, without its subdirectories, and at the places of these
 * files. Writes a sentence to `text` when checkpoint files that do not belong to the pull stay beside its own, since a
 * program that reads the directory may load both, or when files of other sizes are replaced. `what` is what is pulled,
 * for the sentence. Else writes an empty text; so it does for a staging directory, which holds nothing else. */
void td_pull_others_describe(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                             struct td_pull_files files, const char *what, char *text, size_t capacity);

#endif
