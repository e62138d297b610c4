/* Lists a directory on disk, and walks over one and everything below it. No function follows a link. */
#ifndef TD_STORAGE_DISK_TREE_H
#define TD_STORAGE_DISK_TREE_H

#include "core/error.h"

#include <fts.h>
#include <stdbool.h>
#include <stdint.h>

/* Calls `visit` for each name in the directory `fd`, in any order, but for "." and "..". Closes fd in any case. fd -1:
 * the directory could not be opened, for the reason in errno. `at` is the directory during the call. Stops at the first
 * false. `shown` names the directory in messages. Errors: TD_RESOURCE_EXHAUSTED for memory and descriptors, TD_IO;
 * those of `visit`. */
bool td_disk_list(int fd, const char *shown,
                  bool (*visit)(void *context, int at, const char *name, struct td_error *err), void *context,
                  struct td_error *err);

/* Calls `visit` for the directory and each item below it, by name: for a directory before its items (FTS_D), and once
 * more after them (FTS_DP). Stops at the first false, or at an item that it cannot look at, and returns false; errno
 * then says why, if `visit` or the system set it. */
bool td_disk_tree_visit(const char *path, bool (*visit)(void *context, const FTSENT *item), void *context);

/* Removes the directory with everything in it. Returns false with errno when something stays. */
bool td_disk_tree_remove(const char *path);

/* Returns how many bytes on disk the files take, also those that are only reserved. */
uint64_t td_disk_tree_bytes(const char *path);

#endif
