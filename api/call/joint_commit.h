/* Commits of single files that join: requests that wait for the same repository share one commit and one scan, so that
 * many clients can write many files one by one. Thread-safe. */
#ifndef TD_API_CALL_JOINT_COMMIT_H
#define TD_API_CALL_JOINT_COMMIT_H

#include "api/call/call.h"
#include "catalog/publish/publish_commit.h"
#include "catalog/publish/publish_stream.h"

#include <stdbool.h>

/* A file that becomes part of main; its blob is here. All is borrowed. */
struct td_joint_file {
    const struct td_publish_name *name;
    const char *path;
    const struct td_publish_sum *sum;
    bool allows_hidden, renews_times; /* as in td_commit_order */
    /* Checks the request's conditions, while the repository is open and nobody else changes it; on any thread, while
     * the request's own waits. Returns false after it answered: the file is then not committed. */
    bool (*check)(void *context, const struct td_publish_repo *repo);
    void *context;

    /* private */
    const char *token;
    int state;
    struct td_commit_result result;
    struct td_error err;
    struct td_joint_file *next;
};

/* Commits the file, maybe with those of other requests of the same token, and waits until all faces show it. Sets
 * *result, without a list of missing blobs; its verdict may be TD_COMMIT_LACKS_BLOBS, when the repository was removed
 * since the blob came. Returns false after it answered: what `check` answered; as td_publishing_commit. */
bool td_joint_commit(const struct td_call *call, struct td_joint_file *file, struct td_commit_result *result);

#endif
