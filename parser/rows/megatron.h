/* Megatron-LM's IndexedDataset: X.bin, the tokens of all sequences, and X.idx, the table. Source:
 * megatron/core/datasets/indexed_dataset.py of Megatron-LM.
 *
 *     "MMIDIDX\0\0", u64 version 1, u8 type of the tokens, u64 sequences, u64 entries of the list of documents,
 *     i32 lengths[sequences] in tokens, i64 pointers[sequences] in bytes, i64 documents[entries],
 *     and in multimodal datasets i8 modes[sequences]
 *
 * All numbers are little-endian. A row is a sequence: its tokens as stored in X.bin. Documents and modes are not read.
 * Lengths and pointers stay in the table and are read when rows are found.
 *
 * Refused: another magic, version or type; a table of another size; a first sequence that does not begin at byte 0, or
 * a last one that does not end with X.bin, as the writer lays sequences one after another. When another sequence has a
 * wrong place, only that row is an error.
 *
 * `.bin` says nothing, so the format has no extension: X.bin is of this format where X.idx is beside it. */
#ifndef TD_PARSER_ROWS_MEGATRON_H
#define TD_PARSER_ROWS_MEGATRON_H

#include "parser/rows/index/row_format.h"

extern const struct td_row_format td_row_format_megatron;

#endif
