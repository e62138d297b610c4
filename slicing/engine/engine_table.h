/* The form of the built-in engines' tables: rules whose numbers come from config.json. */
#ifndef TD_SLICING_ENGINE_ENGINE_TABLE_H
#define TD_SLICING_ENGINE_ENGINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a tensor is split. Dimension 0 of a weight is the layer's outputs, dimension 1 its inputs. */
enum td_table_split {
    TD_TABLE_WHOLE,       /* on every rank */
    TD_TABLE_CHUNK,       /* dimension 0 by torch.chunk */
    TD_TABLE_COLUMN,      /* dimension 0 in equal parts */
    TD_TABLE_ROW,         /* dimension 1 in equal parts */
    TD_TABLE_VOCABULARY,  /* dimension 0, which must be vocab_size, padded if the engine pads */
    TD_TABLE_HEADS,       /* dimension 0 by attention heads of any size */
    TD_TABLE_HEADS_ROW,   /* dimension 1 by attention heads of any size */
    TD_TABLE_QUERIES,     /* dimension 0 by attention heads of head_dim */
    TD_TABLE_QUERIES_ROW, /* dimension 1 by attention heads of head_dim */
    TD_TABLE_KEYS,        /* dimension 0 by key-value heads of head_dim */
    TD_TABLE_QKV,         /* dimension 0 is all queries, then all keys, then all values; each is split */
    TD_TABLE_QKV_GROUPS,  /* dimension 0 is, for each key-value head, its queries, its key and its value */
    TD_TABLE_HALVES,      /* dimension 0 is two equal parts; each is split */
    TD_TABLE_EXPERTS,     /* each tensor of a stack is split like COLUMN */
    TD_TABLE_EXPERTS_ROW, /* each tensor of a stack is split like ROW */
    TD_TABLE_ONE,         /* adds the constant 1, of type F32 without dimensions; takes no part of the tensor */
    TD_TABLE_DROP,        /* left out */
    TD_TABLE_REFUSE,      /* an error */
};

/* A row of a table; a row of zeros ends it. match, out and slot as in td_rule. */
struct td_table_rule {
    const char *match;
    const char *out; /* with REFUSE: the reason */
    enum td_table_split layout;
    uint32_t slot;
};

enum { TD_TABLE_MAX_FRAGMENTS = 10 };

/* The condition under which a row of a table applies. */
enum td_table_condition {
    TD_TABLE_ALWAYS,
    TD_TABLE_Q_LORA,    /* q_lora_rank is given: DeepSeek-V2, DeepSeek-V3 */
    TD_TABLE_NO_Q_LORA, /* it is null or missing: DeepSeek-V2-Lite; of V3's architecture Moonlight-16B-A3B */
    TD_TABLE_BIASES,    /* attention_bias is true; no published model sets it, but nano-vllm's Qwen3 supports it */
    TD_TABLE_NO_BIASES, /* it is false, null or missing */
};

/* Particulars of an architecture, as bits; each names the models that need it. */
enum {
    TD_TABLE_KV_FALCON = 1,   /* key-value heads as in FalconConfig: 1 (7b), heads (rw-1b) or num_kv_heads (40b) */
    TD_TABLE_HAS_EXPERTS = 2, /* config.json must give their number, the length of a stack: every model with experts */
    TD_TABLE_LATENT = 4,      /* attention by latent vectors: config.json gives no one size of a head (DeepSeek) */
    TD_TABLE_REFUSED = 8,     /* known, but without a layout: its rules only give the reason (gpt-oss) */
    TD_TABLE_TIED_BY_DEFAULT = 16, /* tie_word_embeddings is true when missing (Gemma, BLOOM) */
};

/* An architecture that an engine knows. Its rules are those of all fragments in order. */
struct td_table_model {
    const char *architecture, *model_type; /* model_type counts when config.json has no architectures */
    enum td_table_condition condition;
    unsigned particulars;
    const struct td_table_rule *fragments[TD_TABLE_MAX_FRAGMENTS]; /* up to the first NULL */
    /* Rules that come before the fragments when config.json ties the head to the embeddings and the checkpoint has the
     * embeddings (a tensor that one of these rules renames). NULL: none. */
    const struct td_table_rule *tied;
};

struct td_table_engine {
    const char *name;
    const char *label;                   /* its name in files, entity tags and commits; NULL: the same */
    uint8_t number;                      /* as td_engine_number; no other engine has or had it */
    uint64_t max_tp_size;                /* 0: no limit of its own */
    uint64_t vocabulary_pad;             /* rows of embeddings are padded to a multiple of this; 0 or 1: not padded */
    bool replicates_keys;                /* with fewer key-value heads than ranks, several ranks get the same head */
    bool reads_states;                   /* as td_engine_reads_states */
    const char *way_on;                  /* as in td_rule_list; NULL: none */
    const struct td_table_rule *any;     /* rules for every model, without config.json; NULL: by model */
    const struct td_table_model *models; /* sorted by architecture */
    size_t model_count;
};

extern const struct td_table_engine td_engine_fsdp, td_engine_nano_vllm, td_engine_none, td_engine_vllm_0_13,
    td_engine_vllm_0_33;

#endif
