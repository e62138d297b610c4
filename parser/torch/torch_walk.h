/* The walk over a pickled object graph that lists its tensors, for archives and legacy files. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_WALK_H
#define TD_PARSER_TORCH_TORCH_WALK_H

#include "parser/format/manifest.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_storage.h"

#include <stdbool.h>

/* Lists in the manifest every tensor of the graph below root, and other values as metadata. A name is the path, joined
 * by dots, with prefix (may be "") before it; the names in a module are those of its state_dict(). The root itself has
 * the name prefix. A root that is a tensor makes the manifest `bare`, when prefix is "". Does not finish the manifest.
 */
bool td_torch_walk(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                   const char *prefix, struct td_manifest *manifest, struct td_error *err);

/* Lists the root alone, when it is a tensor, under the name "", followed by the tensors that it is made of. */
bool td_torch_read_root(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                        struct td_manifest *manifest, struct td_error *err);

/* Makes the names of tensors and the keys of metadata unique, by numbers after repeated ones ("a.b#2"), and finishes
 * the manifest. */
bool td_torch_finish(struct td_manifest *manifest, struct td_error *err);

#endif
