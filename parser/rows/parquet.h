/* Apache Parquet: the row groups, by the footer. Source: parquet.thrift and the documentation of the Parquet format.
 * Rows are in pages that are encoded and mostly compressed, each column by itself, so that no row can be cut out:
 * `reason` says so. Clients read row groups by Range.
 *
 * An index has the layout TD_ROWS_BLOCKS, three words for each row group: {offset of the first byte of its first column
 * chunk, bytes up to the end of the last one, rows}. `columns` are the leaves of the schema by their path, with their
 * physical type and, in parentheses, their logical type, as in BYTE_ARRAY (STRING). Refused: encrypted footers and
 * columns (also under a plain footer), column chunks in other files, row groups without a chunk for each column, and
 * chunks with another number of rows than their row group. */
#ifndef TD_PARSER_ROWS_PARQUET_H
#define TD_PARSER_ROWS_PARQUET_H

#include "parser/rows/index/row_format.h"

extern const struct td_row_format td_row_format_parquet;

#endif
