/* A folder of this server in the served directory, such as DIR/.tensord-upstream: what is not complete yet waits there,
 * and what is being removed, so that models appear and vanish by one rename. One process at a time has the folder. Its
 * name begins with a dot, so no scan finds it. It has these items, beside those of its owner:
 *
 *   lock    held by the process that has the folder
 *   trash/  items that are being removed
 *
 * Follows no link. Thread-safe, except open and close; everything may wait for the disk. */
#ifndef TD_STORAGE_OWN_FOLDER_H
#define TD_STORAGE_OWN_FOLDER_H

#include "core/error.h"
#include "storage/served_root.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct td_own_folder_rules {
    const char *name;            /* of the folder: ".tensord-upstream" */
    const char *option;          /* of the server, or the command, which needs the folder: "--upstream" */
    const char *deed;            /* what it does with the directory, for messages: "serves" */
    const char *when_taken;      /* what the operator can do when another process has the folder */
    const char *const *children; /* names of the folders in it besides trash, and a NULL */
};

struct td_own_folder {
    const struct td_own_folder_rules *rules; /* static */
    char *root;                              /* path of the served directory */
    int root_fd, fd;                         /* the served directory, the folder */
    int lock_fd;                             /* of the file `lock` */
    _Atomic uint64_t trash_number;
};

enum {
    TD_OWN_NAME_BYTES = NAME_MAX + 32,         /* of a name in the folder, with a NUL */
    TD_OWN_PATH_BYTES = TD_OWN_NAME_BYTES + 32 /* of its path, with a NUL */
};

/* Opens the folder, creates what is missing of it, and takes the lock. Call td_own_folder_close in any case. Errors:
 * TD_FAILED_PRECONDITION when another process holds the lock, or the file system cannot rename without replacing;
 * TD_PERMISSION_DENIED or TD_IO when the directory cannot be written, with advice; those of td_root_create. */
bool td_own_folder_open(struct td_own_folder *folder, const struct td_own_folder_rules *rules, const char *root,
                        struct td_error *err);
void td_own_folder_close(struct td_own_folder *folder);

/* Checks that the served directory, the folder and its lock are still those that were opened: if they were removed,
 * another server may now use their paths. Creates missing folders in it. Errors: TD_FAILED_PRECONDITION, with advice,
 * when they were removed or replaced; as td_own_folder_open when a folder cannot be made. */
bool td_own_folder_check(const struct td_own_folder *folder, struct td_error *err);

/* Makes a folder at a path in it. Returns false, with errno, when it is missing still. */
bool td_own_folder_make(const struct td_own_folder *folder, const char *name);

/* Calls `visit` for each name in a folder of it, until it returns false. Errors: as td_disk_list, and those of `visit`.
 */
bool td_own_folder_each(const struct td_own_folder *folder, const char *name,
                        bool (*visit)(void *context, const char *name, struct td_error *err), void *context,
                        struct td_error *err);

/* Writes the path of an item in it, based on the folder's descriptor, so that it stays right when another server has
 * replaced the folder. Messages show the path below the served directory instead. */
void td_own_folder_path(const struct td_own_folder *folder, const char *name, char out[TD_OWN_PATH_BYTES]);

/* Opens a folder in it by a path that messages can show, and sets *out, with a reference for the caller. Errors:
 * TD_FAILED_PRECONDITION, also when another server has replaced the folder; those of td_root_create. */
bool td_own_folder_open_root(const struct td_own_folder *folder, const char *name, struct td_root **out,
                             struct td_error *err);

/* Returns the free bytes of the disk; UINT64_MAX when they are unknown. */
uint64_t td_own_folder_free_bytes(const struct td_own_folder *folder);

/* Returns the size of the disk in bytes; 0 when it is unknown. */
uint64_t td_own_folder_disk_bytes(const struct td_own_folder *folder);

/* Checks that the disk has room for so many bytes. Errors: TD_RESOURCE_EXHAUSTED with sys ENOSPC. */
bool td_own_folder_check_room(const struct td_own_folder *folder, uint64_t bytes, struct td_error *err);

/* Moves an item at a path below `at` (the folder's or the served directory's descriptor) into the trash, and writes its
 * new name. Returns false, with errno, when it cannot be moved. */
bool td_own_folder_trash(struct td_own_folder *folder, int at, const char *path, char trash[TD_OWN_NAME_BYTES]);

/* Removes an item with everything below it, and logs what cannot be removed. Takes long for many files. */
void td_own_folder_remove(const struct td_own_folder *folder, const char *name);

/* Removes everything in a folder of it, and logs what cannot be removed. Errors: as td_own_folder_each. */
bool td_own_folder_empty(const struct td_own_folder *folder, const char *name, struct td_error *err);

#endif
