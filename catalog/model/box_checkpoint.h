/* Checkpoints whose files hold boxes of the tensors, with the position of each box in its tensor.
 * HuggingFaceStorageWriter of torch.distributed.checkpoint writes such files with save_distributed=True. */
#ifndef TD_CATALOG_MODEL_BOX_CHECKPOINT_H
#define TD_CATALOG_MODEL_BOX_CHECKPOINT_H

#include "catalog/model/snapshot.h"

/* Joins the tensors of the parts. Each part must be readable and have manifest.starts. A tensor's shape is the largest
 * end of its boxes in each dimension, as in HuggingFaceStorageReader; of equal boxes the first part's is used. Returns
 * the joined tensors with one reference for the caller, who must keep the parts' files for as long. Returns NULL when
 * memory is short (TD_RESOURCE_EXHAUSTED), or when the boxes of a name do not fill a tensor: *unfilled is then that
 * name, borrowed from a part, and err is not set. */
struct td_joined_tensors *td_boxes_join(const struct td_entry *const *parts, size_t part_count, const char **unfilled,
                                        struct td_error *err);

/* Returns an upper bound of the memory, in bytes, that a file with this manifest adds to joined tensors; 0 without
 * boxes. */
uint64_t td_boxes_join_bytes(const struct td_manifest *manifest);

/* Removes the metadata that describe the boxes of one file from a checkpoint of joined tensors. Memory comes from the
 * arena. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_boxes_drop_metadata(struct td_checkpoint *checkpoint, struct td_arena *arena, struct td_error *err);

#endif
