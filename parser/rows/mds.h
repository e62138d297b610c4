/* MDS: one shard of a dataset of mosaicml-streaming. Source: streaming/base/format/mds/writer.py and reader.py of
 * mosaicml-streaming 0.13.
 *
 *     u32 n, u32 offsets[n + 1], the shard's configuration in JSON, the samples one after another
 *
 * All numbers are little-endian; offsets count from the file's start. A row is a sample, as MDSReader.get_sample_data
 * returns it: the sizes of the columns without a fixed size, u32 each, and then the columns' values. The table stays in
 * the file and is read when rows are found, so one wrong offset only spoils the row that ends there and the row that
 * begins there.
 *
 * `columns` are column_names and column_encodings of the configuration. They are NULL where it has none, as the library
 * takes the configuration from index.json and never reads this copy of it: so nothing in it is refused.
 *
 * Refused: a table that is not all in the file, a first offset that is not after the table, a last offset that is not
 * the file's size. Compressed shards have other names (.mds.zstd) and are not of this format. */
#ifndef TD_PARSER_ROWS_MDS_H
#define TD_PARSER_ROWS_MDS_H

#include "parser/rows/index/row_format.h"

enum { TD_MDS_CONFIG_BYTES = 1024 * 1024 }; /* of a longer configuration the columns are not read */

extern const struct td_row_format td_row_format_mds;

#endif
