/* The last step of every reader of torch.save's files. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_FINISH_H
#define TD_PARSER_TORCH_TORCH_FINISH_H

#include "parser/format/manifest.h"

#include <stdbool.h>

/* Makes the names of tensors and the keys of metadata unique, by numbers after repeated ones ("a.b#2"), and finishes
 * the manifest. */
bool td_torch_finish(struct td_manifest *manifest, struct td_error *err);

#endif
