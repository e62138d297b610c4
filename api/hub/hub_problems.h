/* The member "errors" of a repository. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_PROBLEMS_H
#define TD_API_HUB_HUB_PROBLEMS_H

#include "api/hub/hub_call.h"

enum { TD_HUB_MOST_ERRORS = 20 }; /* most errors in the list of a repository; each file also has its own error */

/* Adds "errors":[{"file","error"}...]: at most TD_HUB_MOST_ERRORS entries, for files of the view with contents that do
 * not match their names, and for incomplete sets of files. Adds nothing if the view has no such files. Errors as
 * td_reserved_take. */
bool td_hub_add_errors(struct td_hub_call *hub, struct td_json_builder *json, const struct td_repo_view *view,
                       struct td_error *err);

#endif
