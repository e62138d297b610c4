/* Files with rows: decides, by names alone, which files of a repository hold rows, in which format. */
#ifndef TD_CATALOG_DATASET_DATA_FILE_H
#define TD_CATALOG_DATASET_DATA_FILE_H

#include "catalog/repo.h"
#include "parser/rows/row_format.h"

/* What is asked once for each repository. */
struct td_data_files {
    const struct td_snapshot *snapshot;
    const struct td_repo *repo;
    bool has_images; /* image files are rows */
};

/* A file with rows. */
struct td_data_file {
    const struct td_row_format *format;
    const struct td_entry *table; /* the file beside it that tells where rows lie; NULL: there is none */
};

/* The format of image folders: each file is one row. It has no index. */
extern const struct td_row_format td_row_format_images;

/* Looks at the repository, which is borrowed. */
void td_data_files_init(struct td_data_files *files, const struct td_snapshot *snapshot, const struct td_repo *repo);

/* Sets *out for a file of the repository that holds rows; returns false for another one. Files whose names have no
 * extension of their own (.bin) count by what lies beside them: NAME.idx (Megatron), index.json (LitData). Images are
 * rows below datasets/, beside metadata.csv or metadata.jsonl, and in folders train/CLASS/; .npy and raw token files
 * (NAME.uint16.bin) below datasets/ alone. metadata.csv and metadata.jsonl describe images where there are any. */
bool td_data_file_of(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out);

#endif
