/* What a repository is about, as the Hub tells it: task, library, tags, and what its small files and its tensors say.
 * Private to api/hub/hub*. */
#ifndef TD_API_HUB_HUB_ABOUT_H
#define TD_API_HUB_HUB_ABOUT_H

#include "api/hub/hub_call.h"

enum { TD_HUB_DERIVED_TAGS = 16 };

/* Borrows from the snapshot of the view that it was made of. */
struct td_hub_about {
    const struct td_repo_view *view;
    bool of_dataset;
    const struct td_facts *card, *config, *tokenizer, *diffusers, *adapter; /* NULL: there is none */
    const char *pipeline_tag, *library;                                     /* the card's; else derived; or NULL */
    const char *derived[TD_HUB_DERIVED_TAGS]; /* tags that the card does not say; each once */
    size_t derived_count;
};

/* Which parts of a description are asked for. */
struct td_hub_parts {
    bool config, card, safetensors, gguf;
};

/* error_count: of the repository's files that are not what their names say, and sets that are not whole. */
void td_hub_about_init(struct td_hub_about *about, const struct td_repo_view *view, bool of_dataset,
                       size_t error_count);

/* Whether this is one of its tags, as they are written. */
bool td_hub_about_has_tag(const struct td_hub_about *about, struct td_text tag);

/* Adds "tags" and, when they are known, "pipeline_tag" and "library_name". Errors as td_reserved_take. */
bool td_hub_about_add(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                      struct td_error *err);

/* Adds those of "config", "cardData", "safetensors" and "gguf" that `parts` asks for and that the repository has.
 * Errors as td_reserved_take. */
bool td_hub_about_add_parts(struct td_hub_call *hub, const struct td_hub_about *about, const struct td_hub_parts *parts,
                            struct td_json_builder *json, struct td_error *err);

#endif
