/* Files that hold one rank's part of a model's tensors, each under the whole tensor's name: Meta's consolidated.00.pth,
 * vLLM's model-rank-0-part-0.safetensors, mp_rank_00 of Megatron and DeepSpeed, rank0.safetensors of TensorRT-LLM, and
 * so on. Looks at names only. Pure. */
#ifndef TD_CATALOG_CHECKPOINTS_RANK_PART_H
#define TD_CATALOG_CHECKPOINTS_RANK_PART_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* The meaning of the number in the name of a file or directory. */
enum td_rank_kind {
    TD_RANK_NONE,   /* the name has no rank's number */
    TD_RANK_SHARD,  /* its number may be a rank, or a shard with tensors of its own (shard0) */
    TD_RANK_NUMBER, /* its number is a rank if the set has rank 0 and another one (rank0, tp0) */
    TD_RANK_KNOWN,  /* its number is a rank (consolidated.01, mp_rank_01); rank 0 alone is a whole model */
    TD_RANK_ALWAYS, /* a part even alone (zero_pp_rank_0_mp_rank_00_model_states, layer_03-model_00-model_states) */
};

enum { TD_RANK_KEY_BYTES = 264 };

struct td_rank_name {
    enum td_rank_kind kind;
    bool is_first;               /* all rank numbers are 0 */
    char key[TD_RANK_KEY_BYTES]; /* the name without its ranks' numbers: equal for all parts of one set */
};

/* Reads the name of a file or directory. */
void td_rank_name_read(struct td_text name, struct td_rank_name *out);

/* A file or directory that td_rank_items_judge judges. */
struct td_rank_item {
    struct td_text directory; /* its parent directory */
    size_t number;            /* any number that the caller needs */
    struct td_rank_name *name;
    bool is_part; /* the result: it is one rank's part */
    bool may_be;  /* the result: it is a part if files of its set share a tensor name (TD_RANK_SHARD) */
};

/* Sorts the list by directory and key, and sets is_part and may_be of each item. The list may have several items for
 * one file or directory. */
void td_rank_items_judge(struct td_rank_item *items, size_t count);

#endif
