/* Directories of a published repository that other programs may have changed: opened part by part and walked without
 * following links, and bounded. Each call may wait for the disk. Threads: one per call. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_FOLDER_H
#define TD_CATALOG_PUBLISH_PUBLISH_FOLDER_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

enum { TD_FOLDER_DEPTH = 32 /* levels of folders below the one that is walked */ };

/* Opens the directory that is named `name` in the directory `at`; follows no link. Returns the descriptor, or -1 with
 * errno. */
int td_folder_open(int at, const char *name);

/* Closes a descriptor, unless it is -1, and keeps errno. */
void td_folder_close(int fd);

/* Opens the directory that holds the item at `path` below `at`, and sets *name to the item's name, a part of `path`.
 * create: makes directories that are missing, durably. Follows no link. Returns the descriptor, which the caller
 * closes, or -1 with errno. */
int td_folder_open_parent(int at, const char *path, bool create, const char **name);

/* An item of a walk. */
struct td_folder_item {
    int at;           /* its directory, open during the call */
    const char *name; /* in that directory */
    const char *path; /* below the directory that is walked */
    size_t depth;     /* number of '/' in the path */
    mode_t kind;      /* S_IFDIR, S_IFREG, S_IFLNK ... */
    ino_t inode;
};

/* Calls `visit` for each item below the directory, in any order, for a directory before its items. Stops at the first
 * false. Uses no recursion. `fd` stays open. Errors: TD_FAILED_PRECONDITION for more than `most` items, for folders
 * deeper than TD_FOLDER_DEPTH and for paths of more than 4,095 bytes; TD_IO when a directory cannot be read;
 * TD_RESOURCE_EXHAUSTED for memory and descriptors; those of `visit`. */
bool td_folder_walk(int fd, size_t most,
                    bool (*visit)(void *context, const struct td_folder_item *item, struct td_error *err),
                    void *context, struct td_error *err);

/* Makes the directory durable. Returns false with errno. */
bool td_folder_sync(int at, const char *name);

#endif
