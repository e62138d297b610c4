/* An index of rows as bytes, from the parser's process to the server. */
#ifndef TD_CATALOG_SANDBOX_ROWS_WIRE_H
#define TD_CATALOG_SANDBOX_ROWS_WIRE_H

#include "catalog/sandbox/wire.h"
#include "parser/rows/index/row_index.h"

/* Appends the index. */
void td_rows_write(const struct td_row_index *index, struct td_wire_writer *out);

/* Reads what td_rows_write wrote of an index in this format of files of data_bytes and table_bytes into *out;
 * td_row_index_check is true of the result, and its texts are UTF-8. The caller ends it by td_row_index_fini; on
 * failure nothing is left in it. Errors: TD_INTERNAL when the bytes are no such index; TD_RESOURCE_EXHAUSTED. */
bool td_rows_read(struct td_wire_reader *in, const struct td_row_format *format, uint64_t data_bytes,
                  uint64_t table_bytes, struct td_row_index *out, struct td_error *err);

#endif
