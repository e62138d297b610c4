/* Removes commits and blobs of a published repository that nothing uses. The caller has opened the repository. What is
 * removed moves to the trash by a rename first, so readers keep what they have opened, and a crash leaves nothing half.
 */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_COLLECT_H
#define TD_CATALOG_PUBLISH_PUBLISH_COLLECT_H

#include "catalog/publish/publish_disk.h"

#include <stdint.h>

enum { TD_PUBLISH_KEPT_COMMITS = 64 /* commits without a revision that a repository keeps at most */ };

struct td_collect_rules {
    int64_t now_s;             /* since 1970 */
    uint64_t keep_commits_s;   /* a commit stays for so long after the last revision left it */
    uint64_t upload_expires_s; /* a blob that no commit names stays for so long after it arrived */
};

struct td_collected {
    uint64_t commits, blobs, blob_bytes; /* that were removed */
};

/* Removes each commit that no revision names since keep_commits_s, and those beyond the newest
 * TD_PUBLISH_KEPT_COMMITS of them; then each blob that no snapshot names and that is older than upload_expires_s.
 * Removes a repository in new/ that has no blob and is older than that. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                        struct td_collected *collected, struct td_error *err);

#endif
