/* Derives a repository's task, library, formats, tags and number of parameters from its small files and checkpoints.
 * Shared by the facades that describe repositories. Pure; any thread. */
#ifndef TD_RANK_REPO_ABOUT_H
#define TD_RANK_REPO_ABOUT_H

#include "catalog/model/facts.h"
#include "rank/repo_view.h"

enum { TD_DERIVED_TAGS = 16, TD_SUM_DTYPES = 128 };

/* The tag of repositories with files that are not what their names say. */
#define TD_UNREADABLE_TAG "unreadable-files"

/* The description. Borrows the view and its snapshot. */
struct td_repo_about {
    const struct td_repo_view *view;
    bool of_dataset;
    const struct td_facts *card, *config, *tokenizer, *diffusers, *adapter; /* or NULL */
    const char *pipeline_tag, *library;   /* from the card, else derived; NULL: unknown */
    const char *derived[TD_DERIVED_TAGS]; /* tags that do not come from the card; no duplicates */
    size_t derived_count;
};

/* Derives the description of the view. error_count: the number of files that are not what their names say and of sets
 * of files that are not whole; above 0, the repository gets TD_UNREADABLE_TAG. */
void td_repo_about_init(struct td_repo_about *about, const struct td_repo_view *view, bool of_dataset,
                        size_t error_count);

/* Returns the first checkpoint of this format in the view's own directory with files that the view shows as they are on
 * disk, or NULL. */
const struct td_checkpoint *td_repo_about_checkpoint(const struct td_repo_about *about, const char *format);

/* Sums the elements of all parts by type, at most TD_SUM_DTYPES of them; returns the number of types. Sums stop at
 * 2^64-1. */
size_t td_checkpoint_sum_elements(const struct td_checkpoint *checkpoint, struct td_dtype_count counts[TD_SUM_DTYPES],
                                  uint64_t *total);

#endif
