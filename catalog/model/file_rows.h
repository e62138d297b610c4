/* The rows of one file: its index, and the progress of building it. A file has a td_file_rows for each format that it
 * was read as, mostly one. The indexer (row_indexer.h) makes the index once for each identity of the file, so snapshots
 * that share the file share the index. */
#ifndef TD_CATALOG_MODEL_FILE_ROWS_H
#define TD_CATALOG_MODEL_FILE_ROWS_H

#include "core/budget.h"
#include "core/digest.h"
#include "core/error.h"
#include "parser/rows/index/row_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum td_rows_state {
    TD_ROWS_PENDING, /* the index is still to be made, or is being made */
    TD_ROWS_READY,   /* `index` and `sample` are valid */
    TD_ROWS_FAILED   /* there is no index, for the reason in `error` */
};

struct td_file_rows {
    struct td_file_rows *next; /* of the same file, read as another format or beside another table */
    const struct td_row_format *format;
    uint64_t table_number;             /* of the td_file with the positions of the rows; 0: no such file */
    _Atomic(enum td_rows_state) state; /* leaves TD_ROWS_PENDING once; what it names never changes afterwards */
    _Atomic uint64_t done_bytes;       /* bytes of the file that the indexer has read */
    struct td_row_index index;
    char sample[TD_TAG_BYTES]; /* a hash over the size, the number of rows and up to 64 places of the file */
    char *error;               /* one line */
    struct td_budget *memory;  /* that memory_bytes are taken from; borrowed; NULL: none */
    size_t memory_bytes;
};

/* Returns the rows in this format from the list of a file, which the file keeps until its end; adds them in the state
 * TD_ROWS_PENDING when they are new. Returns NULL when memory is short. For the thread that builds snapshots. */
struct td_file_rows *td_file_rows_get(struct td_file_rows **list, const struct td_row_format *format,
                                      uint64_t table_number);

/* Frees the list and returns its memory to the account. NULL: does nothing. */
void td_file_rows_free(struct td_file_rows *rows);

/* Returns whether the index is there; `index` and `sample` may then be read. Any thread. */
static inline bool td_file_rows_are_ready(const struct td_file_rows *rows)
{
    return atomic_load_explicit(&rows->state, memory_order_acquire) == TD_ROWS_READY;
}

#endif
