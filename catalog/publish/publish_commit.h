/* Commits of published repositories: a list of paths and blobs becomes a revision's content by one rename. Beside
 * publish_refs.h, which sets revisions to commits that are there, this module alone writes snapshots/, refs/ and
 * commits/. The caller has opened the repository, so nobody else changes it. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_COMMIT_H
#define TD_CATALOG_PUBLISH_PUBLISH_COMMIT_H

#include "catalog/publish/commit_list.h"
#include "catalog/publish/publish_disk.h"
#include "catalog/publish/publish_notes.h"
#include "catalog/publish/publish_refs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_commit_verdict {
    TD_COMMIT_MOVED,       /* the revision is at another commit now, or was made */
    TD_COMMIT_UNCHANGED,   /* it was at this commit already */
    TD_COMMIT_LACKS_BLOBS, /* blobs are not here: `missing` has them; nothing was changed */
    TD_COMMIT_WRONG_PARENT /* the revision is at another commit than `parent` says: `parent` below has it; nothing was
                              changed */
};

struct td_commit_result {
    enum td_commit_verdict verdict;
    bool is_too_large; /* of a failure: the revision would have more than TD_COMMIT_MAX_FILES or _FOLDERS */
    char commit[TD_COMMIT_BYTES];
    char parent[TD_COMMIT_BYTES]; /* where the revision was before; empty: it was not there */
    uint64_t file_count, file_bytes;
    size_t *missing; /* numbers of order->files, each digest once, ascending; owned */
    size_t missing_count;
};

/* Makes the commit; for a dry run decides the verdict alone, and changes nothing. It is durable, and visible to scans,
 * when this returns TD_COMMIT_MOVED; a failure, and a crash at any moment, leaves the revision at the old commit or at
 * the new one, and a failure removes what it has made. The same paths and digests are the same commit, also when it was
 * made before: then its note stays the first one. Files that do not change keep their links, and a link's modification
 * time is when its path was last written. A revision may have no file: its repository stays. In a repository in new/,
 * revisions and commits of a first commit that was never shown are removed first.
 *
 * Call td_commit_result_fini in any case. Errors: TD_INVALID_ARGUMENT for paths, a path twice, the revision's name, a
 * size that is not the blob's; TD_NOT_FOUND for a path to delete, for `from`, and for a repository that does not exist;
 * TD_CONFLICT for a path that is a file and a folder, and when the revision's name is that of a folder of revisions;
 * TD_FAILED_PRECONDITION with is_too_large, for too many revisions, and when files are to stay whose snapshot was
 * damaged; TD_RESOURCE_EXHAUSTED for memory or a full disk; TD_IO. */
bool td_publish_commit(struct td_publish_repo *repo, const struct td_commit_order *order,
                       struct td_commit_result *result, struct td_error *err);
void td_commit_result_fini(struct td_commit_result *result);

/* Forgets the history of a revision: its commit gets this message, the time of now, the name of the token, and no
 * parent, in the history of this revision alone. Files do not change. Errors: TD_NOT_FOUND for the revision;
 * TD_RESOURCE_EXHAUSTED; TD_IO. */
bool td_publish_squash(struct td_publish_repo *repo, const char *revision, const char *message, const char *token,
                       struct td_error *err);

#endif
