/* Scattered rows of Arrow IPC, gathered in record batches without decoding values. The answer and the errors are those
 * of arrow_cut.h. */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_GATHER_H
#define TD_PARSER_ROWS_ARROW_ARROW_GATHER_H

#include "parser/rows/arrow/arrow_answer.h"

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
