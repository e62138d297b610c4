/* The Hub's description of a repository: task, library and tags, and the facts of its small files and its tensors.
 * Private to api/hub/hub*. */
#ifndef TD_API_HUB_HUB_ABOUT_H
#define TD_API_HUB_HUB_ABOUT_H

#include "api/hub/hub_call.h"

enum { TD_HUB_DERIVED_TAGS = 16 };

/* The tag of repositories with files that are not what their names say. */
#define TD_HUB_UNREADABLE_TAG "unreadable-files"

/* The description. Borrows the view and its snapshot. */
struct td_hub_about {
    const struct td_repo_view *view;
    bool of_dataset;
    const struct td_facts *card, *config, *tokenizer, *diffusers, *adapter; /* NULL: there is none */
    const char *pipeline_tag, *library;       /* from the card, else derived; NULL: unknown */
    const char *derived[TD_HUB_DERIVED_TAGS]; /* tags that do not come from the card; no duplicates */
    size_t derived_count;
};

/* The parts of a description that the client asks for. */
struct td_hub_parts {
    bool config, card, safetensors, gguf;
};

/* Returns the namespace of an id: the text before its '/'; "local" when the id has no '/'. */
struct td_text td_hub_author_of(const char *id);

/* Opens the object of a repository, for the caller to end, and adds the members that lists and descriptions share: from
 * "_id" to "usedStorage". The id does not depend on the name by which the client asked for the repository. Errors as
 * td_reserved_take. */
bool td_hub_begin_repo(struct td_hub_call *hub, struct td_json_builder *json, const struct td_repo *repo,
                       const char *commit, struct td_error *err);

/* Derives the description of the view. error_count: the number of files that are not what their names say and of sets
 * of files that are not whole; above 0, the repository gets TD_HUB_UNREADABLE_TAG. */
void td_hub_about_init(struct td_hub_about *about, const struct td_repo_view *view, bool of_dataset,
                       size_t error_count);

/* Returns whether this is one of the repository's tags, in the spelling of td_hub_about_add. */
bool td_hub_about_has_tag(const struct td_hub_about *about, struct td_text tag);

/* Adds "tags" and, when they are known, "pipeline_tag" and "library_name". Errors as td_reserved_take. */
bool td_hub_about_add(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                      struct td_error *err);

/* Adds those of "config", "cardData", "safetensors" and "gguf" that `parts` asks for and that the repository has.
 * Errors as td_reserved_take. */
bool td_hub_about_add_parts(struct td_hub_call *hub, const struct td_hub_about *about, const struct td_hub_parts *parts,
                            struct td_json_builder *json, struct td_error *err);

#endif
