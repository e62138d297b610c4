/* Indexes of checkpoints as bytes, from the parser's process to the server: which file of a sharded checkpoint has
 * which tensor, and which boxes the tensors of a distributed one consist of. The functions that read trust no value:
 * all that parser/shard_index.h and parser/torch/torch_dcp.h promise is true of the results, which the caller ends in
 * every case. Errors: TD_INTERNAL when the bytes are not what the function beside it writes; TD_RESOURCE_EXHAUSTED. */
#ifndef TD_CATALOG_SANDBOX_INDEX_WIRE_H
#define TD_CATALOG_SANDBOX_INDEX_WIRE_H

#include "catalog/sandbox/wire.h"
#include "parser/shard_index.h"
#include "parser/torch/torch_dcp.h"

/* Appends the index. */
void td_shard_index_write(const struct td_shard_index *index, struct td_wire_writer *out);
/* Reads it into *index, which is all zero. */
bool td_shard_index_read(struct td_wire_reader *in, struct td_shard_index *index, struct td_error *err);

/* Appends the boxes. */
void td_dcp_write(const struct td_dcp *dcp, struct td_wire_writer *out);
/* Reads them into *dcp, which is all zero; takes at most max_memory_bytes (0: any number). */
bool td_dcp_read(struct td_wire_reader *in, size_t max_memory_bytes, struct td_dcp *dcp, struct td_error *err);

#endif
