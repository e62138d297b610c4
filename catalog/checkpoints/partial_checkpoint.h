/* Incomplete checkpoints: the available tensors of a set that lacks files. The set is that of an index, of the
 * `.metadata` of a distributed checkpoint, or of a -NNNNN-of-NNNNN group; or it is one file with a rank's part of the
 * tensors. Incomplete checkpoints are not published: only model->partials holds them, for clients that ask for them. */
#ifndef TD_CATALOG_CHECKPOINTS_PARTIAL_CHECKPOINT_H
#define TD_CATALOG_CHECKPOINTS_PARTIAL_CHECKPOINT_H

#include "catalog/checkpoints/shard_group.h"
#include "catalog/model/snapshot.h"
#include "core/buffer.h"
#include "core/text.h"

/* The files of a set in which some may be missing or refused. */
struct td_partial_set {
    const char *id;
    const struct td_entry *index; /* an index or a .metadata; NULL: the set is a group */
    /* With an index: an entry for each file that the index names; NULL for a file that is missing, refused or without
     * tensors. For a group: the readable members, ordered by number. */
    const struct td_entry *const *parts;
    size_t part_count;
    struct td_shard_range range; /* of a group: the numbers of all its members */
    const char *part_reason; /* of a rank part, which has no index: why it is not the whole, as a sentence; else NULL */
};

/* The missing files and tensors of an incomplete checkpoint. */
struct td_lacks {
    const struct td_entry *index; /* as in td_partial_set */
    const uint32_t *places;       /* number of each file of the index in the parts; UINT32_MAX: missing or refused */
    size_t file_count;            /* number of files that are missing or refused */
    size_t tensor_count;          /* number of missing tensors; 0: unknown */
    struct td_shard_range range;  /* as in td_partial_set */
    const char *part_reason;      /* as in td_partial_set */
};

/* Adds the available tensors of the set to model->partials as one incomplete checkpoint. Adds nothing when no tensor is
 * available, when a group lacks no file or has a tensor twice, or when the tensors have more than 2^64-1 bytes.
 * `previous`, the same model in the snapshot before, may be NULL. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_partial_add(struct td_snapshot *snapshot, const struct td_model *previous, struct td_model *model,
                    const struct td_partial_set *set, struct td_error *err);

/* Returns the incomplete checkpoint with this id, or for an empty id the first one that is not a rank part; NULL when
 * it does not exist. */
const struct td_checkpoint *td_partial_find(const struct td_model *model, struct td_text id);

/* Returns whether the names of the missing tensors are known. They are not for a group and for the map of Keras, which
 * do not list tensors. */
bool td_partial_knows_tensors(const struct td_checkpoint *checkpoint);

/* Appends the reason why the checkpoint is incomplete, as a sentence without a full stop. */
void td_partial_write_reason(const struct td_checkpoint *checkpoint, struct td_buffer *out);

/* Calls `each` with the names of the missing or refused files in order, at most `max` of them. */
void td_partial_each_missing(const struct td_checkpoint *checkpoint, size_t max,
                             void (*each)(void *context, const char *file), void *context);

/* Appends the reason why the checkpoint lacks a tensor of this name, as a message. Appends nothing when the set is
 * known to have no such tensor. */
void td_partial_write_absence(const struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                              struct td_text name, struct td_buffer *out);

#endif
