/* Versions in the native interface: which one a path with ?version= means, and which folder has a list of versions. */
#ifndef TD_API_NATIVE_VERSIONS_H
#define TD_API_NATIVE_VERSIONS_H

#include "api/call/call.h"

/* Returns whether the path below /models/ ends in "/versions", so that it may ask for a list of versions. */
bool td_versions_is_list(struct td_text path);

/* Returns the same of "/changes", for what changed between two versions. */
bool td_versions_is_changes(struct td_text path);

/* Sets *version to the version of call->family that the text stands for, as ?version= does. Returns false after it
 * answered 400 or 404. */
bool td_versions_choose(const struct td_call *call, struct td_text text, const struct td_version **version);

/* Does the same as td_versions_find with the upstream's list of the versions of `id`, the part of the path that looks
 * like a model's id, if the server has an upstream: a version that is not here is fetched, and the call continues in
 * its snapshot. Sets *is_found if the upstream has a list; otherwise td_versions_find looks at what is here. Returns
 * false after it answered, or made the call wait for the version. */
bool td_versions_find_upstream(struct td_call *call, struct td_text path, struct td_text id, size_t *at,
                               bool *is_found);

/* Looks for the family that a path below /models/ names, if the call has ?version= or the path ends in "/versions"
 * or "/changes".
 * call->model is the model with the longest id at the beginning of the path, which ends at *at; or NULL. A family with
 * a longer or equal id takes precedence: then sets call->family and *at, and for ?version= also call->version and
 * call->model. Returns false after it answered, or made the call wait for the version. */
bool td_versions_find(struct td_call *call, struct td_text path, size_t *at);

/* Adds X-Tensord-Version with the name of the call's version, percent-encoded, to an answer that is no error. */
void td_versions_add_header(const struct td_call *call);

/* The query parameters that td_handle_versions takes; NULL ends them. */
extern const char *const td_versions_parameters[];

#endif
