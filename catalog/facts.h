/* What the small files beside a checkpoint say of a model: its card and its configurations. A scan reads them once for
 * each identity; what is kept is bounded, and counted with what is known of all files. */
#ifndef TD_CATALOG_FACTS_H
#define TD_CATALOG_FACTS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/input.h"
#include "parser/manifest.h"

#include <stdbool.h>
#include <stddef.h>

enum td_facts_kind {
    TD_FACTS_NONE,
    TD_FACTS_CARD,      /* README.md: its front matter */
    TD_FACTS_CONFIG,    /* config.json of transformers */
    TD_FACTS_TOKENIZER, /* tokenizer_config.json */
    TD_FACTS_DIFFUSERS, /* model_index.json */
    TD_FACTS_ADAPTER,   /* adapter_config.json of PEFT */
};

/* A word by which a repository is found: what the card has under a key, which says how the Hub writes the tag. */
struct td_fact_tag {
    const char *value;
    unsigned key;
    bool repeats; /* the same tag of a model stands before, under another key: "en" in `language` and in `tags` */
};

/* The facts of one file; they do not change. Texts that are not there are NULL. */
struct td_facts {
    struct td_arena arena;
    const char *json; /* an object: the card's front matter, or the members of a configuration that are kept */
    size_t json_len;
    const char *pipeline_tag, *library_name; /* of a card */
    const char *architecture, *model_type;   /* of a configuration: the first of its architectures */
    bool has_chat_template;                  /* of a tokenizer */
    struct td_fact_tag *tags;                /* of a card, each once */
    size_t tag_count;
};

/* Returns the kind by the last component of the path. */
enum td_facts_kind td_facts_kind_of(const char *path);

/* Reads a file of this kind, TD_FACTS_NONE aside. Sets *out to NULL when it says nothing. Errors: TD_INVALID_ARGUMENT
 * and a reason when it cannot be understood (*out then has what stands before the fault, or is NULL),
 * TD_RESOURCE_EXHAUSTED, or those of the input. */
bool td_facts_read(enum td_facts_kind kind, const struct td_input *input, struct td_facts **out, struct td_error *err);
void td_facts_destroy(struct td_facts *facts); /* NULL is fine */

/* Returns what the Hub writes before the value of a tag in a model's repository or a dataset's: "license:", or "".
 * NULL: the Hub has no such tag there, or the same tag came before. */
const char *td_fact_tag_prefix(const struct td_fact_tag *tag, bool of_dataset);

/* How many elements the tensors of one type have together. */
struct td_dtype_count {
    const struct td_dtype *dtype;
    uint64_t elems; /* 2^64-1 for more */
};

/* Counts a manifest's elements by type, those of aliases once, into its own arena. */
bool td_facts_count_elements(struct td_manifest *manifest, struct td_dtype_count **out, size_t *count,
                             struct td_error *err);

#endif
