/* The step from an old list of files to a new one, which a pull has read again after it began. Lists of files are
 * sorted by path, as listings are. */
#ifndef TD_SERVER_CMD_PULL_CHANGE_H
#define TD_SERVER_CMD_PULL_CHANGE_H

#include "server/cmd/pull_report.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_pull_files {
    struct td_pull_file *files;
    size_t count;
};

/* Returns whether a server has had another version of a file than the list says, or than it had before, and no digest
 * tells that the file is the listed one all the same. */
bool td_pull_change_is_seen(struct td_pull_files files);

/* Returns whether the lists name different files, or different contents. */
bool td_pull_change_is_any(struct td_pull_files before, struct td_pull_files after);

/* Keeps the files that are complete and whose digest is the one of the new list: marks them as done there. Of contents
 * that the new list no longer has, counts the bytes that were fetched. Returns the bytes of the files that it keeps. */
uint64_t td_pull_change_keep(struct td_pull_files before, struct td_pull_files after);

/* Removes, from below the root, files and parts of files that were fetched and that the new list does not name, with
 * directories that become empty. Files that cannot be removed stay. No other pull may be at work there. */
void td_pull_change_remove(const struct td_root *root, struct td_pull_files before, struct td_pull_files after);

#endif
