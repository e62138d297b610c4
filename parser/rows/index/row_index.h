/* The rows of one file of a dataset: their number, and the place of each in the file. A format (row_format.h) indexes a
 * file once, which may take long; finding rows by the index takes microseconds.
 *
 * An index is a handful of numbers and one array of words, without pointers between them, so that it can be stored in a
 * file as it is (row_index_file.h). A finished index is immutable, and any thread may use it. */
#ifndef TD_PARSER_ROWS_INDEX_ROW_INDEX_H
#define TD_PARSER_ROWS_INDEX_ROW_INDEX_H

#include "core/error.h"
#include "core/input.h"
#include "parser/rows/index/row.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_row_format;

/* How an index finds rows. The comments name `params` and `words` of td_row_index. */
enum td_row_layout {
    TD_ROWS_LINES,   /* lines of a text. words: steps, then extras (line_index.h). params[0]: 1 when every row ends with
                        one LF and nothing is between rows; params[1]: offset of the first row; params[2]: the byte
                        between fields, comma or tab, when a quoted field may hold line ends (CSV), 0 when every LF ends
                        a line; params[3]: number of steps */
    TD_ROWS_EVEN,    /* rows of one size. params[0]: offset of the first row; params[1]: bytes of each row */
    TD_ROWS_OFFSETS, /* a table in the data file. params[0]: position of row_count + 1 ascending offsets, little-endian;
                        params[1]: bytes of each, 4 or 8; row i is between offsets i and i + 1 */
    TD_ROWS_POINTERS, /* tables in the file beside it, little-endian. params[0]: position of row_count i32 lengths in
                         items; params[1]: of row_count i64 byte offsets; params[2]: bytes of an item */
    TD_ROWS_PLACES,   /* words: {offset, bytes} of each row */
    TD_ROWS_BLOCKS,   /* rows that cannot be cut out by their bytes. words: {offset, bytes, rows} of each block, such as
                         a batch of Arrow or a row group of Parquet; the format may keep more words per block:
                         params[0] is their number */
    TD_ROWS_LAYOUTS
};

enum { TD_ROW_PARAMS = 6 };

struct td_row_index {
    const struct td_row_format *format; /* static */
    enum td_row_layout layout;
    uint64_t row_count;
    uint64_t data_bytes;  /* size of the file that holds the rows */
    uint64_t table_bytes; /* size of the file beside it (td_row_files.table); 0: no such file */
    uint64_t params[TD_ROW_PARAMS];
    uint64_t *words; /* owned */
    size_t word_count;
    char *columns; /* JSON array for people and clients, [{"name": ..., "type": ...}, ...]; owned; NULL: not known */
    char *reason;  /* why single rows cannot be answered; owned; NULL: they can */
};

/* The files that are indexed, and that rows are found with. */
struct td_row_files {
    struct td_input data;  /* the file that holds the rows */
    struct td_input table; /* a file beside it with the places of rows; size_bytes 0 and read NULL: no such file */
};

/* Frees what the index owns. */
void td_row_index_fini(struct td_row_index *index);

/* Returns the bytes of a text of an index with its NUL; 0 for NULL. */
size_t td_row_text_bytes(const char *text);

/* Returns the bytes of memory that the index takes. */
size_t td_row_index_bytes(const struct td_row_index *index);

/* Finds the rows [first, first + count) and writes their places in the data file to rows[count]; each is within
 * data_bytes. `files` must be those that were indexed. Errors: TD_INVALID_ARGUMENT when the index has fewer rows;
 * TD_FAILED_PRECONDITION, with the reason, when rows cannot be cut out, or when the table has a wrong entry (the
 * message names the row); TD_UNAVAILABLE when the files are no longer those that were indexed; TD_RESOURCE_EXHAUSTED,
 * and those of the inputs. */
bool td_row_index_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, size_t count,
                       struct td_row *rows, struct td_error *err);

/* Sets *area to a part of the data file that holds the row and everything that td_row_index_find reads there to find
 * it, for read-ahead. The area may be longer than the row, and may end past data_bytes. Returns false when the index
 * does not know the place. `row` is below row_count. */
bool td_row_index_area(const struct td_row_index *index, uint64_t row, struct td_row *area);

/* Returns whether every number that td_row_index_find relies on is right for a file of data_bytes and a table of
 * table_bytes: so that an index that somebody changed gives an error or other rows, never a read outside of the file.
 */
bool td_row_index_check(const struct td_row_index *index);

#endif
