/* The beginning that shards of MDS and chunks of LitData share: u32 n, and u32 offsets[n + 1] from the file's start,
 * little-endian. */
#ifndef TD_PARSER_ROWS_OFFSET_TABLE_H
#define TD_PARSER_ROWS_OFFSET_TABLE_H

#include "parser/rows/index/row_index.h"

struct td_offset_table {
    uint32_t row_count;
    uint64_t end;         /* of the table in the file */
    uint64_t first, last; /* offsets of the first row and of the end of the last one; end <= first <= last <= the file's
                             size */
};

/* Reads the first and the last offset of the table, and makes *out an index of layout TD_ROWS_OFFSETS. `what` names the
 * file in messages ("MDS shard"). Errors: TD_INVALID_ARGUMENT with the position when the table exceeds the file, or
 * when its first or last offset is wrong; and those of the input. */
bool td_offset_table_read(const struct td_input *data, const char *what, struct td_offset_table *table,
                          struct td_row_index *out, struct td_error *err);

#endif
