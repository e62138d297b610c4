/* vLLM: the rows that the tables of several versions share. engine_vllm_0_13.c and engine_vllm_0_33.c are the engines;
 * docs/slicing.md describes how they differ. */
#ifndef TD_SLICING_ENGINE_ENGINE_VLLM_H
#define TD_SLICING_ENGINE_ENGINE_VLLM_H

#include "slicing/engine/engine_table.h"

/* Common prefixes of tensor names. */
#define ATTENTION "model.layers.*.self_attn."
#define MLP "model.layers.*.mlp."
#define MIXTRAL "model.layers.*.block_sparse_moe."
#define TRANSFORMER "transformer.h.*."

#define TD_VLLM_ROW(match, out, split, slot) \
    {                                        \
        match, out, split, slot              \
    }

/* Rows whose results have other names in other versions; `out` is the first part of these names. */
#define TD_VLLM_EXPERTS(out)                                                                \
    TD_VLLM_ROW(MLP "experts.*.gate_proj.weight", out "w13_weight", TD_TABLE_EXPERTS, 0),   \
        TD_VLLM_ROW(MLP "experts.*.up_proj.weight", out "w13_weight", TD_TABLE_EXPERTS, 1), \
        TD_VLLM_ROW(MLP "experts.*.down_proj.weight", out "w2_weight", TD_TABLE_EXPERTS_ROW, 0)
#define TD_VLLM_MIXTRAL_EXPERTS(out)                                                       \
    TD_VLLM_ROW(MIXTRAL "experts.*.w1.weight", out "w13_weight", TD_TABLE_EXPERTS, 0),     \
        TD_VLLM_ROW(MIXTRAL "experts.*.w3.weight", out "w13_weight", TD_TABLE_EXPERTS, 1), \
        TD_VLLM_ROW(MIXTRAL "experts.*.w2.weight", out "w2_weight", TD_TABLE_EXPERTS_ROW, 0)
#define TD_VLLM_GATE_UP(in, out)                                                       \
    TD_VLLM_ROW(in "gate_proj.weight", out "gate_up_proj.weight", TD_TABLE_COLUMN, 0), \
        TD_VLLM_ROW(in "up_proj.weight", out "gate_up_proj.weight", TD_TABLE_COLUMN, 1)

/* The compressed vectors of latent attention with compressed queries. */
#define TD_VLLM_COMPRESSED                                                                            \
    TD_VLLM_ROW(ATTENTION "q_a_proj.weight", ATTENTION "fused_qkv_a_proj.weight", TD_TABLE_WHOLE, 0), \
        TD_VLLM_ROW(ATTENTION "kv_a_proj_with_mqa.weight", ATTENTION "fused_qkv_a_proj.weight", TD_TABLE_WHOLE, 1)

/* How vLLM loads its part of a model that an engine refuses: with the Python client. */
#define TD_VLLM_WAY_ON "vLLM reads its part by --load-format tensord"

enum { TD_VLLM_VOCABULARY_PAD = 64 }; /* vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE */

/* Tensors that vLLM's loaders skip, and tensors that only quantised checkpoints have. */
extern const struct td_table_rule td_vllm_common[];

/* Embeddings, attention and MLP under Llama's names. */
extern const struct td_table_rule td_vllm_embeddings[], td_vllm_attention[], td_vllm_mlp[];

/* Tensors that are fused on disk already: Phi-3's, which vLLM's Llama accepts too. */
extern const struct td_table_rule td_vllm_fused[];

/* BLOOM and Falcon; bloom_bare adds the first component of the names, which BLOOM's own checkpoints lack. */
extern const struct td_table_rule td_vllm_transformer[], td_vllm_bloom_bare[];

/* Reasons why gpt-oss has no layout. */
extern const struct td_table_rule td_vllm_gpt_oss[];

#endif
