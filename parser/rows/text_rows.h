/* The rows of a text file as an index: what JSON Lines and CSV share. */
#ifndef TD_PARSER_ROWS_TEXT_ROWS_H
#define TD_PARSER_ROWS_TEXT_ROWS_H

#include "parser/rows/index/line_index.h"
#include "parser/rows/index/row_format.h"

/* Reads the whole data file of a build through the indexer (line_index.h), and makes *out an index of layout
 * TD_ROWS_LINES. Frees what the indexer has made; indexer->header stays. Errors as `build` of td_row_format. */
bool td_text_rows_build(struct td_line_indexer *indexer, const struct td_row_build *build, struct td_row_index *out,
                        struct td_error *err);

#endif
