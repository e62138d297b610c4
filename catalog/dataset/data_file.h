/* Files with rows: decides, by names alone, which files of a repository hold rows, in which format. */
#ifndef TD_CATALOG_DATASET_DATA_FILE_H
#define TD_CATALOG_DATASET_DATA_FILE_H

#include "catalog/names/repo.h"
#include "parser/rows/index/row_format.h"

/* Facts about a repository, computed once for all of its files. */
struct td_data_files {
    const struct td_snapshot *snapshot;
    const struct td_repo *repo;
    bool has_images; /* image files are rows */
};

/* A file with rows, or a file from which the datasets library, but not the server, reads rows. */
struct td_data_file {
    const struct td_row_format *format; /* NULL: its rows are not served */
    const struct td_entry *table;       /* the file beside it with the places of its rows; NULL: none */
    const char *reason;                 /* why its rows are not served, static; NULL with a format */
    bool is_only_by_name; /* report the reason only if the path names a split or the card names the file: a .txt may
                             hold anything */
};

/* The format of image folders: each file is one row. It has no index. */
extern const struct td_row_format td_row_format_images;

/* Looks at the repository, which is borrowed. */
void td_data_files_init(struct td_data_files *files, const struct td_snapshot *snapshot, const struct td_repo *repo);

/* Sets *out for a file of the repository that holds rows, or that clients would expect to hold rows; returns false for
 * any other file. Files whose extension many formats share (.bin) are recognized by the files beside them: NAME.idx
 * (Megatron), index.json (LitData). Images are rows below datasets/, beside metadata.csv or metadata.jsonl, and in
 * folders train/CLASS/; .npy and raw token files (NAME.uint16.bin) below datasets/ alone. metadata.csv and
 * metadata.jsonl describe images where there are any.
 *
 * A .json file is JSON Lines if td_file.json_shape says so. Outside datasets/ it must have at least two lines, because
 * folders of all kinds hold .json files of one line. Files in which tools describe datasets (index.json,
 * dataset_info.json ...) hold no rows. These files get a reason: Git LFS pointers, other .json files, compressed files
 * (.jsonl.gz), and formats that only the library reads (.txt, .xml, .zip ...). */
bool td_data_file_of(const struct td_data_files *files, const struct td_entry *entry, struct td_data_file *out);

#endif
