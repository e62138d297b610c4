/* Requests that publish by the Hub's interface: their paths and methods, while api->publish is set. Private to
 * api/hub/. */
#ifndef TD_API_HUB_HUB_PUBLISH_H
#define TD_API_HUB_HUB_PUBLISH_H

#include "api/hub/hub_call.h"
#include "http/body_sink.h"

/* Returns whether the body of a request with this method and path, which is split, goes to a sink. */
bool td_hub_publish_takes(struct td_text method, const struct td_hub_path *path);

/* Returns whether the path is that of the Git LFS batch interface of a repository. */
bool td_hub_is_lfs(const struct td_hub_path *path);

/* Returns whether the call needs no token: it asks about a card, which shows nothing of the server. */
bool td_hub_publish_is_free(const struct td_call *call);

/* For td_facade.begin_upload. */
struct td_body_sink *td_hub_publish_begin(struct td_call *call);

/* Answers the call if its path and method are those of publishing. Returns false, and answers nothing, for others. */
bool td_hub_publish(struct td_call *call);

#endif
