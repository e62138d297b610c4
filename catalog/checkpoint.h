/* Checkpoints: which files of a directory make one complete set of tensors, and under which id. */
#ifndef TD_CATALOG_CHECKPOINT_H
#define TD_CATALOG_CHECKPOINT_H

#include "catalog/snapshot.h"

/* A file that by its name belongs to a checkpoint, in one directory. */
struct td_candidate {
    const char *path;       /* as clients know it */
    size_t directory_len;   /* 0: directly in the root */
    size_t model_len;       /* of the path's beginning that its model's other files share: the directory; of a file
                                   directly in the root the stem of its group, or all, or nothing */
    bool alone;             /* looked at by itself: a shard too is then a whole */
    enum td_file_kind kind; /* by its name */
    const struct td_entry *entry; /* NULL when it could not even be opened */
    const char *error;            /* then the reason */
};

/* Groups the candidates of one directory into checkpoints, sets model->checkpoints (the default one first) and
 * adds a problem for every file and set that cannot be published. In each of two families one set has a short id, that
 * which Hugging Face's from_pretrained would load: `safetensors` (files of that format) and `pytorch` (files named
 * pytorch_model*.bin). It is, in this order:
 *   1. model.safetensors                            pytorch_model.bin
 *   2. the files of model.safetensors.index.json    of pytorch_model.bin.index.json
 *   3. the only set of the family: another index, a complete -NNNNN-of-NNNNN group, or one file
 *   4. several single files that share no tensor name, all together
 * Every other set goes by its own name: the file's, the index's, or the group's stem with the extension, of a split
 * GGUF the stem alone (its first file's name when something else is called that, or may be). The default is
 * `safetensors`, else `pytorch`, else the first by name that holds tensors. Beside an index that is refused nothing of
 * its family but the whole file is published. Files that an index names, and incomplete groups, are never published by
 * themselves. `previous` (may be NULL) lends the joins of checkpoints whose files are still the same. */
bool td_checkpoints_build(struct td_snapshot *snapshot, const struct td_snapshot *previous, struct td_model *model,
                          const struct td_candidate *candidates, size_t count, struct td_error *err);

#endif
