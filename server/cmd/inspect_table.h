/* The table that `tensord inspect` prints for people. */
#ifndef TD_SERVER_CMD_INSPECT_TABLE_H
#define TD_SERVER_CMD_INSPECT_TABLE_H

#include "catalog/model/snapshot.h"
#include "core/buffer.h"

/* Prints to standard output: a heading, a row for each tensor, the files, the totals by data type, and the metadata. */
void td_inspect_table_print(const struct td_model *model, const struct td_checkpoint *checkpoint);

#endif
