/* An index of rows as bytes, to be kept in a file. */
#ifndef TD_PARSER_ROWS_ROW_INDEX_FILE_H
#define TD_PARSER_ROWS_ROW_INDEX_FILE_H

#include "core/buffer.h"
#include "parser/rows/index/row_index.h"

/* Appends the index as bytes that td_row_index_read reads, on a machine of the same byte order. */
void td_row_index_write(const struct td_row_index *index, struct td_buffer *out);

/* Reads what td_row_index_write wrote; td_row_index_check is true of the result. The caller ends it by
 * td_row_index_fini. Errors: TD_INVALID_ARGUMENT when the bytes are not an index, or one of another version or of an
 * unknown format; TD_RESOURCE_EXHAUSTED. */
bool td_row_index_read(const void *bytes, size_t len, struct td_row_index *out, struct td_error *err);

#endif
