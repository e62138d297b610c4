/* Tokens without a header. The file's name gives their type and how many of them are a row:
 *
 *     NAME.DTYPE.bin            a row is one item
 *     NAME.DTYPExCOUNT.bin      a row is COUNT items, from 1 on, in decimal without leading zeros
 *
 * DTYPE is uint8, int8, uint16, int16, uint32, int32, uint64, int64, float16, bfloat16, float32 or float64,
 * little-endian. NAME has at least one character, and letters have their case. The convention is this server's own:
 * files of numpy's tofile, as nanoGPT and OLMo write them, become datasets when they are given such a name
 * (train.uint16x1024.bin).
 *
 * Refused: another name, and a size that is not a multiple of a row.
 *
 * `.bin` says nothing, so the format has no extension: td_tokens_name decides by the file's name. */
#ifndef TD_PARSER_ROWS_TOKENS_H
#define TD_PARSER_ROWS_TOKENS_H

#include "parser/rows/index/row_format.h"

struct td_tokens {
    const char *type;    /* static: "uint16" */
    uint32_t item_bytes; /* of one item: 1, 2, 4 or 8 */
    uint64_t count;      /* items of a row */
    bool has_count;      /* the name has a `count` */
};

/* Returns whether a file's name, without its folder, is of the form above, and sets *tokens. A row has less than 2^63
 * bytes. */
bool td_tokens_name(const char *file_name, struct td_tokens *tokens);

extern const struct td_row_format td_row_format_tokens;

#endif
