#include "api/s3/s3_target.h"

#include "api/call/access.h"
#include "api/call/publishing.h"
#include "catalog/names/bucket.h"
#include "catalog/names/repo.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Always returns false. */
static bool refuse(struct td_s3_target_fault *fault, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool refuse(struct td_s3_target_fault *fault, int status, const char *code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault->status = status;
    fault->code = code;
    (void)vsnprintf(fault->message, sizeof fault->message, format, args);
    va_end(args);
    return false;
}

/* Returns how many segments of the key name the repository: none, when the bucket is the repository's own name. */
static size_t segments_of(const struct td_call *call, struct td_text bucket)
{
    const struct td_bucket *known = td_bucket_find(call->snapshot, bucket);
    if (td_text_equals(bucket, "datasets"))
        return 2;
    return known != NULL && known->is_other_name ? 0 : 1;
}

bool td_s3_target_find(const struct td_call *call, struct td_text bucket, struct td_text key,
                       struct td_s3_target *target, struct td_s3_target_fault *fault)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_text path = key;
    size_t segments = segments_of(call, bucket);
    bool has_bucket = segments == 0 || !(segments == 2 || td_text_equals(bucket, TD_REPO_DEFAULT_NAMESPACE));
    *target = (struct td_s3_target){.bucket = bucket, .key = key, .is_dataset = segments == 2};
    if (key.len > TD_S3_KEY_BYTES)
        return refuse(fault, 400, "KeyTooLongError", "Your key is too long: it has %zu bytes, the most are %d", key.len,
                      TD_S3_KEY_BYTES);
    for (size_t i = 0; i < segments; i++)
        (void)td_text_take_until(&path, '/');
    size_t id_len = key.len - path.len;
    bool has_slash = id_len > 0 && key.p[id_len - 1] == '/';
    struct td_text id = td_text_n(key.p, id_len - (has_slash ? 1 : 0));
    target->is_folder = key.len > 0 && key.p[key.len - 1] == '/';
    int len = snprintf(target->repo_id, sizeof target->repo_id, "%.*s%s%.*s", has_bucket ? (int)bucket.len : 0,
                       bucket.p, has_bucket && segments > 0 ? "/" : "", (int)id.len, id.p);
    if (path.len == 0 && !target->is_folder)
        return refuse(fault, 400, "InvalidArgument",
                      "The key must name a model and a file in it (%s), because the bucket is no model",
                      segments == 2 ? "ORG/NAME/FILE" : "MODEL/FILE");
    if (len < 0 || (size_t)len >= sizeof target->repo_id)
        return refuse(fault, 400, "InvalidArgument", "The name of the model is too long");
    if (!target->is_folder && (path.len >= sizeof target->path || memchr(path.p, '\0', path.len) != NULL))
        return refuse(fault, 400, "InvalidArgument", "The key has a NUL, or is too long");
    if (!target->is_folder)
        (void)snprintf(target->path, sizeof target->path, "%.*s", (int)path.len, path.p);
    if (!target->is_folder && !td_commit_check_path(target->path, true, &err))
        return refuse(fault, 400, "InvalidArgument", "%s", err.message);
    return true;
}

bool td_s3_target_begin(struct td_call *call, struct td_text bucket, struct td_text key, struct td_s3_target *target)
{
    struct td_s3_target_fault fault;
    if (call->snapshot == NULL && !td_call_take_snapshot(call))
        return false;
    if (!td_s3_target_find(call, bucket, key, target, &fault)) {
        if (call->api->publish_who == TD_PUBLISH_OFF) /* answers */
            return td_access_may_publish(call, bucket);
        td_response_fail_as(call->response, fault.status, fault.code, "%s", fault.message);
        return false;
    }
    if (target->is_folder)
        return td_s3_may_write_bucket(call, bucket);
    return td_publishing_begin(call, td_text_of(target->repo_id), target->is_dataset, &target->name);
}

/* Checks that a model in the bucket could be published. Returns false after it answered. */
static bool check_bucket_name(const struct td_call *call, struct td_text bucket)
{
    char id[TD_S3_REPO_BYTES + 2];
    struct td_publish_name name;
    struct td_error err = TD_ERROR_INIT;
    (void)snprintf(id, sizeof id, "%.*s/m", (int)bucket.len, bucket.p);
    if (td_text_equals(bucket, "datasets") || td_publish_name(id, false, &name, &err))
        return true;
    td_response_fail_as(call->response, 400, "InvalidBucketName", "The specified bucket is not valid: %s", err.message);
    return false;
}

bool td_s3_may_write_bucket(const struct td_call *call, struct td_text bucket)
{
    char prefix[TD_S3_REPO_BYTES];
    if (bucket.len + 2 > sizeof prefix) {
        td_response_fail_as(call->response, 400, "InvalidBucketName", "The specified bucket is not valid");
        return false;
    }
    bool has_bucket = !td_text_equals(bucket, TD_REPO_DEFAULT_NAMESPACE);
    (void)snprintf(prefix, sizeof prefix, "%.*s%s", has_bucket ? (int)bucket.len : 0, bucket.p, has_bucket ? "/" : "");
    return td_access_may_publish_below(call, td_text_of(prefix)) && check_bucket_name(call, bucket);
}
