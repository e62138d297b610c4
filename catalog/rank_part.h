/* Files that hold one rank's part of a model's tensors, each under the whole tensor's name: Meta's consolidated.00.pth,
 * vLLM's model-rank-0-part-0.safetensors, mp_rank_00 of Megatron and DeepSpeed, rank0.safetensors of TensorRT-LLM, and
 * so on. Names alone are looked at. Pure. */
#ifndef TD_CATALOG_RANK_PART_H
#define TD_CATALOG_RANK_PART_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* What a name says of the file or directory. */
enum td_rank_kind {
    TD_RANK_NONE,   /* nothing of ranks */
    TD_RANK_SHARD,  /* a number that may be that of a rank, or of a file with tensors of its own (shard0) */
    TD_RANK_NUMBER, /* a number that is one of a rank if there is a rank 0 and another one (rank0, tp0) */
    TD_RANK_KNOWN,  /* the number of a rank (consolidated.01, mp_rank_01); rank 0 alone is the whole */
    TD_RANK_ALWAYS, /* a part even alone (zero_pp_rank_0_mp_rank_00_model_states, layer_03-model_00-model_states) */
};

enum { TD_RANK_KEY_BYTES = 264 };

struct td_rank_name {
    enum td_rank_kind kind;
    bool is_first;               /* all numbers of ranks are 0 */
    char key[TD_RANK_KEY_BYTES]; /* the name without the ranks' numbers: equal for all parts of one set */
};

/* Reads the name of a file or directory. */
void td_rank_name_read(struct td_text name, struct td_rank_name *out);

/* A file or directory among others. */
struct td_rank_item {
    struct td_text directory; /* that it lies in */
    size_t number;            /* the caller's */
    struct td_rank_name *name;
    bool is_part; /* the result: it is one rank's part */
    bool may_be;  /* the result: it is one if tensors of its set share a name (TD_RANK_SHARD) */
};

/* Finds out which items are parts: sorts the list by directory and key, and sets the results. Items of one file or
 * directory may be there several times. */
void td_rank_items_judge(struct td_rank_item *items, size_t count);

#endif
