/* Tensors of a distributed checkpoint: what its `.metadata` says, joined with what was found in its files. */
#ifndef TD_CATALOG_DCP_CHECKPOINT_H
#define TD_CATALOG_DCP_CHECKPOINT_H

#include "catalog/snapshot.h"

/* Whether a `.metadata` of this size can honestly say so much, and what is kept of it fits the memory for one file, its
 * join included. Errors: TD_INVALID_ARGUMENT. */
bool td_dcp_check(const struct td_dcp *dcp, uint64_t metadata_bytes, size_t max_memory_bytes, struct td_error *err);

/* What its join takes at most. */
uint64_t td_dcp_join_bytes(const struct td_dcp *dcp);

/* In a list of places: the file is missing or refused. */
#define TD_DCP_NO_PART UINT32_MAX

/* Joins the tensors of dcp. Its i-th file is parts[places[i]], readable, or missing where places[i] is TD_DCP_NO_PART;
 * the part at places[dcp->file_count] stands for tensors that are in no file. places NULL: all files are there, the
 * i-th is parts[i], and parts[dcp->file_count] stands for those tensors. A tensor with a piece in a missing file is
 * left out. One whose pieces are not what dcp says is listed with a reason. One reference is the caller's, who keeps
 * the parts' files as long. NULL is TD_RESOURCE_EXHAUSTED. */
struct td_joined_tensors *td_dcp_join(const struct td_dcp *dcp, const struct td_entry *const *parts,
                                      const uint32_t *places, struct td_error *err);

/* Returns the first missing file, by its number, that has a piece of the tensor; SIZE_MAX when there is none. */
size_t td_dcp_missing_file(const struct td_dcp_tensor *tensor, const uint32_t *places);

#endif
