/* The history of a published repository, from the notes on its commits. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_HISTORY_H
#define TD_API_HUB_HUB_HISTORY_H

#include "api/hub/hub_call.h"

/* Adds the commits of the view to an open array, from the newest to the first that is still there, at most
 * TD_HUB_MOST_COMMITS. Sets *count; 0 when the view's commit was not published, and on a thread that may not wait.
 * Errors: those of td_reserved_take, TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_hub_history_add(struct td_hub_call *hub, struct td_document *json, size_t *count, struct td_error *err);

enum { TD_HUB_MOST_COMMITS = 1000 };

#endif
