/* The table of a split's rows as a safetensors file, which is made while it is sent: for each row the number of its
 * file, its offset there and its length. With it a client reads rows from the files by plain ranges, through any cache.
 *
 * Tensors, in this order: "offset" (U64) and "nbytes" (U64), in bytes of the file; "file" (U32), a number in the list
 * "files" of the metadata, a JSON array of paths below the dataset. The metadata also has "dataset", "split", "format"
 * and "fingerprint". Rows of text are without their line ends. */
#ifndef TD_RANK_ROW_TABLE_H
#define TD_RANK_ROW_TABLE_H

#include "rank/split_files.h"
#include "storage/body.h"

/* Appends the table to an empty body. `dataset` has the split. Errors: TD_FAILED_PRECONDITION when rows cannot be cut
 * out, or the header would pass safetensors' limit of 100,000,000 bytes; TD_RESOURCE_EXHAUSTED. The body refers to the
 * snapshot until it ends. */
bool td_row_table_append(const struct td_split_view *view, const struct td_dataset *dataset, struct td_body *body,
                         struct td_error *err);

#endif
