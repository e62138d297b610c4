/* Rows of Arrow IPC, cut out of record batches, or gathered in new ones, without decoding values. Every answer is a
 * complete IPC stream (the schema message as it is in the file, the dictionary batches that are needed, record batches,
 * the mark of the end) with the types of the file. The answer is a list of pieces, so that the bytes of the file can be
 * sent from where they are.
 *
 * The index is one of td_row_format_arrow, and may come from td_row_index_read; the files must be those that were
 * indexed. Errors of all functions: TD_INVALID_ARGUMENT when the index has fewer rows, or with the number of the record
 * batch, from 0, whose bytes are wrong; TD_FAILED_PRECONDITION with the reason when the rows cannot be cut or gathered
 * (enum td_arrow_obstacle): batches can then be sent whole; TD_UNAVAILABLE when the file is not the indexed one;
 * TD_RESOURCE_EXHAUSTED with the limit; those of the input. After an error the answer must be ended. */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_CUT_H
#define TD_PARSER_ROWS_ARROW_ARROW_CUT_H

#include "parser/rows/arrow/arrow_answer.h"

/* Answers the rows [first, first + count). A batch that is requested whole is a piece of the file, whatever its types.
 * The first and the last batch may be cut; their bitmaps and offsets are rewritten. */
bool td_arrow_cut(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, uint64_t count,
                  struct td_arrow_answer *out, struct td_error *err);

/* Answers the whole record batches that hold the rows [first, first + count), and sets *skip to the number of rows of
 * the first batch that precede `first`. */
bool td_arrow_cut_whole(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                        uint64_t count, uint64_t *skip, struct td_arrow_answer *out, struct td_error *err);

/* A gathered row begins a new record batch when it would make the one before longer than this. */
enum { TD_ARROW_GATHER_BYTES = 1024 * 1024 };

/* The most rows of one answer times the columns and their parts: some seconds of work. */
enum { TD_ARROW_GATHER_NODES = 64 * 1024 * 1024 };

/* Answers the rows with these numbers, in this order, repeats kept, in record batches of at most about
 * TD_ARROW_GATHER_BYTES, or of one row when it is longer. The rows are copied to the memory of the answer; the schema
 * and the dictionaries are not, unless they are short. */
bool td_arrow_gather(const struct td_row_index *index, const struct td_row_files *files, const uint64_t *rows,
                     size_t count, struct td_arrow_answer *out, struct td_error *err);

#endif
