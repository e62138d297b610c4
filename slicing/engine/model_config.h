/* A model's config.json, as Hugging Face writes it: the architecture, and the numbers that an engine needs and that the
 * tensors' shapes do not give. */
#ifndef TD_SLICING_ENGINE_MODEL_CONFIG_H
#define TD_SLICING_ENGINE_MODEL_CONFIG_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_CONFIG_NAME_BYTES = 96,      /* for an architecture or a model type, with its NUL */
    TD_CONFIG_MAX_BYTES = 4 << 20,  /* longest file that is read */
    TD_CONFIG_MAX_NUMBER = 1 << 30, /* largest number that is accepted */
};

/* A number that is missing or null is 0, a flag that is missing or null is false, unless noted. */
struct td_model_config {
    char architecture[TD_CONFIG_NAME_BYTES]; /* architectures[0]; "" when missing */
    char model_type[TD_CONFIG_NAME_BYTES];   /* "" when missing */
    uint64_t heads;                          /* num_attention_heads or n_head */
    uint64_t kv_heads;                       /* num_key_value_heads, num_kv_heads or n_head_kv; when missing: heads */
    uint64_t head_dim;                       /* head_dim; when missing: hidden_size / heads */
    uint64_t hidden_size;                    /* hidden_size or n_embed */
    uint64_t vocab_size;
    uint64_t layers;               /* num_hidden_layers or n_layer */
    uint64_t nextn_layers;         /* num_nextn_predict_layers: layers of a second model, stored after the last one */
    uint64_t experts;              /* num_experts, num_local_experts or n_routed_experts */
    uint64_t q_lora_rank;          /* of multi-head latent attention; 0: queries are not compressed */
    bool attention_bias;           /* if true, nano-vllm's Qwen3 has biases in place of norms */
    bool has_tied, tied;           /* tie_word_embeddings is there and not null; its value */
    bool new_decoder_architecture; /* Falcon's */
    bool multi_query;              /* Falcon's; true when missing */
    bool quantised;                /* there is a quantization_config that is not null */
};

/* Reads the text of config.json. If it has a text_config with heads of its own, all numbers and flags come from there,
 * and so do the names that the outer object lacks. Errors (TD_FAILED_PRECONDITION): more than TD_CONFIG_MAX_BYTES, not
 * JSON, a key of the table above that is given twice, has the wrong type or is out of range, or a number that differs
 * under two names. */
bool td_model_config_read(struct td_text text, struct td_model_config *out, struct td_error *err);

#endif
