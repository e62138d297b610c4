/* Incomplete sharded checkpoints: the tensors that are there although the index names files that are missing or refused,
 * or tensors that no file has. They are not published: only model->partials has them, for clients that ask for them. */
#ifndef TD_CATALOG_PARTIAL_CHECKPOINT_H
#define TD_CATALOG_PARTIAL_CHECKPOINT_H

#include "catalog/snapshot.h"

/* Adds the tensors that are in the files that are there to model->partials. parts has one entry for each file that the
 * index names, NULL for one that is missing or refused. Adds nothing when no tensor is there, or when the tensors have
 * more than 2^64-1 bytes. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_partial_add(struct td_snapshot *snapshot, struct td_model *model, const char *id,
                    const struct td_entry *index, const struct td_entry *const *parts, struct td_error *err);

/* Returns the incomplete checkpoint of this id, or the first one for an empty id; NULL when there is none. */
const struct td_checkpoint *td_partial_find(const struct td_model *model, const char *id, size_t len);

/* Returns the file that holds a tensor by the index of an incomplete checkpoint; NULL when the index has no such tensor.
 * *is_usable is false when that file is missing or refused. */
const char *td_partial_file_of(const struct td_checkpoint *checkpoint, const char *name, size_t len,
                               bool *is_usable);

/* Returns whether a file that the index names is listed, refused or not. False when memory is short, too. */
bool td_partial_is_listed(const struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                          const char *file);

#endif
