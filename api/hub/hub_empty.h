/* Repositories that were created and have no commit: no snapshot has them, but clients of the Hub ask for them before
 * they send the first file. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_EMPTY_H
#define TD_API_HUB_HUB_EMPTY_H

#include "api/hub/hub_call.h"

/* Answers a request about the repository hub->id, if it is empty and the caller may see it. `at`: the segment of the
 * path with the verb, such as "tree". Looks at the disk. Returns false, and answers nothing that the caller need not
 * replace, when there is no such repository, and on a thread that may not wait. */
bool td_hub_empty_answer(struct td_hub_call *hub, size_t at);

/* Writes the commit that the description of such a repository has: that of no files. Returns false when memory is
 * short. */
bool td_hub_empty_commit(char commit[TD_COMMIT_BYTES]);

#endif
