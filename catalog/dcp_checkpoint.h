/* Tensors of a distributed checkpoint: what its `.metadata` says, joined with what was found in its files. */
#ifndef TD_CATALOG_DCP_CHECKPOINT_H
#define TD_CATALOG_DCP_CHECKPOINT_H

#include "catalog/snapshot.h"

/* Whether a `.metadata` of this size can honestly say so much, and what is kept of it fits the memory for one file, its join
 * included. Errors: TD_INVALID_ARGUMENT. */
bool td_dcp_check(const struct td_dcp *dcp, uint64_t metadata_bytes, size_t max_memory_bytes,
                  struct td_error *err);

/* What its join takes at most. */
uint64_t td_dcp_join_bytes(const struct td_dcp *dcp);

/* The tensors of dcp, whose i-th file is parts[i] (all there and readable), followed by the `.metadata` itself for
 * tensors that are in none. One whose pieces are not what dcp says is listed with a reason. One reference is the
 * caller's, who keeps the parts' files as long. NULL is TD_RESOURCE_EXHAUSTED. */
struct td_join *td_dcp_join(const struct td_dcp *dcp, const struct td_entry *const *parts,
                            struct td_error *err);

#endif
