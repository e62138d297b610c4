/* What inspect prints for people: a table of a checkpoint's tensors, with what belongs to it. */
#ifndef TD_SERVER_INSPECT_TABLE_H
#define TD_SERVER_INSPECT_TABLE_H

#include "catalog/snapshot.h"
#include "core/buffer.h"

/* Prints to standard output. */
void td_inspect_table_print(const struct td_model *model, const struct td_checkpoint *checkpoint);

/* A name from a file, made safe for a terminal; it lives in memory until that is used again. */
const char *td_inspect_shown(const char *text, struct td_buffer *memory);

#endif
