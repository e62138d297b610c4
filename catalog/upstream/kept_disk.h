/* The store's folder on disk (upstream_store.h says what is in it), and the places of kept models in the served
 * directory: moves models between them, as to publish one. storage/own_folder.h opens it. Has no table and no lock: the
 * caller ensures that only one thread at a time moves a model. Follows no link. Thread-safe otherwise; everything may
 * wait for the disk. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_DISK_H
#define TD_CATALOG_UPSTREAM_KEPT_DISK_H

#include "catalog/upstream/kept_table.h"
#include "core/digest.h"
#include "storage/own_folder.h"

#include <stdbool.h>

/* The rules of the store's folder. */
extern const struct td_own_folder_rules td_kept_folder;

/* Write the name of a model's record in the store, and the names of an incomplete model's items: `part` is "" for its
 * folder, "/files" for the folder of its files, "/model" for its note. */
void td_kept_record_name(const char *key, char out[TD_OWN_NAME_BYTES]);
void td_kept_incoming_name(const char *key, const char *part, char out[TD_OWN_NAME_BYTES]);

/* Checks that a model can be moved to its place: nothing has its name, and its organisation's name is free or belongs
 * to a directory of the same file system. Errors: TD_CONFLICT, naming the path that is in the way. */
bool td_kept_disk_check_place(const struct td_own_folder *disk, const char *id, struct td_error *err);

/* Returns how many bytes on disk the files of an incomplete model take, including reserved bytes. */
uint64_t td_kept_disk_incoming_bytes(const struct td_own_folder *disk, const char *key);

/* Opens the folder of an incomplete model's files, creates it if it is missing, and writes the model's note. Sets
 * *folder, with a reference for the caller. Errors: TD_RESOURCE_EXHAUSTED, TD_IO; TD_FAILED_PRECONDITION, also when
 * another server has replaced the store's folder. */
bool td_kept_disk_open_incoming(const struct td_own_folder *disk, const char *key, const struct td_kept_note *note,
                                struct td_root **folder, struct td_error *err);

/* Returns whether the model's place has the directory that was published there: the same inode on the same file system,
 * and the same modification time, so that no name in it was added or removed since and the inode is not a reused
 * one. */
bool td_kept_disk_is_in_place(const struct td_own_folder *disk, const struct td_kept_note *note);

/* Removes an incomplete model. */
void td_kept_disk_remove_incoming(struct td_own_folder *disk, const char *key);

/* Removes a published model and its record. A model that was changed, or cannot be moved, stays in its place or is
 * moved back to it; only its record is removed, and the log says so. Returns whether the model was removed. */
bool td_kept_disk_remove_published(struct td_own_folder *disk, const struct td_kept_note *note, const char *key);

/* Moves a model back from check/KEY, where it remained when a process was killed. */
void td_kept_disk_put_back(const struct td_own_folder *disk, const char *key);

/* Selects the files that belong to a model, by their paths below its directory. */
struct td_kept_files {
    bool (*belongs)(void *context, const char *path);
    void *context;
};

/* Publishes a complete model: removes files that do not belong to it from its folder, writes its record, and moves the
 * folder of its files into place by one rename. Sets in *note the members of a published model. Removes the rest of the
 * incomplete model. After an error the model is incomplete as before. Waits for the disk, and up to 40 ms more. Errors:
 * TD_CONFLICT when the place is taken; TD_IO; TD_FAILED_PRECONDITION. */
bool td_kept_publish(const struct td_own_folder *disk, const char *key, const struct td_kept_files *belonging,
                     struct td_kept_note *note, struct td_error *err);

#endif
