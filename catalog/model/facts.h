/* Facts: statements about a model in the small files beside its checkpoint: its card and its configurations. A scan
 * reads each file once per identity. The memory of the facts is bounded and counts towards the limit for all files. */
#ifndef TD_CATALOG_MODEL_FACTS_H
#define TD_CATALOG_MODEL_FACTS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/input.h"
#include "parser/format/manifest.h"

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

enum {
    TD_FACTS_WORD_BYTES = 256, /* most bytes of a tag or a name, with its NUL */
    TD_FACTS_TAGS_MAX = 512,   /* most tags of a file */
};

/* A tag by which clients find a repository: a value that the card has under a key. The key decides how the Hub writes
 * the tag. */
struct td_fact_tag {
    const char *value;
    unsigned key; /* row of a table in facts.c; for td_fact_tag_prefix */
    bool repeats; /* an earlier tag is written the same for a model: "en" in `language` and in `tags` */
};

/* The facts of one file; they never change. Texts that are missing are NULL. */
struct td_facts {
    struct td_arena arena;
    const char *json; /* a JSON object: the card's front matter, or the kept members of a configuration; never NULL */
    size_t json_len;
    const char *pipeline_tag, *library_name; /* of a card */
    const char *architecture, *model_type;   /* of a configuration; the first of its architectures */
    bool has_chat_template;                  /* of a tokenizer */
    struct td_fact_tag *tags;                /* of a card, each once */
    size_t tag_count;
};

/* Returns the kind of the file, by the last component of its path. */
enum td_facts_kind td_facts_kind_of(const char *path);

/* Reads the facts of a file of this kind, which is not TD_FACTS_NONE. Sets *out, which the caller destroys, or NULL
 * when the file says nothing. Errors: TD_INVALID_ARGUMENT and a reason when the file cannot be understood (*out then
 * has what stands before the fault, or is NULL); TD_RESOURCE_EXHAUSTED; those of the input. */
bool td_facts_read(enum td_facts_kind kind, const struct td_input *input, struct td_facts **out, struct td_error *err);
/* Frees the facts. NULL: does nothing. */
void td_facts_destroy(struct td_facts *facts);

/* Returns the static text that the Hub writes before the tag's value in a repository of a model or of a dataset:
 * "license:", or "". Returns NULL when the Hub has no such tag there, or the same tag came before. */
const char *td_fact_tag_prefix(const struct td_fact_tag *tag, bool of_dataset);

/* Returns the tag's key in the card, static: "license". */
const char *td_fact_tag_key(const struct td_fact_tag *tag);

/* Returns the number of keys that tags can have: td_fact_tag.key is below it. */
unsigned td_fact_tag_keys(void);

/* The number of elements of all tensors of one type. */
struct td_dtype_count {
    const struct td_dtype *dtype;
    uint64_t elems; /* at most 2^64-1 */
};

/* Counts a manifest's elements by type, those of aliases once. Allocates *out in the manifest's arena. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_facts_count_elements(struct td_manifest *manifest, struct td_dtype_count **out, size_t *count,
                             struct td_error *err);

#endif
