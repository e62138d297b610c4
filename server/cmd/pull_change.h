/* Compares an old list of files with a new one that a pull has read after it began, and keeps the files that are still
 * right. Lists are sorted by path, as listings are. */
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

/* Returns whether a server has sent another version of a file than the list names, or than it sent before, and the
 * digest of the file has not shown that it is the listed one. */
bool td_pull_change_is_seen(struct td_pull_files files);

/* Returns whether the lists name different files, or different contents. */
bool td_pull_change_is_any(struct td_pull_files before, struct td_pull_files after);

/* Keeps the complete files that have the digest of the new list: marks them as done in the new list. Counts the bytes
 * that were fetched of contents that the new list no longer has. Returns the total size of the files that it keeps. */
uint64_t td_pull_change_keep(struct td_pull_files before, struct td_pull_files after);

/* Removes, from below the root, files and parts of files that were fetched and that the new list does not name, with
 * directories that become empty. Files that cannot be removed stay. No other pull may be at work there. */
void td_pull_change_remove(const struct td_root *root, struct td_pull_files before, struct td_pull_files after);

#endif
