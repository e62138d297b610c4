/* Where the bytes of a checkpoint's tensors are: as blobs one by one, and as the sources of composed answers. */
#ifndef TD_RANK_TENSOR_SOURCE_H
#define TD_RANK_TENSOR_SOURCE_H

#include "catalog/catalog.h"
#include "slicing/rank_file.h"

/* The blob in which a tensor's bytes lie in logical order from byte *base on; one reference for the caller. A tensor
 * that lies so in its file: the file's mapping; any other: a generated blob. The tensor is addressable. Errors as
 * td_file_source_map, and TD_INTERNAL. cancel ends what takes long in reading; it outlives the blob. NULL: nothing
 * does. */
bool td_tensor_open(struct td_catalog *catalog, const struct td_snapshot *snapshot,
                    const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                    struct td_blob **blob, uint64_t *base, struct td_error *err);

/* The checkpoint's tensors as slicing sees them; points to the checkpoint. */
struct td_tensor_list td_checkpoint_tensors(const struct td_checkpoint *checkpoint);

/* A blob of the file's bytes, over the tensors of this checkpoint (of which the file was made); one reference for the
 * caller. It holds references on the snapshot and the file. */
bool td_rank_file_open(struct td_catalog *catalog, struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                       struct td_rank_file *file, const struct td_cancel *cancel, struct td_blob **out,
                       struct td_error *err);

/* Appends all of such a blob to a body. */
bool td_rank_file_append(struct td_catalog *catalog, struct td_snapshot *snapshot,
                         const struct td_checkpoint *checkpoint, struct td_rank_file *file,
                         const struct td_cancel *cancel, struct td_body *body, struct td_error *err);

#endif
