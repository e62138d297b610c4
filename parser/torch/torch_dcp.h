/* PyTorch distributed checkpoints (torch.distributed.checkpoint): a directory of `.metadata`, one pickle that says
 * which tensors there are and of which boxes they consist, and `__0_0.distcp` and so on, one file per writer, in which
 * the items follow one another, each a whole torch.save archive. Source: torch 2.13,
 * torch/distributed/checkpoint/{metadata,filesystem}.py. */
#ifndef TD_PARSER_TORCH_DCP_H
#define TD_PARSER_TORCH_DCP_H

#include "parser/format.h"

#define TD_DCP_METADATA_NAME ".metadata"

/* Of the name of an item: where it begins and how long it is, "@2522+1280". */
enum { TD_DCP_ITEM_NAME_MAX = 48 };

/* "pytorch-distcp" (torch_distcp.c): an item that is a tensor is named by its place; items that are none are left out.
 */
extern const struct td_format td_format_distcp;

struct td_dcp_piece {
    uint32_t file; /* index into files */
    uint64_t item_offset, item_bytes;
    const uint64_t *starts, *sizes; /* the box, elements; NULL when rank is 0 */
    const char *reason;             /* why it cannot be served ("compressed"); NULL: it can */
};

struct td_dcp_tensor {
    const char *name; /* UTF-8 */
    uint32_t name_len, rank;
    const struct td_dtype *dtype;
    const uint64_t *shape;
    const struct td_dcp_piece *pieces;
    uint32_t piece_count;
};

struct td_dcp {
    struct td_arena arena;         /* owns all that follows */
    struct td_dcp_tensor *tensors; /* sorted by name, unique */
    size_t tensor_count;
    const char **files; /* distinct plain base names, sorted */
    size_t file_count;
};

/* Writes the name of the item at this place; its length. */
size_t td_dcp_item_name(char out[TD_DCP_ITEM_NAME_MAX], uint64_t offset, uint64_t nbytes);

/* Parses `.metadata`. Call fini in every case. */
bool td_dcp_parse(struct td_dcp *dcp, const struct td_input *input, const struct td_limits *limits,
                  struct td_error *err);
void td_dcp_fini(struct td_dcp *dcp);

#endif
