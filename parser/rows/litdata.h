/* LitData: one chunk of an optimized dataset. Source: litdata/streaming/writer.py, item_loader.py and framed_zstd.py of
 * litdata 0.2.76.
 *
 *     u32 n, u32 offsets[n + 1], the items one after another
 *
 * All numbers are little-endian; offsets count from the file's start. A row is an item, as PyTreeLoader reads it: u32
 * sizes of its leaves, and then the leaves; data_format of index.json has the types of the leaves. The table stays in
 * the file and is read when rows are found.
 *
 * For a dataset of dictionaries, newer writers store an Arrow IPC file after the last item in place of the items: all
 * rows of the table are then empty, and rows are counted but not answered. The same holds for items that are packed in
 * frames (compression="zstd" with compression_level="batch"). Items that are packed one by one
 * (compression_level="sample") are answered as stored.
 *
 * Refused: a table that is not all in the file, a first offset that is not the end of the table, and bytes after the
 * last item that are not such an Arrow file. Chunks that are packed as a whole have other names (.zstd.bin), and
 * encrypted chunks are refused because their first bytes fit nothing.
 *
 * `.bin` says nothing, so the format has no extension: chunk-*.bin is a chunk where index.json beside it has "chunks".
 */
#ifndef TD_PARSER_ROWS_LITDATA_H
#define TD_PARSER_ROWS_LITDATA_H

#include "parser/rows/index/row_format.h"

extern const struct td_row_format td_row_format_litdata;

#endif
