/* The handlers of the Hub's facade, for the table in hub.c: hub_list.c, hub_info.c and hub_tree.c define them. Each
 * fills the response with the whole answer, or with an error. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_HANDLERS_H
#define TD_API_HUB_HUB_HANDLERS_H

#include "api/hub/hub_call.h"

void td_hub_answer_list(struct td_hub_call *hub);       /* /api/models, /api/datasets */
void td_hub_answer_info(struct td_hub_call *hub);       /* /api/models/{id}[/revision/{revision}] */
void td_hub_answer_refs(struct td_hub_call *hub);       /* .../refs */
void td_hub_answer_commits(struct td_hub_call *hub);    /* .../commits/{revision} */
void td_hub_answer_tree(struct td_hub_call *hub);       /* .../tree/{revision}/{path} */
void td_hub_answer_paths_info(struct td_hub_call *hub); /* .../paths-info/{revision} */

#endif
