/* Archives of torch.export.save (.pt2): parameters, buffers and constants by the names that torch.export.load gives
 * them. Sources: torch/export/pt2_archive/_package.py, torch/export/__init__.py and torch/_export/serde/schema.py of
 * torch 2.13.
 *
 *   since 2.9    data/weights/MODEL_weights_config.json says for each tensor which record of data/weights/ holds its
 *                storage, with type, shape and strides; data/constants/ likewise
 *   2.8          data/weights/MODEL.pt and data/constants/MODEL.pt, files of torch.save
 *   before       serialized_state_dict.pt and serialized_constants.pt, without a folder around them
 */
#ifndef TD_PARSER_PT2_H
#define TD_PARSER_PT2_H

#include "parser/format.h"

extern const struct td_format td_format_pt2; /* "pt2" */

#endif
