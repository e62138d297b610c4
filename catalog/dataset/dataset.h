/* Datasets: decides which folders are datasets, and assigns the rows of their files, in order, to splits.
 *
 * A dataset is a repository (repo.h) below datasets/ or in a dataset folder of a Hugging Face cache; or another one
 * that holds no checkpoint and does not describe a model, or whose README.md declares data files in its front matter
 * (`configs`). A split has at least one file of a format that has rows (row_format.h). A dataset below datasets/, or
 * with such a card, may have no splits; its `problems` then say why.
 *
 * Splits have the names that the datasets library gives them: by `data_files` of `configs`, else by names such as
 * data/train-00000-of-00010.parquet, else by words in folders (train, validation, test ...), else by words in the names
 * of files, else "train". A configuration without `data_files` has the files in its `data_dir`; their paths name the
 * splits. Splits of other configurations than the default one are called CONFIG/SPLIT. A split has one format, which
 * most of its files have. The rows of a split are those of its files, in the order of their paths. */
#ifndef TD_CATALOG_DATASET_DATASET_H
#define TD_CATALOG_DATASET_DATASET_H

#include "catalog/model/snapshot.h"
#include "catalog/names/repo.h"

/* A file of a split. */
struct td_split_file {
    const struct td_entry *entry;
    const char *path;             /* below the dataset */
    const struct td_entry *table; /* the file beside it with the places of its rows; NULL: none */
    struct td_file_rows *rows;    /* owned by the file; NULL: the file as a whole is one row */
};

/* The facts about a split once all of its indexes are ready. Immutable. */
struct td_split_rows {
    uint64_t row_count;
    char fingerprint[TD_TAG_BYTES]; /* a hash over the path below the dataset, the number of rows and the `sample` of
                                       each file, in order: equal for copies of the files under the same paths, and
                                       another one when rows come, go, move or change size */
    const char *reason;             /* why rows cannot be cut out of the first such file; NULL: they can */
    uint64_t ends[];                /* for each file: the number of rows up to its end */
};

struct td_split {
    const char *name;
    const struct td_row_format *format;
    struct td_split_file *files;
    size_t file_count;
    uint64_t file_bytes;
    char tag[TD_TAG_BYTES];        /* of the files' paths and tags: changes whenever any row may change */
    char former_tag[TD_TAG_BYTES]; /* the tag until all its files are hashed */
    bool is_hashed;                /* all its files were hashed when the tag was made */
    _Atomic(struct td_split_rows *) rows;
};

struct td_dataset {
    const char *id; /* the repository's, without datasets/ */
    const struct td_repo *repo;
    struct td_split *splits; /* train, validation and test first, the others by name */
    size_t split_count;
    struct td_problems problems; /* files in no split, by their path below the dataset, and why; also what is wrong with
                                    its README.md */
};

/* The datasets of a snapshot or of a view. */
struct td_datasets {
    struct td_snapshot_part part;
    struct td_dataset *items; /* sorted by id */
    size_t count;
};

/* Returns the snapshot's datasets; none before td_datasets_build. Any thread. */
const struct td_datasets *td_datasets_of(const struct td_snapshot *snapshot);

/* Makes the datasets of the snapshot. Call once, when the snapshot has its repositories. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_datasets_build(struct td_snapshot *snapshot, struct td_error *err);

/* Makes the datasets of a view: those of `base` whose repositories repo_of returns, with these repositories. Their
 * splits stay those of `base`, which must outlive the view. Call once. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_datasets_copy(struct td_snapshot *view, const struct td_snapshot *base,
                      const struct td_repo *(*repo_of)(void *context, size_t number), void *context,
                      struct td_error *err);

/* Returns the dataset with this id, or NULL. An id of one segment may have the default namespace before it. */
const struct td_dataset *td_dataset_find(const struct td_snapshot *snapshot, struct td_text id);

/* Returns the index of the first dataset whose id is greater than the given one (where a page continues). */
size_t td_datasets_after(const struct td_snapshot *snapshot, struct td_text id);

/* Returns the split of this name, or NULL. */
const struct td_split *td_dataset_find_split(const struct td_dataset *dataset, struct td_text name);

/* Sums of the indexes of a split's files, for people and for clients that wait. */
struct td_split_progress {
    uint64_t done_bytes;                /* of file_bytes */
    size_t ready_count, failed_count;   /* files */
    const struct td_split_file *failed; /* the first file without an index, or NULL */
};

struct td_split_progress td_split_progress(const struct td_split *split);

/* Returns what is known of the split's rows, valid as long as the snapshot. Errors: TD_RESOURCE_EXHAUSTED while indexes
 * are being made (try again) and when memory is short; TD_FAILED_PRECONDITION, with the file and the reason, when one
 * could not be made. Any thread. */
const struct td_split_rows *td_split_rows_get(const struct td_split *split, struct td_error *err);

/* Returns the number of the file that holds this row, below row_count, and sets *within to the row's number in it. */
size_t td_split_locate(const struct td_split *split, const struct td_split_rows *rows, uint64_t row, uint64_t *within);

#endif
