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

/* A file with rows, or one that the datasets library would read rows from and the server does not. */
struct td_data_file {
    const struct td_row_format *format; /* NULL: its rows are not served */
    const struct td_entry *table;       /* the file beside it that tells where rows lie; NULL: there is none */
    const char *reason;                 /* without a format: why not, static; else NULL */
    bool is_only_by_name;               /* the reason counts only where the path names a split, or a card the file: a
                                           .txt may be anything */
};

/* The format of image folders: each file is one row. It has no index. */
extern const struct td_row_format td_row_format_images;

/* Looks at the repository, which is borrowed. */
void td_data_files_init(struct td_data_files *files, const struct td_snapshot *snapshot, const struct td_repo *repo);

/* Sets *out for a file of the repository that holds rows, or that clients would take for such a file; returns false for
 * another one. Files whose names have no extension of their own (.bin) count by what lies beside them: NAME.idx
 * (Megatron), index.json (LitData). Images are rows below datasets/, beside metadata.csv or metadata.jsonl, and in
 * folders train/CLASS/; .npy and raw token files (NAME.uint16.bin) below datasets/ alone. metadata.csv and
 * metadata.jsonl describe images where there are any.
 *
 * A .json file is JSON Lines if its content is (td_file.json_shape); elsewhere than below datasets/ with two lines at
 * least, as folders of all kinds have some .json file of one line. Names by which tools describe datasets (index.json,
 * dataset_info.json ...) are no data. Git LFS pointers, other .json files and compressed files (.jsonl.gz) and
 * formats that only the library reads (.txt, .xml, .zip ...) get a reason. */
bool td_data_file_of(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out);

#endif
