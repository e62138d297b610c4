/* Incomplete checkpoints: the tensors that are there of a set that lacks files. The set is that of an index, of the
 * `.metadata` of a distributed checkpoint, or of a -NNNNN-of-NNNNN group. They are not published: only model->partials
 * has them, for clients that ask for them. */
#ifndef TD_CATALOG_PARTIAL_CHECKPOINT_H
#define TD_CATALOG_PARTIAL_CHECKPOINT_H

#include "catalog/snapshot.h"
#include "core/buffer.h"
#include "core/text.h"

/* The files of a set of which some may be missing or refused. */
struct td_partial_set {
    const char *id;
    const struct td_entry *index; /* an index or a .metadata; NULL: a group */
    /* Of an index: one for each of its files, NULL for one that is missing, refused or without tensors. Of a group: the
     * readable members of it, by number. */
    const struct td_entry *const *parts;
    size_t part_count;
};

/* What an incomplete checkpoint lacks. */
struct td_lacks {
    const struct td_entry *index; /* as above */
    const uint32_t *places;       /* of each file of the index in the parts; UINT32_MAX: missing or refused */
    size_t file_count;            /* how many files are missing or refused */
    size_t tensor_count;          /* how many tensors are not there; of a group nobody knows */
};

/* Adds the tensors that are in the files that are there to model->partials. Adds nothing when no tensor is there, when
 * a group lacks nothing or has a tensor twice, or when the tensors have more than 2^64-1 bytes. `previous`, the model
 * before, may be NULL. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_partial_add(struct td_snapshot *snapshot, const struct td_model *previous, struct td_model *model,
                    const struct td_partial_set *set, struct td_error *err);

/* Returns the incomplete checkpoint of this id, or the first one for an empty id; NULL when there is none. */
const struct td_checkpoint *td_partial_find(const struct td_model *model, struct td_text id);

/* Appends why the checkpoint is incomplete, as a sentence without a full stop. */
void td_partial_write_reason(const struct td_checkpoint *checkpoint, struct td_buffer *out);

/* Calls back with the names of missing or refused files in order, with at most `max` of them. */
void td_partial_each_missing(const struct td_checkpoint *checkpoint, size_t max,
                             void (*each)(void *context, const char *file), void *context);

/* Appends why a tensor of this name is not there, as a message. Appends nothing when the set is known to have no such
 * tensor. */
void td_partial_write_absence(const struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                              struct td_text name, struct td_buffer *out);

#endif
