/* Grouping: turns the files that one scan found into models, repositories and buckets. */
#ifndef TD_CATALOG_GROUPING_H
#define TD_CATALOG_GROUPING_H

#include "catalog/checkpoint.h"
#include "catalog/snapshot.h"
#include "catalog/walk.h"

/* The files that belong to a checkpoint by their names, and what the grouping needs to know of the scan. The scan sets
 * the first block and owns `found`; all else is borrowed, except for `candidates`. */
struct td_grouping {
    struct td_snapshot *snapshot;       /* has its root and its entries */
    const struct td_snapshot *previous; /* may be NULL; lends what is still the same */
    const struct td_found **found;      /* as the walk found each entry */
    const struct td_walk *walk;         /* has found the entries' files and the Hugging Face cache folders */
    struct td_error *err;

    struct td_candidate *candidates;
    size_t candidate_count, candidate_capacity;
    size_t in_directories; /* candidates in directories below the root */
    bool root_is_model;    /* the files directly in the root are one model */
};

/* Adds a file that belongs to a checkpoint by its name. `entry` is NULL when it could not be opened; then `error` is
 * the reason. Both strings are borrowed. Fails only for want of memory. */
bool td_grouping_add(struct td_grouping *g, const char *path, const struct td_entry *entry, const char *error);

/* Sets the snapshot's models, repositories and buckets. A file or a model that cannot be published becomes a problem of
 * its model or of the snapshot. Fails only for want of memory. */
bool td_grouping_build(struct td_grouping *g);

/* Frees the list of candidates. */
void td_grouping_fini(struct td_grouping *g);

#endif
