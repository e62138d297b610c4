/* Names of splits by the paths of files, as the datasets library finds them (its data_files.py). */
#ifndef TD_CATALOG_DATASET_SPLIT_NAME_H
#define TD_CATALOG_DATASET_SPLIT_NAME_H

#include "core/text.h"

#include <stdbool.h>

/* Sets *name to the part of the path that names the split of a file like data/train-00000-of-00010.parquet: directly in
 * the folder "data", any word before the numbers. Returns false for other paths. */
bool td_split_of_shard(struct td_text path, struct td_text *name);

/* Returns the split that a word in the path stands for: "train" for train and training, "validation" for validation,
 * valid, dev and val, "test" for test, testing, eval and evaluation. The word is a folder, or a part of the file's name
 * between characters that are no letters. Folders and names are looked at from left to right; static. NULL: there is no
 * such word. */
const char *td_split_of_words(struct td_text path);

#endif
