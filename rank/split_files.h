/* The files of a split as they are needed: opens a file when the first row in it is looked for, and finds rows. One
 * thread at a time. */
#ifndef TD_RANK_SPLIT_FILES_H
#define TD_RANK_SPLIT_FILES_H

#include "catalog/catalog.h"
#include "catalog/dataset/dataset.h"
#include "core/budget.h"
#include "core/buffer.h"
#include "core/cancel.h"
#include "storage/body.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A split to read rows from; all members are borrowed. The snapshot outlives every use. */
struct td_split_view {
    struct td_catalog *catalog;
    struct td_snapshot *snapshot;
    const struct td_split *split;
    const struct td_split_rows *rows;
    struct td_budget *budget;       /* for the memory of answers with rows */
    const struct td_cancel *cancel; /* of the request, or NULL */
};

/* Wanted rows: those at `numbers`, in this order, or when that is NULL the rows [first, first + count). All are below
 * the split's row_count. */
struct td_row_list {
    uint64_t first;
    size_t count;
    const uint64_t *numbers;
};

/* A file that is open. */
struct td_opened_file {
    size_t number; /* in the split, plus 1; 0: this slot is free */
    struct td_blob *data, *table;
};

enum {
    TD_SPLIT_FILES_MOST = 4096,    /* files that are open at once: each is mapped, with a descriptor */
    TD_SPLIT_QUICK_BYTES = 262144, /* bytes that a thread which may not wait reads to find a row */
    TD_SPLIT_ASK_BYTES = 1048576   /* bytes that are read before it is asked again whether the request is cancelled */
};

struct td_split_files {
    const struct td_split_view *view;
    struct td_opened_file *slots; /* open addressing by number; a power of two */
    size_t slot_count, open_count, most;
    size_t find_count; /* calls of td_split_files_find */
    bool closes; /* closes all files when one more than `most` is needed, in place of an error; set by the owner, who
                    keeps no places then */
};

/* A found row: its place in the file in this slot. */
struct td_row_place {
    struct td_row row;
    size_t slot;
};

/* Starts with no file open. At most `most` and TD_SPLIT_FILES_MOST files are open at once. Takes the memory from the
 * view's budget. Errors: TD_RESOURCE_EXHAUSTED, or as td_budget_refuse. Call td_split_files_fini in every case. */
bool td_split_files_init(struct td_split_files *files, const struct td_split_view *view, size_t most,
                         struct td_error *err);

/* Closes all files. */
void td_split_files_fini(struct td_split_files *files);

/* Returns the file with this number in the split; opens it when that was not done yet. NULL: an error:
 * TD_INVALID_ARGUMENT when too many files are open, TD_UNAVAILABLE when one that has to be closed has changed, or those
 * of td_file_source_map. */
const struct td_opened_file *td_split_files_open(struct td_split_files *files, size_t number, struct td_error *err);

/* An input over a blob for work that may take long. Reading fails with TD_UNAVAILABLE once the request is cancelled,
 * and as td_may_wait after TD_SPLIT_QUICK_BYTES. */
struct td_split_reader {
    struct td_blob *blob; /* NULL: the input is empty */
    const struct td_cancel *cancel;
    uint64_t read_bytes;
    uint64_t ask_at; /* asks for `cancel` once so many bytes are read; 0: at the first read */
};

/* Returns the input of a reader, which must outlive it. One thread at a time. */
struct td_input td_split_input(struct td_split_reader *reader);

/* Finds the row with this number and up to count - 1 that follow it in its file. Writes their places, and returns how
 * many they are; 0: an error. Errors: those of td_split_files_open and td_row_index_find; TD_UNAVAILABLE soon after the
 * request is cancelled. */
size_t td_split_files_find(struct td_split_files *files, uint64_t row, size_t count, struct td_row_place *places,
                           struct td_error *err);

/* Returns whether no file that was opened has changed since; else sets TD_UNAVAILABLE. */
bool td_split_files_are_unchanged(const struct td_split_files *files, struct td_error *err);

/* Appends a text, whose buffer has the view's budget, to the body, and leaves the buffer empty. Errors: as
 * td_buffer_refuse for a buffer that has failed; TD_RESOURCE_EXHAUSTED. */
bool td_split_append_text(const struct td_split_view *view, struct td_buffer *text, struct td_body *body,
                          struct td_error *err);

/* Asks the kernel to read ahead the first 4,096 rows, and the bytes that are needed to find them, if the first rows are
 * not in memory. Does not wait for the disk, and reports no errors: finding the rows does. Does nothing on a thread
 * that must not wait (core/waiting.h), because opening a file may take long. */
void td_split_files_read_ahead(struct td_split_files *files, const struct td_row_list *list);

#endif
