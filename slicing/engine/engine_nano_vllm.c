/* nano-vllm: https://github.com/GeeeekExplorer/nano-vllm, nanovllm/utils/loader.py, nanovllm/layers/linear.py,
 * nanovllm/layers/embed_head.py, nanovllm/models/qwen3.py.
 *
 * Its one model is Qwen3. Its loader asks the model for a parameter of every tensor's name, and stops at a name that
 * the model lacks, and at a tensor that is fused already, because it finds `v_proj` within `qkv_proj`. With
 * attention_bias the model has biases of queries, keys and values, and no norms of queries and keys. */
#include "slicing/engine/engine_table.h"

#define NO_PARAMETER "nano-vllm's Qwen3 has no parameter for it, its loader stops there"

static const struct td_table_rule weights[] = {
    {"model.embed_tokens.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {"lm_head.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {"model.norm.weight", NULL, TD_TABLE_WHOLE, 0},
    {"model.layers.*.input_layernorm.weight", NULL, TD_TABLE_WHOLE, 0},
    {"model.layers.*.post_attention_layernorm.weight", NULL, TD_TABLE_WHOLE, 0},
    {"model.layers.*.self_attn.q_proj.weight", "model.layers.*.self_attn.qkv_proj.weight", TD_TABLE_QUERIES, 0},
    {"model.layers.*.self_attn.k_proj.weight", "model.layers.*.self_attn.qkv_proj.weight", TD_TABLE_KEYS, 1},
    {"model.layers.*.self_attn.v_proj.weight", "model.layers.*.self_attn.qkv_proj.weight", TD_TABLE_KEYS, 2},
    {"model.layers.*.self_attn.o_proj.weight", NULL, TD_TABLE_QUERIES_ROW, 0},
    {"model.layers.*.mlp.gate_proj.weight", "model.layers.*.mlp.gate_up_proj.weight", TD_TABLE_COLUMN, 0},
    {"model.layers.*.mlp.up_proj.weight", "model.layers.*.mlp.gate_up_proj.weight", TD_TABLE_COLUMN, 1},
    {"model.layers.*.mlp.down_proj.weight", NULL, TD_TABLE_ROW, 0},
    {0},
};

static const struct td_table_rule norms[] = {
    {"model.layers.*.self_attn.q_norm.weight", NULL, TD_TABLE_WHOLE, 0},
    {"model.layers.*.self_attn.k_norm.weight", NULL, TD_TABLE_WHOLE, 0},
    {0},
};

static const struct td_table_rule biases[] = {
    {"model.layers.*.self_attn.q_proj.bias", "model.layers.*.self_attn.qkv_proj.bias", TD_TABLE_QUERIES, 0},
    {"model.layers.*.self_attn.k_proj.bias", "model.layers.*.self_attn.qkv_proj.bias", TD_TABLE_KEYS, 1},
    {"model.layers.*.self_attn.v_proj.bias", "model.layers.*.self_attn.qkv_proj.bias", TD_TABLE_KEYS, 2},
    {0},
};

static const struct td_table_rule others[] = {
    {"**", NO_PARAMETER, TD_TABLE_REFUSE, 0},
    {0},
};

static const struct td_table_model models[] = {
    {"Qwen3ForCausalLM", "qwen3", TD_TABLE_NO_BIASES, 0, {weights, norms, others}, NULL},
    {"Qwen3ForCausalLM", "qwen3", TD_TABLE_BIASES, 0, {weights, biases, others}, NULL},
};

const struct td_table_engine td_engine_nano_vllm = {
    .name = "nano-vllm",
    .number = 1,
    .max_tp_size = 8, /* nanovllm/config.py */
    .models = models,
    .model_count = sizeof models / sizeof *models,
};
