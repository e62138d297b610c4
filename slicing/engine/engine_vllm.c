/* vLLM: https://github.com/vllm-project/vllm, vllm/model_executor/layers/linear.py, vocab_parallel_embedding.py,
 * fused_moe/layer.py and models/, as in 0.10 to 0.13. docs/slicing.md lists where other versions differ.
 *
 * Results are the model's parameters as vLLM's loader fills them, before any step that depends on the hardware. A
 * tensor of fewer than two dimensions that no rule matches is whole on every rank. */
#include "slicing/engine/engine_table.h"

#define QUANTISED "it belongs to a quantised layer, whose layout depends on how vLLM runs it"

/* Tensors that vLLM's loaders skip, and tensors that only quantised checkpoints have. */
static const struct td_table_rule common[] = {
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

#define ATTENTION "model.layers.*.self_attn."
#define MLP "model.layers.*.mlp."

static const struct td_table_rule embeddings[] = {
    {"model.embed_tokens.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {"lm_head.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {0},
};

static const struct td_table_rule attention[] = {
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

static const struct td_table_rule mlp[] = {
    {MLP "gate_proj.weight", MLP "gate_up_proj.weight", TD_TABLE_COLUMN, 0},
    {MLP "up_proj.weight", MLP "gate_up_proj.weight", TD_TABLE_COLUMN, 1},
    {MLP "gate_proj.bias", MLP "gate_up_proj.bias", TD_TABLE_COLUMN, 0},
    {MLP "up_proj.bias", MLP "gate_up_proj.bias", TD_TABLE_COLUMN, 1},
    {MLP "down_proj.weight", NULL, TD_TABLE_ROW, 0},
    {MLP "down_proj.bias", NULL, TD_TABLE_WHOLE, 0},
    {0},
};

/* Tensors that are fused on disk already: Phi-3's, which vLLM's Llama accepts too. */
static const struct td_table_rule fused[] = {
    {ATTENTION "qkv_proj.weight", NULL, TD_TABLE_QKV, 0},
    {ATTENTION "qkv_proj.bias", NULL, TD_TABLE_QKV, 0},
    {MLP "gate_up_proj.weight", NULL, TD_TABLE_HALVES, 0},
    {MLP "gate_up_proj.bias", NULL, TD_TABLE_HALVES, 0},
    {0},
};

#define MIXTRAL "model.layers.*.block_sparse_moe."

static const struct td_table_rule mixtral_experts[] = {
    {MIXTRAL "gate.weight", NULL, TD_TABLE_WHOLE, 0},
    {MIXTRAL "experts.*.w1.weight", MIXTRAL "experts.w13_weight", TD_TABLE_EXPERTS, 0},
    {MIXTRAL "experts.*.w3.weight", MIXTRAL "experts.w13_weight", TD_TABLE_EXPERTS, 1},
    {MIXTRAL "experts.*.w2.weight", MIXTRAL "experts.w2_weight", TD_TABLE_EXPERTS_ROW, 0},
    {0},
};

static const struct td_table_rule experts[] = {
    {MLP "gate.weight", NULL, TD_TABLE_WHOLE, 0},
    {MLP "experts.*.gate_proj.weight", MLP "experts.w13_weight", TD_TABLE_EXPERTS, 0},
    {MLP "experts.*.up_proj.weight", MLP "experts.w13_weight", TD_TABLE_EXPERTS, 1},
    {MLP "experts.*.down_proj.weight", MLP "experts.w2_weight", TD_TABLE_EXPERTS_ROW, 0},
    {0},
};

static const struct td_table_rule qwen_shared_expert[] = {
    {MLP "shared_expert_gate.weight", NULL, TD_TABLE_WHOLE, 0},
    {MLP "shared_expert.gate_proj.weight", MLP "shared_expert.gate_up_proj.weight", TD_TABLE_COLUMN, 0},
    {MLP "shared_expert.up_proj.weight", MLP "shared_expert.gate_up_proj.weight", TD_TABLE_COLUMN, 1},
    {MLP "shared_expert.down_proj.weight", NULL, TD_TABLE_ROW, 0},
    {0},
};

static const struct td_table_rule deepseek_shared_experts[] = {
    {MLP "shared_experts.gate_proj.weight", MLP "shared_experts.gate_up_proj.weight", TD_TABLE_COLUMN, 0},
    {MLP "shared_experts.up_proj.weight", MLP "shared_experts.gate_up_proj.weight", TD_TABLE_COLUMN, 1},
    {MLP "shared_experts.down_proj.weight", NULL, TD_TABLE_ROW, 0},
    {0},
};

/* Multi-head latent attention: the compressed vectors are whole on every rank, the heads are split. */
static const struct td_table_rule latent_attention[] = {
    {ATTENTION "kv_b_proj.weight", NULL, TD_TABLE_HEADS, 0},
    {ATTENTION "o_proj.weight", NULL, TD_TABLE_HEADS_ROW, 0},
    {0},
};

static const struct td_table_rule latent_queries[] = {
    {ATTENTION "q_a_proj.weight", ATTENTION "fused_qkv_a_proj.weight", TD_TABLE_WHOLE, 0},
    {ATTENTION "kv_a_proj_with_mqa.weight", ATTENTION "fused_qkv_a_proj.weight", TD_TABLE_WHOLE, 1},
    {ATTENTION "q_b_proj.weight", NULL, TD_TABLE_HEADS, 0},
    {0},
};

static const struct td_table_rule direct_queries[] = {
    {ATTENTION "kv_a_proj_with_mqa.weight", NULL, TD_TABLE_WHOLE, 0},
    {ATTENTION "q_proj.weight", NULL, TD_TABLE_HEADS, 0},
    {0},
};

#define NEOX "gpt_neox.layers.*."

static const struct td_table_rule neox[] = {
    {"**.attention.bias", NULL, TD_TABLE_DROP, 0},
    {"**.attention.masked_bias", NULL, TD_TABLE_DROP, 0},
    {"gpt_neox.embed_in.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {"embed_out.weight", NULL, TD_TABLE_VOCABULARY, 0},
    {NEOX "attention.query_key_value.weight", NULL, TD_TABLE_QKV_GROUPS, 0},
    {NEOX "attention.query_key_value.bias", NULL, TD_TABLE_QKV_GROUPS, 0},
    {NEOX "attention.dense.weight", NULL, TD_TABLE_QUERIES_ROW, 0},
    {NEOX "mlp.dense_h_to_4h.weight", NULL, TD_TABLE_COLUMN, 0},
    {NEOX "mlp.dense_h_to_4h.bias", NULL, TD_TABLE_COLUMN, 0},
    {NEOX "mlp.dense_4h_to_h.weight", NULL, TD_TABLE_ROW, 0},
    {0},
};

#define TRANSFORMER "transformer.h.*."

/* BLOOM and Falcon. */
static const struct td_table_rule transformer[] = {
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
static const struct td_table_rule bloom_bare[] = {
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

static const struct td_table_rule gpt_oss[] = {
    {MLP "experts.**",
     "gpt-oss's experts: in 4 bits their layout depends on how vLLM runs them, in 16 bits it transposes them, "
     "which slices cannot",
     TD_TABLE_REFUSE, 0},
    {0},
};

/* Sorted by architecture. */
static const struct td_table_model models[] = {
    {"BloomForCausalLM", "bloom", TD_TABLE_ALWAYS, 0, {common, transformer, bloom_bare}},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     TD_TABLE_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {common, embeddings, latent_attention, latent_queries, mlp, experts, deepseek_shared_experts}},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     TD_TABLE_NO_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {common, embeddings, latent_attention, direct_queries, mlp, experts, deepseek_shared_experts}},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     TD_TABLE_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {common, embeddings, latent_attention, latent_queries, mlp, experts, deepseek_shared_experts}},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     TD_TABLE_NO_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {common, embeddings, latent_attention, direct_queries, mlp, experts, deepseek_shared_experts}},
    {"FalconForCausalLM", "falcon", TD_TABLE_ALWAYS, TD_TABLE_KV_FALCON, {common, transformer}},
    {"GPTNeoXForCausalLM", "gpt_neox", TD_TABLE_ALWAYS, 0, {common, neox}},
    {"Gemma2ForCausalLM", "gemma2", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp}},
    {"Gemma3ForCausalLM", "gemma3_text", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp}},
    {"GptOssForCausalLM", "gpt_oss", TD_TABLE_ALWAYS, TD_TABLE_REFUSED, {gpt_oss}},
    {"LlamaForCausalLM", "llama", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp, fused}},
    {"MistralForCausalLM", "mistral", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp, fused}},
    {"MixtralForCausalLM",
     "mixtral",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {common, embeddings, attention, mixtral_experts}},
    {"Phi3ForCausalLM", "phi3", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp, fused}},
    {"Qwen2ForCausalLM", "qwen2", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp}},
    {"Qwen2MoeForCausalLM",
     "qwen2_moe",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {common, embeddings, attention, mlp, experts, qwen_shared_expert}},
    {"Qwen3ForCausalLM", "qwen3", TD_TABLE_ALWAYS, 0, {common, embeddings, attention, mlp}},
    {"Qwen3MoeForCausalLM",
     "qwen3_moe",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {common, embeddings, attention, mlp, experts}},
};

const struct td_table_engine td_engine_vllm = {
    .name = "vllm",
    .number = 3,
    .vocabulary_pad = 64,
    .replicates_keys = true,
    .models = models,
    .model_count = sizeof models / sizeof *models,
};
