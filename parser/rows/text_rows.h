/* The formats of rows whose files are text: each line that holds more than blanks is a row (line_index.h). */
#ifndef TD_PARSER_ROWS_TEXT_ROWS_H
#define TD_PARSER_ROWS_TEXT_ROWS_H

#include "core/text.h"
#include "parser/rows/index/row_format.h"

/* JSON Lines (https://jsonlines.org), also known as newline-delimited JSON: each line that holds more than blanks is a
 * row. Rows are not parsed: whether they are JSON is the client's to see.
 *
 * Refused: a file in which CR alone ends the first object and further objects follow; it would be one row. */
extern const struct td_row_format td_row_format_jsonl;

/* CSV (RFC 4180), separated by commas (.csv) or by tabs (.tsv), as Python's csv module reads it with its default
 * dialect; line_index.h has the rules for quotes and lines.
 *
 * The first line that holds more than blanks is the header: it is not a row, and its fields are the names of the
 * columns. Rows are not parsed: whether they have as many fields as the header is the client's to see.
 *
 * Accepted beside RFC 4180: LF alone or CR alone as a line end, a last line without one, a byte order mark, blank lines
 * (no rows), quotes in unquoted fields, text after a closing quote, a quoted field that is never closed. Where it
 * differs from Python's csv module: a line of blanks alone is not a row (Python gives one field).
 *
 * Refused: a header of more than TD_CSV_HEADER_BYTES. Names that are not UTF-8 are shown with \xNN for each byte that
 * is wrong. */
extern const struct td_row_format td_row_format_csv;

enum { TD_CSV_HEADER_BYTES = 1024 * 1024 };

/* Takes the next field of a line from *rest; the line ends at `end`. Moves *rest past the delimiter, or sets it to NULL
 * after the last field. Decodes the field in place and returns it; it may be empty and need not be UTF-8. */
struct td_text td_csv_take_field(char **rest, const char *end, char delimiter);

#endif
