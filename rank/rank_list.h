/* The files of all ranks of a set, made one after the other: for the answers that describe all of them. */
#ifndef TD_RANK_RANK_LIST_H
#define TD_RANK_RANK_LIST_H

#include "core/cancel.h"
#include "rank/rank_store.h"

enum {
    TD_RANK_LIST_WORK_MAX = 4 * 1000 * 1000, /* tensors times ranks of one set, since all of its files are planned */
    TD_RANK_LIST_S = 10                      /* for how long all files are planned; most sets take milliseconds */
};

/* Checks that the set's tensors times its ranks are at most TD_RANK_LIST_WORK_MAX; a set of boxes is never too large.
 * Errors: TD_FAILED_PRECONDITION. */
bool td_rank_list_check(const struct td_rank_set *set, struct td_error *err);

/* Makes the file of every rank of the maker's set, in order, and calls `take` with each; the file is borrowed for the
 * call. `cancel` ends it (NULL: nothing does). Errors: TD_FAILED_PRECONDITION when planning takes more than
 * TD_RANK_LIST_S; TD_RESOURCE_EXHAUSTED once cancel is asked; as td_rank_maker_get; those of `take`. */
bool td_rank_list_make(struct td_rank_maker *maker, const struct td_cancel *cancel,
                       bool (*take)(void *context, uint64_t rank, const struct td_rank_file *file, const char *tag,
                                    struct td_error *err),
                       void *context, struct td_error *err);

#endif
