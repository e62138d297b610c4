/* The place of a row in its file. */
#ifndef TD_PARSER_ROWS_INDEX_ROW_H
#define TD_PARSER_ROWS_INDEX_ROW_H

#include <stdint.h>

struct td_row {
    uint64_t offset;
    uint64_t bytes;
};

#endif
