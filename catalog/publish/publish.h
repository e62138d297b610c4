/* Publishing: what clients put into the served directory. Owns the repositories on disk (publish_disk.h), the blobs
 * that are arriving (publish_upload.h), and the bound on the bytes of all of them. Thread-safe, except open and close.
 */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_H
#define TD_CATALOG_PUBLISH_PUBLISH_H

#include "catalog/publish/publish_store.h"

#include <stdbool.h>

/* Opens what is published in the served directory, and takes the lock. Counts the bytes that blobs take now. Errors as
 * td_publish_disk_open; TD_RESOURCE_EXHAUSTED. */
bool td_publish_open(const struct td_publish_config *config, struct td_publish **out, struct td_error *err);

/* Closes it; blobs that are not complete stay, to be resumed. No upload may be under way. NULL is allowed. */
void td_publish_close(struct td_publish *publish);

/* Removes a repository with all its revisions, and empties its remains. Errors as td_publish_repo_remove and
 * td_publish_repo_open. */
bool td_publish_remove(struct td_publish *publish, const struct td_publish_name *name, struct td_error *err);

/* Closes uploads that nobody continued for a minute, and removes what has expired in all repositories: unfinished
 * blobs, blobs and commits that nothing names (publish_collect.h). May take long. One thread at a time. `stop` ends it
 * soon. */
void td_publish_tidy(struct td_publish *publish, const _Atomic bool *stop);

#endif
