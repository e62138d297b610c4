/* The store of kept models: models that were fetched from the upstream, and those that are being fetched. All of it is
 * in the served directory, so that a model is published by one rename:
 *
 *   DIR/.tensord-upstream/lock              held by the process that fetches
 *                         incoming/KEY/files/   the files of a model that is not complete yet
 *                         incoming/KEY/model    the model's note: id, bytes, time
 *                         records/KEY           a model that was published; its mtime is when it was last read
 *                         check/KEY             a published model that is being checked before its removal
 *                         trash/                items that are being removed
 *
 * KEY is a hash of the id. A record holds a digest over names, inodes, sizes and times of everything in the model's
 * directory (kept_disk.h). A directory that does not match its record when it is to be evicted, or has a record without
 * such a digest, belongs to the operator: it is never removed, only its record is. Scans ignore names that begin with a
 * dot.
 *
 * Thread-safe, except open and close. Functions that remove files may take long, and hold no lock while they do. */
#ifndef TD_CATALOG_UPSTREAM_UPSTREAM_STORE_H
#define TD_CATALOG_UPSTREAM_UPSTREAM_STORE_H

#include "catalog/upstream/kept_table.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_upstream_store;

/* A kept model that is published. */
struct td_kept_model {
    uint64_t bytes;
    bool is_verified; /* the upstream had a digest of every file when the last byte had come, and all matched */
    int64_t read_ns;  /* when it was last read, ns since 1970 */
};

/* Opens the store in the served directory, creates missing folders, takes the lock, and removes what is of no more use:
 * trash, incomplete models older than a week, and records of models that are gone. max_bytes bounds the bytes of all
 * models together; 0: no bound. Errors: TD_FAILED_PRECONDITION when another process holds the lock;
 * TD_PERMISSION_DENIED or TD_IO when the directory cannot be written, with advice. */
bool td_upstream_store_open(const char *root, uint64_t max_bytes, struct td_upstream_store **out, struct td_error *err);

/* Writes the times of the last reads, and frees the store. NULL is allowed. */
void td_upstream_store_close(struct td_upstream_store *store);

/* Makes room for a model of so many bytes and begins its fetch, or resumes an earlier fetch. Evicts incomplete models
 * that are not being fetched first, then published models, beginning with the least recently read one. Sets *folder to
 * the folder for its files, with a reference for the caller, and *began_s to when the first fetch of it began, seconds
 * since 1970. Adds the number of evicted published models to *evicted. Waits while a model of this id is being removed,
 * and for other threads that make room. Errors: TD_RESOURCE_EXHAUSTED when there is no room, with the numbers (sys is
 * EFBIG when it has more bytes than the store may have); TD_CONFLICT when something has the model's name already, or
 * its organisation's name belongs to something other than a directory of this file system; TD_FAILED_PRECONDITION when
 * the store's folder was removed or replaced since it was opened; TD_PERMISSION_DENIED, TD_IO. */
bool td_upstream_store_begin(struct td_upstream_store *store, const char *id, uint64_t bytes, struct td_root **folder,
                             int64_t *began_s, uint64_t *evicted, struct td_error *err);

/* Ends the fetch of a model that td_upstream_store_begin has begun; its files stay on disk and can be resumed. */
void td_upstream_store_pause(struct td_upstream_store *store, const char *id);

/* Removes an incomplete model. */
void td_upstream_store_discard(struct td_upstream_store *store, const char *id);

/* Publishes a model that is complete: removes files for which `belongs` returns false, by their paths below the model,
 * and moves the folder to its place in the served directory by one rename. Errors: TD_CONFLICT when the name is taken;
 * TD_FAILED_PRECONDITION as td_upstream_store_begin; TD_PERMISSION_DENIED, TD_IO. */
bool td_upstream_store_publish(struct td_upstream_store *store, const char *id, bool is_verified,
                               bool (*belongs)(void *context, const char *path), void *context, struct td_error *err);

/* Removes a published model, so that it can be fetched again; one that was changed belongs to the operator and stays.
 * Returns whether it was removed. Waits for the disk. */
bool td_upstream_store_drop(struct td_upstream_store *store, const char *id);

/* Writes the id of the first published model after this one, in the order of ids. Returns false when there is none. */
bool td_upstream_store_next(struct td_upstream_store *store, const char *after, char id[TD_UPSTREAM_ID_BYTES]);

/* Sets *out to the facts of a published model. Returns false for any other model. */
bool td_upstream_store_find(struct td_upstream_store *store, struct td_text id, struct td_kept_model *out);

/* Returns whether a published model's directory still exists unchanged at its top. Forgets the model if it does not. */
bool td_upstream_store_is_there(struct td_upstream_store *store, struct td_text id);

/* Records in memory that a model is being read; ignores models that the store does not have. Never waits for a disk. */
void td_upstream_store_note_read(struct td_upstream_store *store, struct td_text id);

/* Writes the recorded times to disk: one small write for each model that was read since the last call. */
void td_upstream_store_write_reads(struct td_upstream_store *store);

/* Returns the number of published models without digests for all files. */
size_t td_upstream_store_count_unverified(struct td_upstream_store *store);

/* Returns the number of incomplete models that are not being fetched, but can be resumed. */
size_t td_upstream_store_count_paused(struct td_upstream_store *store);

/* Returns the bytes of all models, including incomplete ones. Sets *count to the number of published models. */
uint64_t td_upstream_store_bytes(struct td_upstream_store *store, size_t *count);

#endif
