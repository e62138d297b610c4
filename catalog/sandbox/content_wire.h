/* The outcome of td_file_parse as bytes, from the parser's process to the server: an error, or nothing, and the content
 * of the file. */
#ifndef TD_CATALOG_SANDBOX_CONTENT_WIRE_H
#define TD_CATALOG_SANDBOX_CONTENT_WIRE_H

#include "catalog/model/snapshot.h"
#include "catalog/sandbox/wire.h"
#include "parser/format/limits.h"

/* Appends the error; one with code TD_OK says that there is none. */
void td_error_write(const struct td_error *error, struct td_wire_writer *out);

/* Reads an error into *out. Fails the reader when its code is unknown. */
void td_error_read(struct td_wire_reader *in, struct td_error *out);

/* Appends what td_file_parse left in *file, with its error. */
void td_content_write(const struct td_file *file, const struct td_error *error, struct td_wire_writer *out);

/* Reads what td_content_write wrote of this file behind the error, which the caller has read to *of_parse, into *file,
 * which is as td_file_create makes it. Leaves in it what td_file_parse would, and trusts no value (manifest_wire.h,
 * index_wire.h, facts_wire.h). Returns whether the bytes are right; *of_parse says whether the file is. Errors:
 * TD_INTERNAL when they are wrong; TD_RESOURCE_EXHAUSTED; as td_dcp_check. */
bool td_content_read(struct td_wire_reader *in, const struct td_error *of_parse, struct td_file *file,
                     const struct td_limits *limits, struct td_error *err);

#endif
