/* From a pickled object graph to tensors: what torch.save's pickles mean, for archives and legacy files alike. Internal
 * to the torch readers. */
#ifndef TD_PARSER_TORCH_WALK_H
#define TD_PARSER_TORCH_WALK_H

#include "parser/manifest.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_storage.h"

#include <stdbool.h>

/* Lists every tensor of the graph below root in the manifest, and what stands beside them as metadata. Names are the
 * paths, joined by dots and begun with prefix (may be ""), of a module as its state_dict() has them; the root itself
 * has the name prefix, and makes the manifest `bare` if it is a tensor. The manifest is not finished. */
bool td_torch_walk(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                   const char *prefix, struct td_manifest *manifest, struct td_error *err);

/* Lists the root alone, if it is a tensor, under the name "", with what it is made of. */
bool td_torch_read_root(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                        struct td_manifest *manifest, struct td_error *err);

#endif
