/* Names of splits by the paths of files, as the datasets library finds them (its data_files.py, release 5.2). */
#ifndef TD_CATALOG_MODEL_SPLIT_NAME_H
#define TD_CATALOG_MODEL_SPLIT_NAME_H

#include "core/text.h"

#include <stdbool.h>

/* Sets *name to the part of the path that names the split of a file like data/train-00000-of-00010.parquet: directly in
 * the folder "data", any word before the numbers. Returns false for other paths. */
bool td_split_of_shard(struct td_text path, struct td_text *name);

/* Bits for the splits that words stand for: "train" for train and training; "validation" for validation, valid, dev and
 * val; "test" for test, testing, eval and evaluation. A word must be in lower case and stand between separators: '-',
 * '.', '_', a blank, a digit. */
enum { TD_SPLIT_TRAIN = 1, TD_SPLIT_VALIDATION = 2, TD_SPLIT_TEST = 4 };

/* Returns the splits (bits TD_SPLIT_...) that words in the names of the path's folders stand for. A word may also begin
 * or end a name: "train", "my-train", "train_1". Returns 0 for a file in a folder that begins with "__". */
unsigned td_splits_of_folders(struct td_text path);

/* Returns the splits that words in the file's name stand for. A word may also begin the name, but a separator must
 * follow it: "train.csv", "x_train1.csv", but not "train". Returns 0 for a file in a folder that begins with "__". */
unsigned td_splits_of_file_name(struct td_text path);

/* Returns the name of the lowest split in `splits`, a static text. `splits` must not be 0. */
const char *td_split_word(unsigned splits);

/* Returns whether a folder of this name can be a part of a dataset: its name is "data", or a word in it, in upper or
 * lower case, stands for a split. */
bool td_split_is_folder(struct td_text name);

#endif
