/* vLLM 0.33: https://github.com/vllm-project/vllm, vllm/model_executor/models/ and
 * vllm/model_executor/model_loader/sharded_state_loader.py, whose loader accepts exactly the names of the model's
 * state. tests/python/test_vllm_sharded.py loads files with that loader.
 *
 * Differences from 0.13: every attention has four scales, which are 1 in a model that is not quantised; experts, shared
 * experts and some routers have other names; if the head and the embeddings are one tensor, it has the name that comes
 * first in the alphabet. */
#include "slicing/engine/engine_vllm.h"

/* The scales of an attention, whose names begin with `out`, for each layer that has the tensor `match`. */
#define SCALES(match, out)                                                                                       \
    TD_VLLM_ROW(match, out "_k_scale", TD_TABLE_ONE, 0), TD_VLLM_ROW(match, out "_prob_scale", TD_TABLE_ONE, 0), \
        TD_VLLM_ROW(match, out "_q_scale", TD_TABLE_ONE, 0), TD_VLLM_ROW(match, out "_v_scale", TD_TABLE_ONE, 0)

static const struct td_table_rule attention_scales[] = {
    SCALES(ATTENTION "o_proj.weight", ATTENTION "attn."),
    {0},
};

static const struct td_table_rule latent_scales[] = {
    SCALES(ATTENTION "o_proj.weight", ATTENTION "mla_attn.mla_attn."),
    {0},
};

static const struct td_table_rule transformer_scales[] = {
    SCALES(TRANSFORMER "self_attention.dense.weight", TRANSFORMER "self_attention.attn."),
    SCALES("h.*.self_attention.dense.weight", TRANSFORMER "self_attention.attn."),
    {0},
};

/* The head and the embeddings are one tensor, which has the head's name. */
static const struct td_table_rule tied[] = {
    {"model.embed_tokens.weight", "lm_head.weight", TD_TABLE_VOCABULARY, 0},
    {"lm_head.weight", NULL, TD_TABLE_DROP, 0},
    {0},
};

static const struct td_table_rule transformer_tied[] = {
    {"transformer.word_embeddings.weight", "lm_head.weight", TD_TABLE_VOCABULARY, 0},
    {"word_embeddings.weight", "lm_head.weight", TD_TABLE_VOCABULARY, 0},
    {"lm_head.weight", NULL, TD_TABLE_DROP, 0},
    {0},
};

/* vLLM's Gemma 2 has no head of its own. */
static const struct td_table_rule no_head[] = {
    {"lm_head.weight", NULL, TD_TABLE_DROP, 0},
    {0},
};

static const struct td_table_rule mixtral_experts[] = {
    {MIXTRAL "gate.weight", NULL, TD_TABLE_WHOLE, 0},
    TD_VLLM_MIXTRAL_EXPERTS(MIXTRAL "experts.routed_experts."),
    {0},
};

static const struct td_table_rule experts[] = {
    TD_VLLM_EXPERTS(MLP "experts.routed_experts."),
    {0},
};

/* Routers of Qwen3-MoE and DeepSeek, which belong to the module of the experts. */
static const struct td_table_rule router[] = {
    {MLP "gate.weight", MLP "experts.gate.weight", TD_TABLE_WHOLE, 0},
    {MLP "gate.e_score_correction_bias", MLP "experts.gate.e_score_correction_bias", TD_TABLE_WHOLE, 0},
    {0},
};

#define SHARED MLP "experts._shared_experts._layer."

static const struct td_table_rule qwen2_shared_expert[] = {
    {MLP "gate.weight", NULL, TD_TABLE_WHOLE, 0},
    {MLP "shared_expert_gate.weight", SHARED "expert_gate.weight", TD_TABLE_WHOLE, 0},
    TD_VLLM_GATE_UP(MLP "shared_expert.", SHARED),
    {MLP "shared_expert.down_proj.weight", SHARED "down_proj.weight", TD_TABLE_ROW, 0},
    {0},
};

static const struct td_table_rule deepseek_shared_experts[] = {
    TD_VLLM_GATE_UP(MLP "shared_experts.", SHARED),
    {MLP "shared_experts.down_proj.weight", SHARED "down_proj.weight", TD_TABLE_ROW, 0},
    {0},
};

#define LATENT ATTENTION "mla_attn."

/* Multi-head latent attention: the compressed vectors are whole on every rank, the heads are split. */
static const struct td_table_rule latent_attention[] = {
    {ATTENTION "kv_b_proj.weight", NULL, TD_TABLE_HEADS, 0},
    {ATTENTION "o_proj.weight", LATENT "o_proj.weight", TD_TABLE_HEADS_ROW, 0},
    {0},
};

static const struct td_table_rule latent_queries[] = {
    TD_VLLM_COMPRESSED,
    {ATTENTION "q_a_layernorm.weight", LATENT "q_a_layernorm.weight", TD_TABLE_WHOLE, 0},
    {ATTENTION "q_b_proj.weight", LATENT "q_b_proj.weight", TD_TABLE_HEADS, 0},
    {0},
};

static const struct td_table_rule direct_queries[] = {
    {ATTENTION "kv_a_proj_with_mqa.weight", NULL, TD_TABLE_WHOLE, 0},
    {ATTENTION "q_proj.weight", LATENT "q_proj.weight", TD_TABLE_HEADS, 0},
    {0},
};

static const struct td_table_rule neox[] = {
    {"**", "vLLM 0.33 runs GPT-NeoX through Transformers, with other names and another order within query_key_value",
     TD_TABLE_REFUSE, 0},
    {0},
};

#define LLAMA td_vllm_common, td_vllm_embeddings, td_vllm_attention, attention_scales
#define DEEPSEEK                                                                                       \
    td_vllm_common, td_vllm_embeddings, latent_attention, latent_scales, td_vllm_mlp, router, experts, \
        deepseek_shared_experts

/* Sorted by architecture. */
static const struct td_table_model models[] = {
    {"BloomForCausalLM",
     "bloom",
     TD_TABLE_ALWAYS,
     TD_TABLE_TIED_BY_DEFAULT,
     {td_vllm_common, td_vllm_transformer, td_vllm_bloom_bare, transformer_scales},
     transformer_tied},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     TD_TABLE_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {latent_queries, DEEPSEEK},
     NULL},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     TD_TABLE_NO_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {direct_queries, DEEPSEEK},
     NULL},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     TD_TABLE_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {latent_queries, DEEPSEEK},
     NULL},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     TD_TABLE_NO_Q_LORA,
     TD_TABLE_HAS_EXPERTS | TD_TABLE_LATENT,
     {direct_queries, DEEPSEEK},
     NULL},
    {"FalconForCausalLM",
     "falcon",
     TD_TABLE_ALWAYS,
     TD_TABLE_KV_FALCON | TD_TABLE_TIED_BY_DEFAULT,
     {td_vllm_common, td_vllm_transformer, transformer_scales},
     transformer_tied},
    {"GPTNeoXForCausalLM", "gpt_neox", TD_TABLE_ALWAYS, TD_TABLE_REFUSED, {neox}, NULL},
    {"Gemma2ForCausalLM", "gemma2", TD_TABLE_ALWAYS, 0, {no_head, LLAMA, td_vllm_mlp}, NULL},
    {"Gemma3ForCausalLM", "gemma3_text", TD_TABLE_ALWAYS, TD_TABLE_TIED_BY_DEFAULT, {LLAMA, td_vllm_mlp}, tied},
    {"GptOssForCausalLM", "gpt_oss", TD_TABLE_ALWAYS, TD_TABLE_REFUSED, {td_vllm_gpt_oss}, NULL},
    {"LlamaForCausalLM", "llama", TD_TABLE_ALWAYS, 0, {LLAMA, td_vllm_mlp, td_vllm_fused}, tied},
    {"MistralForCausalLM", "mistral", TD_TABLE_ALWAYS, 0, {LLAMA, td_vllm_mlp, td_vllm_fused}, tied},
    {"MixtralForCausalLM", "mixtral", TD_TABLE_ALWAYS, TD_TABLE_HAS_EXPERTS, {LLAMA, mixtral_experts}, tied},
    {"Phi3ForCausalLM", "phi3", TD_TABLE_ALWAYS, 0, {LLAMA, td_vllm_mlp, td_vllm_fused}, tied},
    {"Qwen2ForCausalLM", "qwen2", TD_TABLE_ALWAYS, 0, {LLAMA, td_vllm_mlp}, tied},
    {"Qwen2MoeForCausalLM",
     "qwen2_moe",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {LLAMA, td_vllm_mlp, experts, qwen2_shared_expert},
     tied},
    {"Qwen3ForCausalLM", "qwen3", TD_TABLE_ALWAYS, 0, {LLAMA, td_vllm_mlp}, tied},
    {"Qwen3MoeForCausalLM",
     "qwen3_moe",
     TD_TABLE_ALWAYS,
     TD_TABLE_HAS_EXPERTS,
     {LLAMA, td_vllm_mlp, router, experts},
     tied},
};

const struct td_table_engine td_engine_vllm_0_33 = {
    .name = "vllm@0.33",
    .number = 4,
    .vocabulary_pad = TD_VLLM_VOCABULARY_PAD,
    .replicates_keys = true,
    .reads_states = true,
    .way_on = TD_VLLM_WAY_ON,
    .models = models,
    .model_count = sizeof models / sizeof *models,
};
