/* The rows that the tables of all versions of vLLM share: https://github.com/vllm-project/vllm,
 * vllm/model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/layer.py and models/.
 *
 * Results are the model's parameters as vLLM's loader fills them, before any step that depends on the hardware. A
 * tensor of fewer than two dimensions that no rule matches is whole on every rank. */
#include "slicing/engine/engine_vllm.h"

#define QUANTISED "it belongs to a quantised layer, whose layout depends on how vLLM runs it"

/* Tensors that vLLM's loaders skip, and tensors that only quantised checkpoints have. */
const struct td_table_rule td_vllm_common[] = {
    {"**.rotary_emb.inv_freq", NULL, TD_TABLE_DROP, 0},
    {"**.rotary_emb.cos_cached", NULL, TD_TABLE_DROP, 0},
    {"**.rotary_emb.sin_cached", NULL, TD_TABLE_DROP, 0},
    {"**_scale", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**_scale_inv", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**_scale_2", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**_scales", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.scales", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**_blocks", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.qweight", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.qzeros", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.g_idx", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**_zero_point", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.weight_packed", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.weight_shape", QUANTISED, TD_TABLE_REFUSE, 0},
    {"**.weight.**", QUANTISED, TD_TABLE_REFUSE, 0}, /* bitsandbytes */
    {"**.SCB", QUANTISED, TD_TABLE_REFUSE, 0},
    {0},
};

const struct td_table_rule td_vllm_embeddings[] = {
    {"model.embed_tokens.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {"lm_head.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {0},
};

const struct td_table_rule td_vllm_attention[] = {
    {ATTENTION "q_proj.weight", ATTENTION "qkv_proj.weight", TD_TABLE_QUERIES, 0},
    {ATTENTION "k_proj.weight", ATTENTION "qkv_proj.weight", TD_TABLE_KEYS, 1},
    {ATTENTION "v_proj.weight", ATTENTION "qkv_proj.weight", TD_TABLE_KEYS, 2},
    {ATTENTION "q_proj.bias", ATTENTION "qkv_proj.bias", TD_TABLE_QUERIES, 0},
    {ATTENTION "k_proj.bias", ATTENTION "qkv_proj.bias", TD_TABLE_KEYS, 1},
    {ATTENTION "v_proj.bias", ATTENTION "qkv_proj.bias", TD_TABLE_KEYS, 2},
    {ATTENTION "o_proj.weight", NULL, TD_TABLE_QUERIES_ROW, 0},
    {ATTENTION "o_proj.bias", NULL, TD_TABLE_WHOLE, 0},
    {0},
};

const struct td_table_rule td_vllm_mlp[] = {
    {MLP "gate_proj.weight", MLP "gate_up_proj.weight", TD_TABLE_COLUMN, 0},
    {MLP "up_proj.weight", MLP "gate_up_proj.weight", TD_TABLE_COLUMN, 1},
    {MLP "gate_proj.bias", MLP "gate_up_proj.bias", TD_TABLE_COLUMN, 0},
    {MLP "up_proj.bias", MLP "gate_up_proj.bias", TD_TABLE_COLUMN, 1},
    {MLP "down_proj.weight", NULL, TD_TABLE_ROW, 0},
    {MLP "down_proj.bias", NULL, TD_TABLE_WHOLE, 0},
    {0},
};

/* Tensors that are fused on disk already: Phi-3's, which vLLM's Llama accepts too. */
const struct td_table_rule td_vllm_fused[] = {
    {ATTENTION "qkv_proj.weight", NULL, TD_TABLE_QKV, 0},
    {ATTENTION "qkv_proj.bias", NULL, TD_TABLE_QKV, 0},
    {MLP "gate_up_proj.weight", NULL, TD_TABLE_HALVES, 0},
    {MLP "gate_up_proj.bias", NULL, TD_TABLE_HALVES, 0},
    {0},
};

/* BLOOM and Falcon. */
const struct td_table_rule td_vllm_transformer[] = {
    {"transformer.word_embeddings.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {"lm_head.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {TRANSFORMER "self_attention.query_key_value.weight", NULL, TD_TABLE_QKV_GROUPS, 0},
    {TRANSFORMER "self_attention.query_key_value.bias", NULL, TD_TABLE_QKV_GROUPS, 0},
    {TRANSFORMER "self_attention.dense.weight", NULL, TD_TABLE_QUERIES_ROW, 0},
    {TRANSFORMER "mlp.dense_h_to_4h.weight", NULL, TD_TABLE_COLUMN, 0},
    {TRANSFORMER "mlp.dense_h_to_4h.bias", NULL, TD_TABLE_COLUMN, 0},
    {TRANSFORMER "mlp.dense_4h_to_h.weight", NULL, TD_TABLE_ROW, 0},
    {0},
};

/* BLOOM's own checkpoints lack the first component of the names, which vLLM's loader adds. */
const struct td_table_rule td_vllm_bloom_bare[] = {
    {"word_embeddings.weight", "transformer.word_embeddings.weight", TD_TABLE_VOCABULARY, 0},
    {"word_embeddings_layernorm.**", "transformer.word_embeddings_layernorm.**", TD_TABLE_WHOLE, 0},
    {"ln_f.**", "transformer.ln_f.**", TD_TABLE_WHOLE, 0},
    {"h.*.self_attention.query_key_value.weight", TRANSFORMER "self_attention.query_key_value.weight",
     TD_TABLE_QKV_GROUPS, 0},
    {"h.*.self_attention.query_key_value.bias", TRANSFORMER "self_attention.query_key_value.bias", TD_TABLE_QKV_GROUPS,
     0},
    {"h.*.self_attention.dense.weight", TRANSFORMER "self_attention.dense.weight", TD_TABLE_QUERIES_ROW, 0},
    {"h.*.self_attention.dense.bias", TRANSFORMER "self_attention.dense.bias", TD_TABLE_WHOLE, 0},
    {"h.*.mlp.dense_h_to_4h.weight", TRANSFORMER "mlp.dense_h_to_4h.weight", TD_TABLE_COLUMN, 0},
    {"h.*.mlp.dense_h_to_4h.bias", TRANSFORMER "mlp.dense_h_to_4h.bias", TD_TABLE_COLUMN, 0},
    {"h.*.mlp.dense_4h_to_h.weight", TRANSFORMER "mlp.dense_4h_to_h.weight", TD_TABLE_ROW, 0},
    {"h.*.mlp.dense_4h_to_h.bias", TRANSFORMER "mlp.dense_4h_to_h.bias", TD_TABLE_WHOLE, 0},
    {"h.*.input_layernorm.**", TRANSFORMER "input_layernorm.**", TD_TABLE_WHOLE, 0},
    {"h.*.post_attention_layernorm.**", TRANSFORMER "post_attention_layernorm.**", TD_TABLE_WHOLE, 0},
    {0},
};

const struct td_table_rule td_vllm_gpt_oss[] = {
    {MLP "experts.**",
     "gpt-oss's experts: in 4 bits their layout depends on how vLLM runs them, in 16 bits it transposes them, "
     "which slices cannot",
     TD_TABLE_REFUSE, 0},
    {0},
};
