/* The bytes of a checkpoint's tensors, as single blobs and as the sources of composed answers. */
#ifndef TD_RANK_TENSOR_SOURCE_H
#define TD_RANK_TENSOR_SOURCE_H

#include "catalog/catalog.h"
#include "slicing/rank_file.h"

/* Opens a blob that holds a tensor's bytes in logical order from byte *base on; the caller gets one reference. A tensor
 * that lies so in its file gets the file's mapping, any other a generated blob. The tensor must be addressable (have no
 * reason). `cancel` ends long reads; it is borrowed and must outlive the blob; NULL: nothing does. Errors as
 * td_file_source_map; TD_RESOURCE_EXHAUSTED; TD_INTERNAL. */
bool td_tensor_open(struct td_catalog *catalog, const struct td_snapshot *snapshot,
                    const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                    struct td_blob **blob, uint64_t *base, struct td_error *err);

/* Returns the checkpoint's tensors as slicing reads them. Borrows the checkpoint. */
struct td_tensor_list td_checkpoint_tensors(const struct td_checkpoint *checkpoint);

/* Opens a blob of a rank file's bytes over the tensors of this checkpoint, of which the file was made; the caller gets
 * one reference. The blob holds references on the snapshot and the file. `cancel` as above. Errors as td_blob_composed.
 */
bool td_rank_file_open(struct td_catalog *catalog, struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                       struct td_rank_file *file, const struct td_cancel *cancel, struct td_blob **out,
                       struct td_error *err);

/* Appends all of such a blob to a body. Errors as td_rank_file_open. */
bool td_rank_file_append(struct td_catalog *catalog, struct td_snapshot *snapshot,
                         const struct td_checkpoint *checkpoint, struct td_rank_file *file,
                         const struct td_cancel *cancel, struct td_body *body, struct td_error *err);

#endif
