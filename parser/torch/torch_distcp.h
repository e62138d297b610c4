/* The data files of PyTorch distributed checkpoints, `__0_0.distcp` and so on: one file per writer, in which items
 * follow one another, each a whole archive of torch.save. torch_dcp.h reads the `.metadata` that describes them.
 * Source: torch 2.13, torch/distributed/checkpoint/filesystem.py. */
#ifndef TD_PARSER_TORCH_TORCH_DISTCP_H
#define TD_PARSER_TORCH_TORCH_DISTCP_H

#include "parser/format/format.h"

#include <stddef.h>
#include <stdint.h>

/* "pytorch-distcp": lists every item that is a tensor, named by td_dcp_item_name. Other items are left out. */
extern const struct td_format td_format_distcp;

/* Room for the name of an item and its NUL. */
enum { TD_DCP_ITEM_NAME_MAX = 48 };

/* Writes the name of the item at this offset with this length, such as "@2522+1280". Returns the length of the name. */
size_t td_dcp_item_name(char out[TD_DCP_ITEM_NAME_MAX], uint64_t offset, uint64_t nbytes);

#endif
