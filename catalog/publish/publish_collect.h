/* Removes commits and blobs of a published repository that nothing uses. The caller has opened the repository. Items
 * are removed by a rename into one folder of the trash, so readers keep what they have opened, and a crash leaves
 * nothing half. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_COLLECT_H
#define TD_CATALOG_PUBLISH_PUBLISH_COLLECT_H

#include "catalog/publish/publish_disk.h"
#include "core/digest.h"

#include <stdint.h>

enum { TD_PUBLISH_KEPT_COMMITS = 64 /* commits without a revision that a repository keeps at most */ };

/* Calls `mark` with each further SHA-256 whose blob is needed. Lowers *next_s to when it may need fewer. Errors: when
 * it cannot know them all, and a collection then removes no blob. */
typedef bool td_collect_more(struct td_publish_repo *repo, int64_t now_s, uint64_t keep_s,
                             void (*mark)(void *context, const uint8_t sha256[TD_SHA256_BYTES]), void *context,
                             int64_t *next_s, struct td_error *err);

struct td_collect_rules {
    int64_t now_s;             /* since 1970 */
    uint64_t keep_commits_s;   /* a commit stays for so long after the last revision left it */
    td_collect_more *more;     /* td_publish_collect_manifests; NULL: nothing else needs blobs */
    uint64_t upload_expires_s; /* a blob that no commit names stays for so long after it arrived */
};

struct td_collected {
    uint64_t commits, blobs, blob_bytes; /* that were removed */
    int64_t next_s; /* since 1970: until then there is nothing else to remove, unless somebody changes the repository */
    char trash[TD_OWN_NAME_BYTES]; /* the folder of their remains, which the caller removes by td_own_folder_remove when
                                      it has closed the repository; empty: there is no such folder */
};

/* Returns the time, in seconds since 1970, of the latest arrival that has expired: now_s - upload_expires_s. */
int64_t td_collect_expired_s(const struct td_collect_rules *rules);

/* Removes each commit that no revision names since keep_commits_s, and those beyond the TD_PUBLISH_KEPT_COMMITS that
 * were left last; then each blob that no snapshot names, nor rules->more, and that arrived more than upload_expires_s
 * ago, as its last lease did (publish_leases.h). Removes a repository in new/ that has no blob, not even an unfinished
 * one, and is older than that; repo->fd is then -1. Does nothing for a repository that does not exist.
 *
 * When in doubt, keeps: without any revision, or with one that holds no commit id, all commits stay; when an item of a
 * snapshot is no link to a blob, or cannot be read, or rules->more fails, all blobs stay. Logs why. Errors:
 * TD_RESOURCE_EXHAUSTED, TD_IO, TD_PERMISSION_DENIED; what was removed until then counts. */
bool td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                        struct td_collected *collected, struct td_error *err);

/* Returns whether td_publish_collect would keep a blob that nothing names because it is young; also when that cannot be
 * known. */
bool td_publish_has_young_blob(struct td_publish_repo *repo, const struct td_collect_rules *rules);

#endif
