/* The metadata of PyTorch distributed checkpoints (torch.distributed.checkpoint). Such a checkpoint is a directory with
 * `.metadata`, a pickle that lists the tensors and the boxes of each, and data files (torch_distcp.h). Source: torch
 * 2.13, torch/distributed/checkpoint/{metadata,filesystem}.py. */
#ifndef TD_PARSER_TORCH_TORCH_DCP_H
#define TD_PARSER_TORCH_TORCH_DCP_H

#include "core/arena.h"
#include "core/error.h"
#include "core/input.h"
#include "parser/format/dtype.h"
#include "parser/format/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_DCP_METADATA_NAME ".metadata"

/* A box of a tensor, stored as one item of a data file. */
struct td_dcp_piece {
    uint32_t file; /* index into files */
    uint64_t item_offset, item_bytes;
    const uint64_t *starts, *sizes; /* the box, in elements; NULL when rank is 0 */
    const char *reason;             /* why the piece cannot be served ("compressed"); NULL: it can */
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

/* Parses `.metadata`, the whole input. Call td_dcp_fini in every case. Errors: TD_INVALID_ARGUMENT with the position,
 * TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_dcp_parse(struct td_dcp *dcp, const struct td_input *input, const struct td_limits *limits,
                  struct td_error *err);
/* Frees all that *dcp owns. */
void td_dcp_fini(struct td_dcp *dcp);

#endif
