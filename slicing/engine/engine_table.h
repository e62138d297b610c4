/* How built-in engines are written down: tables of rules whose numbers come from config.json. */
#ifndef TD_SLICING_ENGINE_TABLE_H
#define TD_SLICING_ENGINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What becomes of a tensor. Dimension 0 has a layer's outputs, dimension 1 its inputs. */
enum td_table_split {
    TD_TABLE_WHOLE,       /* on every rank */
    TD_TABLE_CHUNK,       /* dimension 0 by torch.chunk */
    TD_TABLE_COLUMN,      /* dimension 0 in equal parts */
    TD_TABLE_ROW,         /* dimension 1 in equal parts */
    TD_TABLE_VOCABULARY,  /* dimension 0, as many as vocab_size says, padded if the engine pads */
    TD_TABLE_HEADS,       /* dimension 0 by attention heads, whatever one's size */
    TD_TABLE_HEADS_ROW,   /* dimension 1 likewise */
    TD_TABLE_QUERIES,     /* dimension 0 by attention heads of head_dim */
    TD_TABLE_QUERIES_ROW, /* dimension 1 likewise */
    TD_TABLE_KEYS,        /* dimension 0 by key-value heads of head_dim */
    TD_TABLE_QKV,         /* dimension 0 is queries, keys, values, one after the other */
    TD_TABLE_QKV_GROUPS,  /* the same, interleaved for each key-value head: its queries, its key, its value */
    TD_TABLE_HALVES,      /* dimension 0 is two equal parts, each split */
    TD_TABLE_EXPERTS,     /* COLUMN of each of a stack's tensors */
    TD_TABLE_EXPERTS_ROW, /* ROW of each */
    TD_TABLE_DROP,
    TD_TABLE_REFUSE,
};

struct td_table_rule {
    const char *match;
    const char *out; /* NULL: the tensor's own name; with REFUSE: the reason */
    enum td_table_split layout;
    uint32_t slot;
};

enum { TD_TABLE_MAX_FRAGMENTS = 8 };

/* The condition under which a row of a table applies. */
enum td_table_condition {
    TD_TABLE_ALWAYS,
    TD_TABLE_Q_LORA,    /* q_lora_rank is given: DeepSeek-V2, DeepSeek-V3 */
    TD_TABLE_NO_Q_LORA, /* it is null or missing: DeepSeek-V2-Lite; of V3's architecture Moonlight-16B-A3B */
};

/* Particulars of an architecture, as bits; each names the models that need it. */
enum {
    TD_TABLE_KV_FALCON = 1,   /* key-value heads as in FalconConfig: 1 (7b), heads (rw-1b) or num_kv_heads (40b) */
    TD_TABLE_HAS_EXPERTS = 2, /* config.json must give their number, the length of a stack: every model with experts */
    TD_TABLE_LATENT = 4,      /* attention by latent vectors: config.json gives no one size of a head (DeepSeek) */
    TD_TABLE_REFUSED = 8,     /* known, but without a layout: its rules only give the reason (gpt-oss) */
};

struct td_table_model {
    const char *architecture, *model_type;
    enum td_table_condition condition;
    unsigned particulars;
    const struct td_table_rule *fragments[TD_TABLE_MAX_FRAGMENTS]; /* in order, up to NULL */
};

struct td_table_engine {
    const char *name;
    uint64_t max_tp_size;            /* 0: no limit of its own */
    uint64_t vocabulary_pad;         /* rows of embeddings are rounded up to a multiple; 1: no */
    bool replicates_keys;            /* with fewer key-value heads than ranks, ranks share one */
    const struct td_table_rule *any; /* rules for every model, so that config.json is not needed; else NULL */
    const struct td_table_model *models;
    size_t model_count;
};

extern const struct td_table_engine td_engine_fsdp, td_engine_nano_vllm, td_engine_none, td_engine_vllm;

#endif
