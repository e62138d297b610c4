/* Tensors of a distributed checkpoint: what its `.metadata` says, joined with what was found in its files. */
#ifndef TD_CATALOG_DCP_CHECKPOINT_H
#define TD_CATALOG_DCP_CHECKPOINT_H

#include "catalog/snapshot.h"

/* The tensors of dcp, whose i-th file is parts[i] (all there and readable), followed by the `.metadata` itself for
 * tensors that are in none. One whose pieces are not what dcp says is listed with a reason. One reference is the
 * caller's, who keeps the parts' files as long. NULL is TD_RESOURCE_EXHAUSTED. */
struct td_join *td_dcp_join(const struct td_dcp *dcp, const struct td_entry *const *parts,
                            struct td_error *err);

#endif
