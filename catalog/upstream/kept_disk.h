/* The store's folder on disk (upstream_store.h says what is in it), and the places of kept models in the served
 * directory: opening, looking, and moving models between them. Knows no table and no lock: the caller sees to it that
 * one thread at a time moves a model. Follows no link. Thread-safe otherwise; everything may wait for the disk. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_DISK_H
#define TD_CATALOG_UPSTREAM_KEPT_DISK_H

#include "catalog/upstream/kept_table.h"
#include "core/digest.h"
#include "storage/served_root.h"

#include <limits.h>
#include <stdbool.h>

/* Writes a tag over path, kind, inode and modification time of the directory and of everything below it, and the size
 * of what is no directory. A move of the directory does not change the tag. Follows no links. May take long: it looks
 * at each file, but reads none. Returns false, with an empty tag, when something cannot be looked at, is deeper than
 * files of a listing can be, or is on another file system than the directory. */
bool td_published_tree_tag(const char *directory, char tag[TD_TAG_BYTES]);

struct td_kept_disk {
    char *root;      /* path of the served directory */
    int root_fd, fd; /* the served directory, the store's folder */
    int lock_fd;     /* of the file `lock` */
    _Atomic uint64_t trash_number;
};

enum {
    TD_KEPT_NAME_BYTES = NAME_MAX + 32,          /* of a name in the store, with a NUL */
    TD_KEPT_PATH_BYTES = TD_KEPT_NAME_BYTES + 32 /* of its path, with a NUL */
};

/* Write the names in the store of a model's record, and of what an incomplete model has: `part` is "" for its folder,
 * "/files" or "/model" for what is in it. */
void td_kept_record_name(const char *key, char out[TD_KEPT_NAME_BYTES]);
void td_kept_incoming_name(const char *key, const char *part, char out[TD_KEPT_NAME_BYTES]);

/* Opens the store's folder, makes what is missing, and takes the lock. Call td_kept_disk_close in any case. Errors as
 * td_upstream_store_open. */
bool td_kept_disk_open(struct td_kept_disk *disk, const char *root, struct td_error *err);
void td_kept_disk_close(struct td_kept_disk *disk);

/* Checks that the served directory, the store's folder and its lock are still those that were opened: whoever removes
 * them lets another server take the place. Makes folders in the store that are missing. Errors: TD_FAILED_PRECONDITION
 * when they are others, with advice; as td_upstream_store_open when a folder cannot be made. */
bool td_kept_disk_check(const struct td_kept_disk *disk, struct td_error *err);

/* Calls `look` for each name in a folder of the store, until it returns false. Errors: TD_IO, and those of `look`. */
bool td_kept_disk_each(const struct td_kept_disk *disk, const char *folder,
                       bool (*look)(void *context, const char *name, struct td_error *err), void *context,
                       struct td_error *err);

/* Writes the path of something in the store by the store's descriptor, which leads nowhere else when another server has
 * taken the store's place. Messages name it by the served directory. */
void td_kept_disk_path(const struct td_kept_disk *disk, const char *name, char out[TD_KEPT_PATH_BYTES]);

/* Opens the directory that a model has its place in, and sets *name to the model's name there, a part of the id.
 * Returns the descriptor, or -1 with errno. */
int td_kept_disk_open_parent(const struct td_kept_disk *disk, const char *id, const char **name);

/* Checks that a model can get its place: nothing has its name, and what has the name of its organisation is a directory
 * of the same file system. Errors: TD_CONFLICT, which names the path that is in the way. */
bool td_kept_disk_check_place(const struct td_kept_disk *disk, const char *id, struct td_error *err);

/* Returns how many bytes the disk has left; UINT64_MAX when that is not known. */
uint64_t td_kept_disk_free_bytes(const struct td_kept_disk *disk);

/* Checks that the disk has room for so many bytes. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_kept_disk_check_room(const struct td_kept_disk *disk, uint64_t bytes, struct td_error *err);

/* Returns how many bytes on disk the files of an incomplete model take, also those that are only reserved. */
uint64_t td_kept_disk_incoming_bytes(const struct td_kept_disk *disk, const char *key);

/* Opens the folder of an incomplete model's files, and writes its note; makes what is missing. Sets *folder, with a
 * reference for the caller. Errors: TD_RESOURCE_EXHAUSTED, TD_IO; TD_FAILED_PRECONDITION, also when another server has
 * taken the store's place. */
bool td_kept_disk_open_incoming(const struct td_kept_disk *disk, const char *key, const struct td_kept_note *note,
                                struct td_root **folder, struct td_error *err);

/* Returns whether the model's place has the directory that was published there: the same inode of the same file system,
 * whose number may have been used again, and no name in it added or removed since. */
bool td_kept_disk_is_in_place(const struct td_kept_disk *disk, const struct td_kept_note *note);

/* Removes an incomplete model. */
void td_kept_disk_remove_incoming(struct td_kept_disk *disk, const char *key);

/* Removes a published model and its record. One that was touched, or that cannot be moved, stays in its place or goes
 * back to it, and only its record goes; the log says so. Returns whether the model has left. */
bool td_kept_disk_remove_published(struct td_kept_disk *disk, const struct td_kept_note *note, const char *key);

/* Puts a model back from check/KEY, where a kill has left it. */
void td_kept_disk_put_back(const struct td_kept_disk *disk, const char *key);

/* Removes something in the store with all that is in it, and logs what cannot be removed. */
void td_kept_disk_remove(const struct td_kept_disk *disk, const char *name);

#endif
