/* The store's folder on disk (upstream_store.h says what is in it), and the places of kept models in the served
 * directory: opens and checks them, and moves models between them, as to publish one. Has no table and no lock: the
 * caller ensures that only one thread at a time moves a model. Follows no link. Thread-safe otherwise; everything may
 * wait for the disk. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_DISK_H
#define TD_CATALOG_UPSTREAM_KEPT_DISK_H

#include "catalog/upstream/kept_table.h"
#include "core/digest.h"
#include "storage/served_root.h"

#include <limits.h>
#include <stdbool.h>

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

/* Write the name of a model's record in the store, and the names of an incomplete model's items: `part` is "" for its
 * folder, "/files" for the folder of its files, "/model" for its note. */
void td_kept_record_name(const char *key, char out[TD_KEPT_NAME_BYTES]);
void td_kept_incoming_name(const char *key, const char *part, char out[TD_KEPT_NAME_BYTES]);

/* Opens the store's folder, creates missing folders, and takes the lock. Call td_kept_disk_close in any case. Errors as
 * td_upstream_store_open. */
bool td_kept_disk_open(struct td_kept_disk *disk, const char *root, struct td_error *err);
void td_kept_disk_close(struct td_kept_disk *disk);

/* Checks that the served directory, the store's folder and its lock are still those that were opened: if they were
 * removed, another server may now use their paths. Creates missing folders in the store. Errors:
 * TD_FAILED_PRECONDITION, with advice, when they were removed or replaced; as td_upstream_store_open when a folder
 * cannot be made. */
bool td_kept_disk_check(const struct td_kept_disk *disk, struct td_error *err);

/* Calls `visit` for each name in a folder of the store, until it returns false. Errors: TD_IO, and those of `visit`. */
bool td_kept_disk_each(const struct td_kept_disk *disk, const char *folder,
                       bool (*visit)(void *context, const char *name, struct td_error *err), void *context,
                       struct td_error *err);

/* Checks that a model can be moved to its place: nothing has its name, and its organisation's name is free or belongs
 * to a directory of the same file system. Errors: TD_CONFLICT, naming the path that is in the way. */
bool td_kept_disk_check_place(const struct td_kept_disk *disk, const char *id, struct td_error *err);

/* Returns the free bytes of the disk; UINT64_MAX when they are unknown. */
uint64_t td_kept_disk_free_bytes(const struct td_kept_disk *disk);

/* Checks that the disk has room for so many bytes. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_kept_disk_check_room(const struct td_kept_disk *disk, uint64_t bytes, struct td_error *err);

/* Returns how many bytes on disk the files of an incomplete model take, including reserved bytes. */
uint64_t td_kept_disk_incoming_bytes(const struct td_kept_disk *disk, const char *key);

/* Opens the folder of an incomplete model's files, creates it if it is missing, and writes the model's note. Sets
 * *folder, with a reference for the caller. Errors: TD_RESOURCE_EXHAUSTED, TD_IO; TD_FAILED_PRECONDITION, also when
 * another server has replaced the store's folder. */
bool td_kept_disk_open_incoming(const struct td_kept_disk *disk, const char *key, const struct td_kept_note *note,
                                struct td_root **folder, struct td_error *err);

/* Returns whether the model's place has the directory that was published there: the same inode on the same file system,
 * and the same modification time, so that no name in it was added or removed since and the inode is not a reused
 * one. */
bool td_kept_disk_is_in_place(const struct td_kept_disk *disk, const struct td_kept_note *note);

/* Removes an incomplete model. */
void td_kept_disk_remove_incoming(struct td_kept_disk *disk, const char *key);

/* Removes a published model and its record. A model that was changed, or cannot be moved, stays in its place or is
 * moved back to it; only its record is removed, and the log says so. Returns whether the model was removed. */
bool td_kept_disk_remove_published(struct td_kept_disk *disk, const struct td_kept_note *note, const char *key);

/* Moves a model back from check/KEY, where it remained when a process was killed. */
void td_kept_disk_put_back(const struct td_kept_disk *disk, const char *key);

/* Removes an item of the store with everything below it, and logs what cannot be removed. */
void td_kept_disk_remove(const struct td_kept_disk *disk, const char *name);

/* Selects the files that belong to a model, by their paths below its directory. */
struct td_kept_files {
    bool (*belongs)(void *context, const char *path);
    void *context;
};

/* Publishes a complete model: removes files that do not belong to it from its folder, writes its record, and moves the
 * folder of its files into place by one rename. Sets in *note the members of a published model. Removes the rest of the
 * incomplete model. After an error the model is incomplete as before. Waits for the disk, and up to 40 ms more. Errors:
 * TD_CONFLICT when the place is taken; TD_IO; TD_FAILED_PRECONDITION. */
bool td_kept_publish(const struct td_kept_disk *disk, const char *key, const struct td_kept_files *belonging,
                     struct td_kept_note *note, struct td_error *err);

#endif
