/* Engines whose rules are the same for every model. */
#include "slicing/engine/engine_table.h"

static const struct td_table_rule whole[] = {{"**", NULL, TD_TABLE_WHOLE, 0}, {0}};

const struct td_table_engine td_engine_none = {.name = "none", .number = 2, .any = whole};

/* torch.distributed.fsdp.fully_shard and DTensor's Shard(0): pieces of torch.chunk
 * (https://github.com/pytorch/pytorch, torch/distributed/tensor/placement_types.py). */
static const struct td_table_rule chunk[] = {{"**", NULL, TD_TABLE_CHUNK, 0}, {0}};

const struct td_table_engine td_engine_fsdp = {.name = "fsdp", .number = 0, .any = chunk};
