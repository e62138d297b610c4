/* Archives of torch.export.save (.pt2). Lists parameters, buffers and constants under the names that torch.export.load
 * gives them. Three layouts exist, by version of torch:
 *
 * - From 2.9 on, data/weights/MODEL_weights_config.json names for each tensor the record of data/weights/ that holds
 *   its storage, with type, shape and strides; data/constants/ has the same for constants.
 * - In 2.8, data/weights/MODEL.pt and data/constants/MODEL.pt are files of torch.save.
 * - Before 2.8, serialized_state_dict.pt and serialized_constants.pt are files of torch.save, without a folder around
 *   them.
 *
 * Sources: torch/export/pt2_archive/_package.py, torch/export/__init__.py and torch/_export/serde/schema.py of torch
 * 2.13. */
#ifndef TD_PARSER_TORCH_PT2_H
#define TD_PARSER_TORCH_PT2_H

#include "parser/format/format.h"

extern const struct td_format td_format_pt2; /* "pt2" */

#endif
