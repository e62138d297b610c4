/* Checkpoints: decides which files of a directory make one complete set of tensors, and under which id. */
#ifndef TD_CATALOG_CHECKPOINTS_CHECKPOINT_H
#define TD_CATALOG_CHECKPOINTS_CHECKPOINT_H

#include "catalog/model/candidate.h"
#include "catalog/model/snapshot.h"

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
 * Variants (catalog/checkpoints/weights_name.h) do not count in 4 and 5.
 * If model.safetensors.index.json is that of a delta, the model has no checkpoints: sets is_delta, and base to what the
 * index says (see td_deltas_find_bases).
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
