/* Targets of requests that write: the repository and the file that a bucket and a key name. Private to api/s3/. */
#ifndef TD_API_S3_S3_TARGET_H
#define TD_API_S3_S3_TARGET_H

#include "api/call/call.h"
#include "catalog/publish/commit_list.h"
#include "catalog/publish/publish_disk.h"

#include <stdbool.h>

enum { TD_S3_KEY_BYTES = 1024, TD_S3_REPO_BYTES = 256 };

struct td_s3_target {
    struct td_text bucket, key;     /* borrowed */
    char repo_id[TD_S3_REPO_BYTES]; /* "org/name", "name" */
    bool is_dataset;
    bool is_folder; /* the key ends in '/': it stands for nothing here */
    struct td_publish_name name;
    char path[TD_COMMIT_PATH_BYTES + 1]; /* in the repository; of a folder: empty */
};

/* Why a bucket and a key name no file that could be written. */
struct td_s3_target_fault {
    int status;
    const char *code; /* S3's; static */
    char message[320];
};

/* Finds the repository and the path. The call has a snapshot, which says whether a bucket is a model's other name.
 * Checks no right. Returns false with *fault. */
bool td_s3_target_find(const struct td_call *call, struct td_text bucket, struct td_text key,
                       struct td_s3_target *target, struct td_s3_target_fault *fault);

/* Does the same for a request that writes: checks that the caller may publish there. Returns false after it answered.
 * May look for a snapshot. */
bool td_s3_target_begin(struct td_call *call, struct td_text bucket, struct td_text key, struct td_s3_target *target);

/* Returns whether the caller may write to some repository in the bucket. Else answers. */
bool td_s3_may_write_bucket(const struct td_call *call, struct td_text bucket);

#endif
