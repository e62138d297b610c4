/* Walks over a directory on disk and everything below it. No function follows a link. */
#ifndef TD_STORAGE_DISK_TREE_H
#define TD_STORAGE_DISK_TREE_H

#include <fts.h>
#include <stdbool.h>
#include <stdint.h>

/* Calls `visit` for the directory and each item below it, by name: for a directory before its items (FTS_D), and once
 * more after them (FTS_DP). Stops at the first false, or at an item that it cannot look at, and returns false; errno
 * then says why, if `visit` or the system set it. */
bool td_disk_tree_visit(const char *path, bool (*visit)(void *context, const FTSENT *item), void *context);

/* Removes the directory with everything in it. Returns false with errno when something stays. */
bool td_disk_tree_remove(const char *path);

/* Returns how many bytes on disk the files take, also those that are only reserved. */
uint64_t td_disk_tree_bytes(const char *path);

#endif
