/* Grouping: turns the files that one scan found into models, repositories and buckets. */
#ifndef TD_CATALOG_SCAN_GROUPING_H
#define TD_CATALOG_SCAN_GROUPING_H

#include "catalog/checkpoints/checkpoint.h"
#include "catalog/model/snapshot.h"
#include "catalog/model/version_name.h"
#include "catalog/scan/walk.h"

/* The files that belong to a checkpoint by their names, and what the grouping needs from the scan. The scan sets the
 * first block and owns `found`; the grouping owns `candidates`; all else is borrowed. */
struct td_grouping {
    struct td_snapshot *snapshot;       /* has its root and its entries already */
    const struct td_snapshot *previous; /* may be NULL; lends what is unchanged */
    const struct td_found **found;      /* for each entry, what the walk found or found earlier; NULL when names_only */
    const struct td_cache_folder *caches; /* the commits of Hugging Face caches that the snapshot shows */
    size_t cache_count;
    const struct td_version_prefixes *version_prefixes; /* of --version-prefix; outlives the snapshot; may be NULL */
    const char *kept_version; /* all files are of this version, as td_found has it; NULL: as `found` says */
    bool is_of_subfolder;     /* of kept_version */
    bool names_only; /* no file can be read yet: models get no checkpoints, and only they, repositories and families are
                        made */
    struct td_error *err;

    struct td_candidate *candidates;
    size_t candidate_count, candidate_capacity;
    size_t in_directories; /* number of candidates in directories below the root */
    bool root_is_model;    /* the files directly in the root are one model */
};

/* Adds a file that belongs to a checkpoint by its name. `entry` is NULL when the file could not be opened; then `error`
 * is the reason. Borrows both strings. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_grouping_add(struct td_grouping *g, const char *path, const struct td_entry *entry, const char *error);

/* Sets the snapshot's models, repositories, families and buckets. A file or a model that cannot be published becomes a
 * problem of its model or of the snapshot. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_grouping_build(struct td_grouping *g);

/* Sets the tags of a model whose files and checkpoints are known. `tag` leaves digests out, so it does not change when
 * a digest becomes known; `content_tag` is a hash over them. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_model_make_tag(const struct td_snapshot *snapshot, struct td_model *model, struct td_error *err);

/* Frees the list of candidates. Call in every case. */
void td_grouping_fini(struct td_grouping *g);

#endif
