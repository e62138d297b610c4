/* Tensors of a distributed checkpoint: what its `.metadata` says, joined with what was found in its files. */
#ifndef TD_CATALOG_DCP_CHECKPOINT_H
#define TD_CATALOG_DCP_CHECKPOINT_H

#include "catalog/snapshot.h"

/* Fills checkpoint->refs and tensor_count from dcp, whose i-th file is parts[i] (all there and readable), followed by
 * the `.metadata` itself for tensors that are in none. The tensors are made in the snapshot's arena. One whose pieces are not what dcp says is listed with a reason. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_dcp_checkpoint_fill(struct td_snapshot *snapshot, const struct td_dcp *dcp,
                            const struct td_entry *const *parts, struct td_checkpoint *checkpoint,
                            struct td_error *err);

#endif
