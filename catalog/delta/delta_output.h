/* Writes the version that a chain of deltas leads to, as a full version. */
#ifndef TD_CATALOG_DELTA_DELTA_OUTPUT_H
#define TD_CATALOG_DELTA_DELTA_OUTPUT_H

#include "catalog/delta/delta_chain.h"
#include "core/cancel.h"
#include "core/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The files of the base, and the functions that are called while the new ones are written. */
struct td_delta_output {
    const struct td_delta_chain *chain;
    const struct td_cancel *cancel;                 /* may be NULL */
    void (*advance)(void *context, uint64_t bytes); /* so many more bytes are written; may be NULL */
    void *context;

    /* set by td_delta_output_list */
    char **others; /* paths of the files that are copied as they are; owned */
    size_t other_count, other_capacity;
    uint64_t total_bytes; /* that are to be written */
    size_t left_out_count;
    char left_out[NAME_MAX + 1]; /* the name of one of the files that are left out */
};

/* Lists the files of the base that are no part of its weights: config.json, the tokenizer and so on. Leaves out other
 * checkpoints (such as a pytorch_model.bin), since their weights are not those of the new version, and names that begin
 * with a dot. The caller sets the first members and zeroes the others, and calls td_delta_output_fini in any case.
 * Errors: those of td_root_open_directory, td_disk_list and td_delta_place_open. */
bool td_delta_output_list(struct td_delta_output *output, struct td_error *err);

/* Writes all files into the empty directory `directory`, a descriptor, and makes them durable: the files of the base's
 * weights under their names, with the tensors that change in place of the old ones; an index of the new version; and
 * the files that td_delta_output_list has found. The file system shares unchanged bytes where it can. Needs little
 * memory, and that which td_delta_patch_apply says, for one tensor at a time. `shown` names the directory in messages.
 * Errors: those of td_delta_patch_apply, with the file and the tensor; TD_CONFLICT when cancelled; TD_UNAVAILABLE when
 * a file of the base or of a delta changed; TD_RESOURCE_EXHAUSTED also for a full disk; TD_IO. */
bool td_delta_output_write(const struct td_delta_output *output, int directory, const char *shown,
                           struct td_error *err);

void td_delta_output_fini(struct td_delta_output *output);

#endif
