/* The outcome of td_file_parse as bytes, from the parser's process to the server: an error, or nothing, and the content
 * of the file; and an index of rows. */
#ifndef TD_CATALOG_SANDBOX_CONTENT_WIRE_H
#define TD_CATALOG_SANDBOX_CONTENT_WIRE_H

#include "catalog/model/snapshot.h"
#include "catalog/sandbox/wire.h"
#include "parser/format/limits.h"
#include "parser/rows/index/row_index.h"

/* Appends the error; the code TD_OK stands for no error. */
void td_error_write(const struct td_error *error, struct td_wire_writer *out);

/* Reads an error into *out. Fails the reader when its code is unknown. */
void td_error_read(struct td_wire_reader *in, struct td_error *out);

/* Appends the content that td_file_parse has read into *file, and its error. */
void td_content_write(const struct td_file *file, const struct td_error *error, struct td_wire_writer *out);

/* Reads the content that td_content_write wrote of this file into *file, which td_file_create has made. The caller has
 * read the error before it to *of_parse. Sets the members that td_file_parse would set, and trusts no value. Returns
 * whether the bytes are right; *of_parse says whether the file is. Errors: TD_INTERNAL when they are wrong;
 * TD_RESOURCE_EXHAUSTED; as td_dcp_check. */
bool td_content_read(struct td_wire_reader *in, const struct td_error *of_parse, struct td_file *file,
                     const struct td_limits *limits, struct td_error *err);

/* Appends an index of rows. */
void td_rows_write(const struct td_row_index *index, struct td_wire_writer *out);

/* Reads what td_rows_write wrote of an index in this format of files of data_bytes and table_bytes into *out;
 * td_row_index_check is true of the result, and its texts are UTF-8. The caller ends it by td_row_index_fini; on
 * failure nothing is left in it. Errors: TD_INTERNAL when the bytes are no such index; TD_RESOURCE_EXHAUSTED. */
bool td_rows_read(struct td_wire_reader *in, const struct td_row_format *format, uint64_t data_bytes,
                  uint64_t table_bytes, struct td_row_index *out, struct td_error *err);

#endif
