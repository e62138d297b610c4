/* Tensors of a distributed checkpoint: joins the tensors that its `.metadata` lists with the items in its files. */
#ifndef TD_CATALOG_MODEL_DCP_CHECKPOINT_H
#define TD_CATALOG_MODEL_DCP_CHECKPOINT_H

#include "catalog/model/snapshot.h"

/* Refuses a *dcp that has more pieces than a `.metadata` of metadata_bytes can hold, or that takes, with its joined
 * tensors, more than max_memory_bytes of memory. Returns false when it refuses. Errors: TD_INVALID_ARGUMENT. */
bool td_dcp_check(const struct td_dcp *dcp, uint64_t metadata_bytes, size_t max_memory_bytes, struct td_error *err);

/* Returns the most memory, in bytes, that the joined tensors of *dcp take. */
uint64_t td_dcp_join_bytes(const struct td_dcp *dcp);

/* A value in a list of places: the file is missing or refused. */
#define TD_DCP_NO_PART UINT32_MAX

/* Joins the tensors of dcp with the items of its files. The i-th file of dcp is parts[places[i]], which must be
 * readable; it is missing where places[i] is TD_DCP_NO_PART. The part at places[dcp->file_count] stands for tensors
 * that are in no file. places NULL: the i-th file is parts[i], none is missing, and parts[dcp->file_count] stands for
 * those tensors. Leaves out a tensor that has a piece in a missing file; lists a tensor with a reason when its pieces
 * are not what dcp says. Returns the joined tensors with one reference for the caller, who keeps the parts' files as
 * long, or NULL: TD_RESOURCE_EXHAUSTED. */
struct td_joined_tensors *td_dcp_join(const struct td_dcp *dcp, const struct td_entry *const *parts,
                                      const uint32_t *places, struct td_error *err);

/* Returns the number of the first missing file that holds a piece of the tensor; SIZE_MAX when no such file is
 * missing. */
size_t td_dcp_missing_file(const struct td_dcp_tensor *tensor, const uint32_t *places);

#endif
