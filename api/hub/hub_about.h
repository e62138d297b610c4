/* The Hub's description of a repository: task, library and tags, the facts of its small files and its tensors, and
 * the errors of its files. Private to api/hub/hub*. */
#ifndef TD_API_HUB_HUB_ABOUT_H
#define TD_API_HUB_HUB_ABOUT_H

#include "api/hub/hub_call.h"
#include "rank/repo_about.h"

/* The parts of a description that the client asks for. */
struct td_hub_parts {
    bool config, card, safetensors, gguf;
};

/* Returns the namespace of an id: the text before its '/'; "local" when the id has no '/'. */
struct td_text td_hub_author_of(const char *id);

/* Opens the object of a repository, for the caller to end, and adds the members that lists and descriptions share: from
 * "_id" to "usedStorage". The id does not depend on the name by which the client asked for the repository. Errors as
 * td_reserved_take. */
bool td_hub_begin_repo(struct td_hub_call *hub, struct td_document *json, const struct td_repo *repo,
                       const char *commit, struct td_error *err);

/* Returns whether this is one of the repository's tags, in the spelling of td_hub_about_add. */
bool td_hub_about_has_tag(const struct td_repo_about *about, struct td_text tag);

/* Adds "tags" and, when they are known, "pipeline_tag" and "library_name". Errors as td_reserved_take. */
bool td_hub_about_add(struct td_hub_call *hub, const struct td_repo_about *about, struct td_document *json,
                      struct td_error *err);

/* Adds "config", "cardData", "safetensors" and "gguf", each if `parts` asks for it and the repository has it. Errors as
 * td_reserved_take. */
bool td_hub_about_add_parts(struct td_hub_call *hub, const struct td_repo_about *about,
                            const struct td_hub_parts *parts, struct td_document *json, struct td_error *err);

enum { TD_HUB_MOST_ERRORS = 20 }; /* most errors in the list of a repository; each file also has its own error */

/* Adds "errors":[{"file","error"}...]: at most TD_HUB_MOST_ERRORS entries, for files of the view with contents that do
 * not match their names, and for incomplete sets of files. Adds nothing if the view has no such files. Errors as
 * td_reserved_take. */
bool td_hub_add_errors(struct td_hub_call *hub, struct td_document *json, const struct td_repo_view *view,
                       struct td_error *err);

#endif
