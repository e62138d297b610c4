/* Answers with rows of a dataset: finds the rows in the files of a split and makes them the body of an answer. */
#ifndef TD_RANK_ROW_ANSWER_H
#define TD_RANK_ROW_ANSWER_H

#include "rank/split_files.h"
#include "storage/body.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_ROWS_QUICK = 64,                /* rows that a thread which may not wait finds itself */
    TD_ROWS_MOST = 65536,              /* rows of one answer, except lines that follow one another */
    TD_ROWS_KEPT_FILES = 64,           /* files that an answer keeps open until it is sent; rows of more are copied */
    TD_ROWS_COPY_ALL_BYTES = 67108864, /* bytes of the rows of so many files */
    TD_ROWS_COPY_BYTES = 4194304,      /* rows of fewer than TD_ROW_REFERENCE_BYTES are copied up to this sum */
    TD_ROW_REFERENCE_BYTES = 16384,    /* a row from this length on is sent from its file */
    TD_ROWS_BUDGET_BYTES = 268435456   /* memory of all answers with rows together */
};

/* The forms of a body of rows. */
enum td_rows_form {
    TD_ROWS_FRAME, /* u64 count, count + 1 u64 offsets from the start of the row area, the row area; little-endian */
    TD_ROWS_RAW,   /* rows as stored: lines joined by LF, with one at the end; others one after the other */
    TD_ROWS_TAR,   /* runs of a tar, and the 1,024 zero bytes that end one */
    TD_ROWS_ARROW, /* an IPC stream; by td_arrow_rows_append (arrow_rows.h), not by td_row_answer_append */
    TD_ROWS_JSON,  /* a JSON document; by td_row_json_append (row_json.h) */
    TD_ROWS_BARE,  /* the bytes of rows alone: of a single row */
    TD_ROWS_FORMS
};

/* Returns whether rows that follow one another may be more than TD_ROWS_MOST in this form: they are one piece of their
 * file then. */
bool td_rows_are_runs(const struct td_split *split, enum td_rows_form form);

/* Appends the rows to the empty body. Short rows are copied, long ones refer to their files, and many rows become a
 * generated blob. Errors: TD_FAILED_PRECONDITION, with the reason, for rows that cannot be cut out; TD_UNAVAILABLE when
 * a file changed (try again after the next scan); TD_RESOURCE_EXHAUSTED; TD_IO; td_may_wait. */
bool td_row_answer_append(const struct td_split_view *view, const struct td_row_list *list, enum td_rows_form form,
                          struct td_body *body, struct td_error *err);

/* Has the kernel begin to read rows that a client will ask for next, if the first ones are not in memory. Does not wait
 * for the disk. */
void td_row_answer_read_ahead(const struct td_split_view *view, const struct td_row_list *list);

#endif
