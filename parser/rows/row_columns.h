/* Writes the texts of an index of rows: `columns`, [{"name": ..., "type": ..., "shape": [...]}, ...], and `reason`. */
#ifndef TD_PARSER_ROWS_ROW_COLUMNS_H
#define TD_PARSER_ROWS_ROW_COLUMNS_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"
#include "parser/rows/index/row_index.h"

#include <stdbool.h>
#include <stdint.h>

/* Appends a column to the array, which begins as an empty buffer. Bytes of the name that are not UTF-8 become \xNN.
 * `type` is UTF-8; NULL: not known. `shape` has the sizes of one row's value; NULL: none is written. A failed
 * allocation marks the buffer. */
void td_row_columns_add(struct td_buffer *columns, struct td_text name, const char *type, const uint64_t *shape,
                        uint32_t rank);

/* Ends the array and moves it to index->columns. The buffer is empty afterwards, also on failure. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_row_columns_end(struct td_buffer *columns, struct td_row_index *index, struct td_error *err);

/* Sets index->reason to a copy of the text. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_row_columns_reason(struct td_row_index *index, const char *reason, struct td_error *err);

#endif
