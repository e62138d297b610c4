/* Models that outlive their folders while they are read (--keep-removed). When a body of a model is asked for, its
 * files are opened; when another program then removes the folder, the model stays readable from the last snapshot that
 * had all of it, until nobody has asked for a body for a while.
 *
 * A model is *held* while its files are open, and *kept* from the scan on that no longer finds all of its files. A
 * folder is removed file by file, so a model that only lost files is kept, too; if it loses no more for
 * TD_REMOVED_SHRINK_NS, or gets other files, it is not kept any more. Bounded: max_files open files; max_models kept
 * models, each with a reference on a snapshot. Thread-safe. */
#ifndef TD_CATALOG_REMOVED_REMOVED_H
#define TD_CATALOG_REMOVED_REMOVED_H

#include "catalog/model/snapshot.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/file_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most files that may be held at once. */
enum { TD_REMOVED_FILES = 4096 };

/* For how long a model is kept that has lost some of its files and loses no more. */
#define TD_REMOVED_SHRINK_NS UINT64_C(10000000000)

struct td_removed_config {
    uint64_t keep_ns;  /* a model is kept so long after a body of it was asked for last; not 0 */
    size_t max_files;  /* that are held at once, at most TD_REMOVED_FILES. A model with more is not held; for
                          others, models that are not kept make room, the one read longest ago first */
    size_t max_models; /* if more are removed, the one that was removed first is not kept any more */
    struct td_mapping_cache *maps; /* of all snapshots' files; borrowed */
};

struct td_removed;

/* Starts the thread that ends holds. Errors: TD_RESOURCE_EXHAUSTED, TD_INTERNAL. */
bool td_removed_create(const struct td_removed_config *config, struct td_removed **out, struct td_error *err);

/* Ends all holds, and drops all references on snapshots. Call before the end of `maps`. NULL: does nothing. */
void td_removed_destroy(struct td_removed *removed);

/* Notes that a body was asked for: bytes of the file at this path of the snapshot, or of the model with this id. Holds
 * the models that contain it, from now on. A model whose files cannot all be opened is not held. Errors: as
 * td_may_wait, when files have to be opened and the thread may not wait; TD_RESOURCE_EXHAUSTED. removed NULL: does
 * nothing. */
bool td_removed_note_read(struct td_removed *removed, const struct td_snapshot *snapshot, struct td_text path,
                          struct td_error *err);

/* Keeps the held models that `now` lacks, and that `before` has whole, and stops to keep those that are there again.
 * Call it before `now` becomes the current snapshot, from the one thread that publishes. */
void td_removed_publish(struct td_removed *removed, struct td_snapshot *before, const struct td_snapshot *now);

/* Ends the hold of the model with this id and of those below it, kept or not: this program removes them. */
void td_removed_forget(struct td_removed *removed, struct td_text id);

/* A kept model. */
struct td_removed_model {
    struct td_snapshot *snapshot; /* that has the model; a reference of the caller's */
    const char *id;               /* in the snapshot's memory */
};

/* Sets *out to the kept model that was removed last but `number`. Returns false when there are no more. */
bool td_removed_get(struct td_removed *removed, size_t number, struct td_removed_model *out);

#endif
