/* What an engine wants to know from a model's config.json (Hugging Face's): which architecture it is, and the numbers
 * that tensors' shapes do not tell. */
#ifndef TD_SLICING_MODEL_CONFIG_H
#define TD_SLICING_MODEL_CONFIG_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_CONFIG_NAME_BYTES = 96,      /* of an architecture or a model type, with its NUL */
    TD_CONFIG_MAX_BYTES = 4 << 20,  /* of the file */
    TD_CONFIG_MAX_NUMBER = 1 << 30, /* a number of heads, experts, elements of a dimension */
};

/* Numbers that are missing or null are 0, flags that are missing or null are false. */
struct td_model_config {
    char architecture[TD_CONFIG_NAME_BYTES]; /* architectures[0]; "" without */
    char model_type[TD_CONFIG_NAME_BYTES];   /* "" without */
    uint64_t heads;                          /* num_attention_heads or n_head */
    uint64_t kv_heads;                       /* num_key_value_heads, num_kv_heads or n_head_kv; heads without */
    uint64_t head_dim;                       /* head_dim; hidden_size over heads without */
    uint64_t hidden_size;                    /* hidden_size or n_embed */
    uint64_t vocab_size;
    uint64_t layers;               /* num_hidden_layers or n_layer */
    uint64_t nextn_layers;         /* num_nextn_predict_layers: of another model, after the last layer */
    uint64_t experts;              /* num_experts, num_local_experts or n_routed_experts */
    uint64_t q_lora_rank;          /* of MLA; 0: queries are not compressed */
    bool new_decoder_architecture; /* Falcon's */
    bool multi_query;              /* Falcon's; true when missing */
    bool quantised;                /* a quantization_config that is not null */
};

/* Reads config.json. With a text_config that has heads of its own all numbers and flags are from there, and names too
 * where the outer object has none. Errors (TD_FAILED_PRECONDITION): it is too long, no JSON, a key that matters twice,
 * of the wrong type or out of range, a number given under two names. */
bool td_model_config_read(struct td_text text, struct td_model_config *out, struct td_error *err);

#endif
