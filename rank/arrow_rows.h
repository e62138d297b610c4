/* Answers with rows of Arrow files: a complete IPC stream, whatever rows are wanted. */
#ifndef TD_RANK_ARROW_ROWS_H
#define TD_RANK_ARROW_ROWS_H

#include "rank/split_files.h"
#include "storage/body.h"

enum { TD_ARROW_ROWS_BYTES = 67108864 /* memory that making one answer may take */ };

/* Appends the rows to an empty body, and sets *skip to the rows of the stream that come before the first wanted one:
 * not 0 only where batches cannot be cut (compressed ones, say), and consecutive rows come as the whole batches that
 * hold them. Consecutive rows are runs of the files, except for the batches at both ends; others are copied. Rows of
 * several files are one stream when the files' schema messages are equal. Errors: TD_FAILED_PRECONDITION with the
 * reason when rows cannot be cut or gathered, schemas differ, a batch is wrong or the rows take more memory than
 * TD_ARROW_ROWS_BYTES; TD_UNAVAILABLE when a file changed; TD_RESOURCE_EXHAUSTED; td_may_wait. */
bool td_arrow_rows_append(const struct td_split_view *view, const struct td_row_list *list, uint64_t *skip,
                          struct td_body *body, struct td_error *err);

#endif
