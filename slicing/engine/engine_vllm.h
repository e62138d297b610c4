/* vLLM: the rows that the tables of several versions share. engine_vllm_0_13.c and engine_vllm_0_33.c are the engines;
 * docs/slicing.md describes how they differ. */
#ifndef TD_SLICING_ENGINE_VLLM_H
#define TD_SLICING_ENGINE_VLLM_H

#include "slicing/engine/engine_table.h"

/* Common prefixes of tensor names. */
#define ATTENTION "model.layers.*.self_attn."
#define MLP "model.layers.*.mlp."
#define MIXTRAL "model.layers.*.block_sparse_moe."
#define TRANSFORMER "transformer.h.*."

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
