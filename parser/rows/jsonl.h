/* JSON Lines (https://jsonlines.org), also known as newline-delimited JSON: each line that holds more than blanks is a
 * row. Rows are not parsed: whether they are JSON is the client's to see.
 *
 * Refused: a file in which CR alone ends the first object and further objects follow; it would be one row. */
#ifndef TD_PARSER_ROWS_JSONL_H
#define TD_PARSER_ROWS_JSONL_H

#include "parser/rows/index/row_format.h"

extern const struct td_row_format td_row_format_jsonl;

#endif
