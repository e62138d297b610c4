/* vLLM 0.10 to 0.13: https://github.com/vllm-project/vllm, vllm/model_executor/models/. engine_vllm.c has the rows that
 * other versions share. */
#include "slicing/engine/engine_vllm.h"

static const struct td_table_rule mixtral_experts[] = {
    {MIXTRAL "gate.weight", NULL, TD_TABLE_WHOLE, 0},
    TD_VLLM_MIXTRAL_EXPERTS(MIXTRAL "experts."),
    {0},
};

static const struct td_table_rule experts[] = {
    {MLP "gate.weight", NULL, TD_TABLE_WHOLE, 0},
    TD_VLLM_EXPERTS(MLP "experts."),
    {0},
};

static const struct td_table_rule qwen_shared_expert[] = {
    {MLP "shared_expert_gate.weight", NULL, TD_TABLE_WHOLE, 0},
    TD_VLLM_GATE_UP(MLP "shared_expert.", MLP "shared_expert."),
    {MLP "shared_expert.down_proj.weight", NULL, TD_TABLE_ROW, 0},
    {0},
};

static const struct td_table_rule deepseek_shared_experts[] = {
    TD_VLLM_GATE_UP(MLP "shared_experts.", MLP "shared_experts."),
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
    TD_VLLM_COMPRESSED,
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

/* Sorted by architecture. */
static const struct td_table_model models[] = {
    {"BloomForCausalLM", "bloom", TD_TABLE_ALWAYS, 0, {td_vllm_common, td_vllm_transformer, td_vllm_bloom_bare}, NULL},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     TD_TABLE_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {td_vllm_common, td_vllm_embeddings, latent_attention, latent_queries, td_vllm_mlp, experts,
      deepseek_shared_experts},
     NULL},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     TD_TABLE_NO_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {td_vllm_common, td_vllm_embeddings, latent_attention, direct_queries, td_vllm_mlp, experts,
      deepseek_shared_experts},
     NULL},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     TD_TABLE_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {td_vllm_common, td_vllm_embeddings, latent_attention, latent_queries, td_vllm_mlp, experts,
      deepseek_shared_experts},
     NULL},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     TD_TABLE_NO_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {td_vllm_common, td_vllm_embeddings, latent_attention, direct_queries, td_vllm_mlp, experts,
      deepseek_shared_experts},
     NULL},
    {"FalconForCausalLM", "falcon", TD_TABLE_ALWAYS, TD_TABLE_KV_FALCON, {td_vllm_common, td_vllm_transformer}, NULL},
    {"GPTNeoXForCausalLM", "gpt_neox", TD_TABLE_ALWAYS, 0, {td_vllm_common, neox}, NULL},
    {"Gemma2ForCausalLM",
     "gemma2",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp},
     NULL},
    {"Gemma3ForCausalLM",
     "gemma3_text",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp},
     NULL},
    {"GptOssForCausalLM", "gpt_oss", TD_TABLE_ALWAYS, TD_TABLE_REFUSED, {td_vllm_gpt_oss}, NULL},
    {"LlamaForCausalLM",
     "llama",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp, td_vllm_fused},
     NULL},
    {"MistralForCausalLM",
     "mistral",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp, td_vllm_fused},
     NULL},
    {"MixtralForCausalLM",
     "mixtral",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, mixtral_experts},
     NULL},
    {"Phi3ForCausalLM",
     "phi3",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp, td_vllm_fused},
     NULL},
    {"Qwen2ForCausalLM",
     "qwen2",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp},
     NULL},
    {"Qwen2MoeForCausalLM",
     "qwen2_moe",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp, experts, qwen_shared_expert},
     NULL},
    {"Qwen3ForCausalLM",
     "qwen3",
     TD_TABLE_ALWAYS,
     0,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp},
     NULL},
    {"Qwen3MoeForCausalLM",
     "qwen3_moe",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {td_vllm_common, td_vllm_embeddings, td_vllm_attention, td_vllm_mlp, experts},
     NULL},
};

/* Keeps the label and the number from before there were versions, so that its files stay the same. */
const struct td_table_engine td_engine_vllm_0_13 = {
    .name = "vllm@0.13",
    .label = "vllm",
    .number = 3,
    .vocabulary_pad = TD_VLLM_VOCABULARY_PAD,
    .replicates_keys = true,
    .reads_states = true,
    .way_on = TD_VLLM_WAY_ON,
    .models = models,
    .model_count = sizeof models / sizeof *models,
};
