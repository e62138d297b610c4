/* The bytes of a checkpoint's tensors, as single blobs and as the sources of composed answers. */
#ifndef TD_RANK_TENSOR_SOURCE_H
#define TD_RANK_TENSOR_SOURCE_H

#include "catalog/catalog.h"
#include "slicing/rank_file.h"

/* Opens a blob that holds a tensor's bytes, little-endian and in row-major order, from byte *base on; the caller gets
 * one reference. A tensor that is stored in this form gets the mapping of its file; for any other, the blob computes
 * the bytes when it is read. The tensor must be addressable (its manifest gives no `reason`). `cancel`, which is
 * borrowed and must outlive the blob, ends long reads; NULL: nothing ends them. Errors as td_file_source_map;
 * TD_RESOURCE_EXHAUSTED; TD_INTERNAL. */
bool td_tensor_open(struct td_catalog *catalog, const struct td_snapshot *snapshot,
                    const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                    struct td_blob **blob, uint64_t *base, struct td_error *err);

/* Returns the checkpoint's tensors as slicing reads them. Borrows the checkpoint. */
struct td_tensor_list td_checkpoint_tensors(const struct td_checkpoint *checkpoint);

/* Appends a blob of a rank file's bytes to a body: the header, and the tensors of `checkpoint`, from which the file was
 * planned. The blob holds references on the snapshot and the file. `cancel` as in td_tensor_open. Errors as
 * td_blob_composed; reads fail as td_tensor_open. */
bool td_rank_file_append(struct td_catalog *catalog, struct td_snapshot *snapshot,
                         const struct td_checkpoint *checkpoint, struct td_rank_file *file,
                         const struct td_cancel *cancel, struct td_body *body, struct td_error *err);

#endif
