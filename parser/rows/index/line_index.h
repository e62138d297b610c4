/* The rows of a text file, such as JSON Lines: the lines that hold more than blanks (space, tab, CR, VT, FF), without
 * their line ends (LF, or CR and LF). The last line may lack its end. A byte order mark at the start of the file
 * belongs to no row. The bytes of rows are not looked at otherwise.
 *
 * With a delimiter the text is CSV (RFC 4180), as Python's csv module reads it: a CR alone ends a line, too. A quote
 * (") at the start of a field, that is at a line's start or right after a delimiter, opens a quoted field, in which
 * line ends are text and "" is a quote; the next other quote closes the field. All other quotes are text. A field that
 * is never closed ends with the file. A delimiter is not a blank: a line of tabs is a row of empty fields when tabs
 * delimit.
 *
 * An index keeps the place of every row whose number TD_LINE_STEP_ROWS divides, 50 MB for 100,000,000 rows, and of long
 * rows' neighbours, so that less than TD_LINE_STEP_BYTES and one row are scanned to find a row. */
#ifndef TD_PARSER_ROWS_INDEX_LINE_INDEX_H
#define TD_PARSER_ROWS_INDEX_LINE_INDEX_H

#include "core/error.h"
#include "core/input.h"
#include "parser/rows/index/row.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_LINE_STEP_ROWS = 16,          /* of so many rows the place of one is kept */
    TD_LINE_STEP_BYTES = 128 * 1024, /* and that of a row whose line begins this far after the kept one before it */
    TD_LINE_READ_BYTES = 4 * 1024    /* read at once to find rows */
};

/* A row that is kept although TD_LINE_STEP_ROWS does not divide its number: that, and the offset of its line. */
struct td_line_extra {
    uint64_t row;
    uint64_t offset;
};

/* All zero: of an empty file. */
struct td_line_index {
    uint64_t row_count;
    uint64_t size_bytes; /* of the file */
    uint64_t *steps;     /* offset of the line of row i * TD_LINE_STEP_ROWS */
    size_t step_count, step_capacity;
    struct td_line_extra *extras; /* ascending */
    size_t extra_count, extra_capacity;
    uint8_t delimiter; /* between the fields of CSV; 0: a quote is text as any other, and every LF ends a line */
    bool has_gaps;     /* something is between rows or before the first: a blank line, a CR at a line end, a byte
                          order mark; a header is not a gap. Without gaps, every row but perhaps the last is followed
                          by one LF */
};

/* Where the next byte stands in the fields of a line of CSV. */
enum td_line_place {
    TD_LINE_FIELD_START,
    TD_LINE_IN_FIELD,
    TD_LINE_IN_QUOTES,
    TD_LINE_AFTER_QUOTE /* in a quoted field: the quote before was its end, unless another one follows */
};

/* Makes an index of a text that comes in parts. All zero at first, but for index.delimiter and wants_header. Public:
 * index.row_count, the rows whose lines have ended; index.size_bytes, the bytes that have come; and header. */
struct td_line_indexer {
    struct td_line_index index;
    bool wants_header;    /* the next line that would be a row is a header instead */
    struct td_row header; /* its place, without its line end; bytes 0: no header */
    uint64_t line_offset; /* of the line that has not ended */
    uint64_t kept_offset; /* of the line that was kept last */
    uint8_t mark_bytes;   /* of a byte order mark so far; above 3: no mark, or all of it has come */
    bool has_text;        /* the line that has not ended holds more than blanks */
    uint8_t last;         /* the byte before the next one */
    enum td_line_place place;
};

/* Takes the next bytes of the text. Errors: TD_RESOURCE_EXHAUSTED; then td_line_index_fini frees what was made. */
bool td_line_indexer_add(struct td_line_indexer *indexer, const uint8_t *bytes, size_t len, struct td_error *err);

/* Ends the text, and moves the index to *out, which the caller ends by td_line_index_fini; indexer->header stays.
 * Errors as td_line_indexer_add. */
bool td_line_indexer_finish(struct td_line_indexer *indexer, struct td_line_index *out, struct td_error *err);

void td_line_index_fini(struct td_line_index *index);

/* Finds rows [first, first + count) in the indexed file, and writes their places to rows[count]. Errors:
 * TD_INVALID_ARGUMENT when the index has fewer rows; TD_UNAVAILABLE when the file's lines differ from the index,
 * because the file has changed; TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_line_index_find(const struct td_line_index *index, const struct td_input *input, uint64_t first, size_t count,
                        struct td_row *rows, struct td_error *err);

#endif
