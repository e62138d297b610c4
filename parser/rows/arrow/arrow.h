/* Arrow IPC, both forms: the stream (as `datasets` writes it) and the file (also known as Feather V2), which begins and
 * ends with "ARROW1". Source: "Arrow Columnar Format", version 1.5. Streams from before 0.15, whose messages lack the
 * four bytes FF, are read; bytes after the mark of the end of a stream are ignored, as by pyarrow. Refused: metadata
 * before V4, tensors, and a file whose footer has another schema than its first message: readers of the file use the
 * footer's, and clients that get rows use the message's.
 *
 * An index has the layout TD_ROWS_BLOCKS: blocks of TD_ARROW_WORDS words, first those of the dictionary batches, which
 * have 0 rows, then those of the record batches, which may have 0 rows, each in the order in which they apply:
 *
 *     {offset of the message, its bytes, rows, bytes up to its body, first row, 0}                of a record batch
 *     {offset of the message, its bytes, 0, bytes up to its body, first batch, end batch}        of a dictionary batch
 *
 * A dictionary batch applies to the record batches from `first batch` up to but without `end batch`, where another
 * dictionary batch replaces it (UINT64_MAX: no other one does). params[1]: number of dictionary batches; params[2],
 * params[3]: offset and bytes of the schema message; params[4]: enum td_arrow_obstacle, why rows cannot be cut
 * (arrow_cut.h), as in `reason`; params[5]: why they cannot be gathered. Batches can be sent whole in any case. */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_H
#define TD_PARSER_ROWS_ARROW_ARROW_H

#include "parser/rows/index/row_format.h"

enum { TD_ARROW_WORDS = 6 };

/* The words of a block. */
enum {
    TD_ARROW_OFFSET,
    TD_ARROW_BYTES_WORD,
    TD_ARROW_ROWS,
    TD_ARROW_METADATA,
    TD_ARROW_FIRST,  /* first row, or first batch */
    TD_ARROW_BEHIND, /* the batch after the last one that the dictionary batch applies to */
};

/* The params of an index. */
enum {
    TD_ARROW_PARAM_DICTIONARIES = 1,
    TD_ARROW_PARAM_SCHEMA,
    TD_ARROW_PARAM_SCHEMA_BYTES,
    TD_ARROW_PARAM_CUT,
    TD_ARROW_PARAM_GATHER,
};

extern const struct td_row_format td_row_format_arrow;

#endif
