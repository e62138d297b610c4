/* The models and files that the tests of the S3 facade request. */
#ifndef TD_TESTS_UNIT_API_S3_MODELS_H
#define TD_TESTS_UNIT_API_S3_MODELS_H

#include "tests/unit/api/s3_place.h"

static const char llama[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"intermediate_size\":16,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":1,\"vocab_size\":8,"
    "\"head_dim\":2,\"torch_dtype\":\"float32\",\"tie_word_embeddings\":true}";

static inline void fill(const struct tree *tree)
{
    static const struct tree_tensor tensors[] = {
        {"model.embed_tokens.weight", "F32", "[8,8]", 256},
        {"model.norm.weight", "F32", "[8]", 32},
        {"model.layers.0.input_layernorm.weight", "F32", "[8]", 32},
        {"model.layers.0.post_attention_layernorm.weight", "F32", "[8]", 32},
        {"model.layers.0.self_attn.q_proj.weight", "F32", "[8,8]", 256},
        {"model.layers.0.self_attn.k_proj.weight", "F32", "[4,8]", 128},
        {"model.layers.0.self_attn.v_proj.weight", "F32", "[4,8]", 128},
        {"model.layers.0.self_attn.o_proj.weight", "F32", "[8,8]", 256},
        {"model.layers.0.mlp.gate_proj.weight", "F32", "[16,8]", 512},
        {"model.layers.0.mlp.up_proj.weight", "F32", "[16,8]", 512},
        {"model.layers.0.mlp.down_proj.weight", "F32", "[8,16]", 512},
    };
    (void)tree_tensors(tree, "meta/llama/model.safetensors", tensors, COUNT_OF(tensors), NULL, 0);
    tree_text(tree, "meta/llama/config.json", llama);
    tree_text(tree, "meta/llama/a.json", "{}");
    tree_text(tree, "meta/llama/tokenizer.json", "{}");
    tree_text(tree, "meta/llama/sub/z.txt", "z");
    tree_simple(tree, "meta/llama/sub/other.safetensors", "w");
    tree_simple(tree, "meta/llama-2/model.safetensors", "w");
    tree_simple(tree, "qwen3/model.safetensors", "a b");
    tree_text(tree, "qwen3/notes.txt", "0123456789");
    tree_text(tree, "qwen3/empty", "");
    tree_text(tree, "qwen3/a-b/c.txt", "");
    tree_text(tree, "qwen3/a/b.txt", "");
    tree_text(tree, "qwen3/a/c/d.txt", "");
    tree_text(tree, "qwen3/a.txt", "");
    tree_text(tree, "qwen3/with space+&<>\"'\xc3\xa9.txt", "");
    tree_text(tree, "qwen3/line\nend\r\x01\xef\xbf\xbf%41.txt", "");
    tree_simple(tree, "bert.safetensors", "w");
    tree_text(tree, "README", "of no model");
    tree_simple(tree, "has/real/shards/none/tp1/x.safetensors", "w");
    tree_text(tree, "kept/shards/none/tp1/readme.txt", "some text");
    tree_simple(tree, "kept/model.safetensors", "w");
    tree_text(tree, "broken/config.json", "{}");
    tree_text(tree, "broken/bad.safetensors", "rubbish!");
}

static inline void open_place(struct place *place)
{
    tree_open(&place->tree);
    fill(&place->tree);
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

#endif
