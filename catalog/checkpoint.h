/* Checkpoints: decides which files of a directory make one complete set of tensors, and under which id. */
#ifndef TD_CATALOG_CHECKPOINT_H
#define TD_CATALOG_CHECKPOINT_H

#include "catalog/snapshot.h"

/* Whether a file holds one rank's part of a model, judged by its name and the names of its siblings and directories. */
enum td_candidate_part {
    TD_CANDIDATE_WHOLE,
    TD_CANDIDATE_RANK,    /* one rank's part of the model's tensors (catalog/rank_part.h) */
    TD_CANDIDATE_NUMBERED /* a rank part, unless all such files are safetensors and share no tensor */
};

/* A file of one directory whose name says that it belongs to a checkpoint. */
struct td_candidate {
    const char *path;     /* path as clients know it; the snapshot's */
    size_t directory_len; /* length of the directory in the path; 0: the file lies directly in the root */
    size_t model_len;     /* length of the beginning of the path that its model's files share: the directory; for a file
                             directly in the root, the stem of its group, or the whole path, or 0 (all are one model) */
    bool alone;           /* inspected by itself: even a shard counts as a whole checkpoint */
    enum td_file_kind kind;       /* what the file is, by its name */
    const struct td_entry *entry; /* NULL when the file could not even be opened */
    const char *error;            /* the reason for that; the snapshot's */
    enum td_candidate_part part;
    const char *index; /* path of an index in a parent directory that lists the file as a shard; NULL: none */
};

/* Groups the candidates of one directory into checkpoints. Sets model->checkpoints (the default one first) and
 * model->partials (the incomplete ones), and adds a problem for every file and set that cannot be published. There are
 * two families: `safetensors` (files of that format) and `pytorch` (files named pytorch_model*.bin). In each, the set
 * that Hugging Face's from_pretrained would load gets the family's name as its id. That set is the first of these that
 * exists:
 *    1. model.safetensors                            pytorch_model.bin
 *    2. the files of model.safetensors.index.json    of pytorch_model.bin.index.json
 *    3. diffusion_pytorch_model.safetensors.index.json's files, or diffusion_pytorch_model.safetensors
 *    4. the only set of the family: another index, a complete -NNNNN-of-NNNNN group, or one file
 *    5. several single files that share no tensor name, all together
 * Variants (catalog/weights_name.h) do not count in 4 and 5.
 * Every other set has its own name as its id: that of the file or the index; of a group the stem with the extension; of
 * a split GGUF the stem alone. A group goes by its first file's name when its id is taken or reserved. The default is
 * `safetensors`, else `pytorch`, else the first by name that holds tensors, secondary ones last. Beside an index that
 * is refused, only the whole file of its family is published. Files that an index names, and incomplete groups, are
 * never published by themselves. The candidates must be sorted by path, and are borrowed for the call; the result lives
 * in the snapshot. Checkpoints whose files are unchanged share the joined tensors of the snapshot `previous`, which may
 * be NULL. Errors: TD_RESOURCE_EXHAUSTED; the snapshot is then to be dropped. For the one thread that builds the
 * snapshot. */
bool td_checkpoints_build(struct td_snapshot *snapshot, const struct td_snapshot *previous, struct td_model *model,
                          const struct td_candidate *candidates, size_t count, struct td_error *err);

#endif
