/* Checkpoints of which each file holds boxes of the tensors and says where these belong: what
 * torch.distributed.checkpoint's HuggingFaceStorageWriter writes with save_distributed=True. */
#ifndef TD_CATALOG_BOX_CHECKPOINT_H
#define TD_CATALOG_BOX_CHECKPOINT_H

#include "catalog/snapshot.h"

/* Joins the tensors of the parts, each of which is readable and has manifest.starts. As HuggingFaceStorageReader, takes
 * the largest end of the boxes of one name as the tensor's shape; of equal boxes, the first part's counts. Returns the
 * joined tensors with one reference for the caller, who keeps the parts' files as long. Returns NULL for want of memory
 * (TD_RESOURCE_EXHAUSTED), or when boxes of one name do not make a whole tensor; *unfilled is then that name, borrowed
 * from a part, and err stays as it is. */
struct td_joined_tensors *td_boxes_join(const struct td_entry *const *parts, size_t part_count, const char **unfilled,
                                        struct td_error *err);

/* Returns the most memory, in bytes, that a file with this manifest adds to joined tensors; 0 without boxes. */
uint64_t td_boxes_join_bytes(const struct td_manifest *manifest);

/* Returns whether the key of a file's metadata tells of its boxes. It has no meaning for joined tensors. */
bool td_boxes_is_own_key(const char *key);

#endif
