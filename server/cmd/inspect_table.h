/* What inspect prints for people: a table of a checkpoint's tensors, with what belongs to it. */
#ifndef TD_SERVER_INSPECT_TABLE_H
#define TD_SERVER_INSPECT_TABLE_H

#include "catalog/snapshot.h"
#include "core/buffer.h"

/* Prints to standard output. */
void td_inspect_table_print(const struct td_model *model, const struct td_checkpoint *checkpoint);

#endif
