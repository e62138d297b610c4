/* DeleteObject, DeleteObjects, DeleteBucket. A deletion of what is not there succeeds, as S3 has it. */
#include "api/call/access.h"
#include "api/call/publishing.h"
#include "api/s3/s3_commit.h"
#include "api/s3/s3_documents.h"
#include "api/s3/s3_handlers.h"
#include "api/s3/s3_list.h"
#include "api/s3/s3_sink.h"
#include "catalog/names/bucket.h"
#include "core/array.h"
#include "core/log.h"
#include "http/xml.h"

#include <stdlib.h>
#include <string.h>

/* A key to delete, and what became of it. */
struct deletion {
    const struct td_s3_listed_key *listed;
    struct td_s3_target *target; /* NULL: it has failed before */
    bool is_done;
    int status;       /* 0: it is deleted, or was not there */
    const char *code; /* S3's, if the status is not 0; static */
    char *message;    /* owned */
};

static void fail_deletion(struct deletion *deletion, int status, const char *code, const char *message)
{
    deletion->is_done = true;
    deletion->status = status;
    deletion->code = code;
    deletion->message = strdup(message); /* NULL: the document has no message */
}

/* Removes the repository if it has no files any more, so that the last file takes it along. */
static bool remove_if_empty(const struct td_call *call, const struct td_publish_name *name,
                            const struct td_commit_result *result, struct td_error *err)
{
    if (result->verdict != TD_COMMIT_MOVED || result->file_count > 0)
        return true;
    return td_publishing_remove_empty(call, name, err) || err->code == TD_NOT_FOUND;
}

/* Deletes paths of an open repository by one commit, and closes it. Answers nothing. Errors as td_publishing_try and
 * td_publishing_remove_empty. */
static bool try_deletions(const struct td_call *call, struct td_publish_repo *repo, const char *const *paths,
                          size_t count, struct td_error *err)
{
    struct td_commit_order order = {.revision = "main",
                                    .keep = true,
                                    .allows_hidden = true,
                                    .ignores_missing = true,
                                    .deletions = paths,
                                    .deletion_count = count,
                                    .message = ""};
    struct td_commit_result result = {.missing = NULL};
    const struct td_publish_name name = repo->name;
    bool ok = td_publishing_try(call, repo, &order, &result, err) && remove_if_empty(call, &name, &result, err);
    td_commit_result_fini(&result);
    return ok;
}

/* Returns whether the repository has a main revision: else there is nothing to delete. */
static bool has_files(const struct td_publish_repo *repo)
{
    char commit[TD_COMMIT_BYTES];
    return repo->fd >= 0 && !repo->is_new && td_publish_resolve(repo, "main", commit);
}

/* ---- DeleteObject -------------------------------------------------------------------------------------- */

/* Checks the version that a request names: objects have none. Returns false after it answered. */
static bool check_version(const struct td_call *call)
{
    const struct td_text *version = td_uri_parameter(call->uri, "versionId");
    if (version == NULL || version->len == 0 || td_text_equals(*version, "null"))
        return true;
    td_response_fail(call->response, 400, NULL, "Invalid version id specified: objects have no versions");
    return false;
}

/* Refuses a request with a condition that this server cannot check: without the check, it could delete an object that
 * the client wants to keep. Returns false after an answer of 501. */
static bool check_conditions(const struct td_call *call)
{
    static const char *const refused[] = {"If-None-Match", "x-amz-if-match-last-modified-time", "x-amz-if-match-size"};
    const char *name =
        td_request_has_header(call->request, "If-Match") && td_request_single_header(call->request, "If-Match") == NULL
            ? "If-Match"
            : NULL;
    for (size_t i = 0; name == NULL && i < sizeof refused / sizeof *refused; i++)
        name = td_request_has_header(call->request, refused[i]) ? refused[i] : NULL;
    if (name == NULL)
        return true;
    td_response_fail_as(call->response, 501, "NotImplemented",
                        "A header you provided implies functionality that is not implemented: %s; the condition of a "
                        "deletion is one If-Match",
                        name);
    return false;
}

/* Checks If-Match in an open repository. Sets *exists. Returns false after it answered 412. */
static bool check_match(const struct td_call *call, const struct td_publish_repo *repo, const char *path, bool *exists)
{
    char hex[TD_SHA256_TEXT_BYTES];
    const struct td_header *match = td_request_single_header(call->request, "If-Match");
    *exists = td_s3_find_now(repo, path, hex);
    if (match == NULL || td_s3_may_delete(match->value, *exists ? hex : NULL))
        return true;
    td_response_fail(call->response, 412, NULL,
                     "At least one of the pre-conditions you specified did not hold: If-Match");
    return false;
}

void td_s3_delete_key(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_target target;
    struct td_publish_repo repo;
    bool exists = false;
    if (!check_version(call) || !check_conditions(call) || !td_s3_target_begin(call, bucket, key, &target))
        return;
    if (target.is_folder) {
        td_s3_answer_status(call, 204);
        return;
    }
    if (!td_publish_repo_open(&call->api->publish->disk, &target.name, false, &repo, &err)) {
        td_publishing_fail(call, &err, 500);
        return;
    }
    const char *const paths[] = {target.path};
    bool matches = check_match(call, &repo, target.path, &exists);
    if (!matches || !exists) {
        td_publish_repo_close(&repo);
    } else if (!try_deletions(call, &repo, paths, 1, &err)) {
        td_publishing_fail(call, &err, 409);
        return;
    }
    if (matches)
        td_s3_answer_status(call, 204);
}

/* ---- DeleteObjects ------------------------------------------------------------------------------------- */

struct td_body_sink *td_s3_begin_delete_keys(struct td_call *call, struct td_text bucket, struct td_text key)
{
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket))
        return NULL;
    return td_s3_sink_take_text(call, td_s3_sink_make(call, TD_S3_NO_ALGORITHM), TD_S3_DOCUMENT_BYTES);
}

/* Finds the targets of all keys. A key that cannot be one fails alone. Returns false after it answered 503. */
static bool find_targets(struct td_call *call, struct td_text bucket, struct deletion *deletions, size_t count,
                         struct td_arena *arena)
{
    for (size_t i = 0; i < count; i++) {
        struct deletion *deletion = &deletions[i];
        struct td_s3_target_fault fault;
        struct td_s3_target *target = td_arena_alloc(arena, sizeof *target);
        struct td_error err = TD_ERROR_INIT;
        if (target == NULL)
            return td_call_no_memory(call);
        const struct td_s3_listed_key *listed = deletion->listed;
        if (listed->version_id.len > 0 && !td_text_equals(listed->version_id, "null"))
            fail_deletion(deletion, 400, "NoSuchVersion", "Objects have no versions");
        else if (listed->has_other_condition)
            fail_deletion(deletion, 501, "NotImplemented", "LastModifiedTime and Size are not implemented; ETag is");
        else if (!td_s3_target_find(call, bucket, listed->key, target, &fault))
            fail_deletion(deletion, fault.status, fault.code, fault.message);
        else if (target->is_folder)
            deletion->is_done = true;
        else if (!td_publishing_may_write(call, td_text_of(target->repo_id), target->is_dataset))
            fail_deletion(deletion, 403, "AccessDenied", "Access Denied");
        else if (!td_publish_name(target->repo_id, target->is_dataset, &target->name, &err))
            fail_deletion(deletion, 400, "InvalidArgument", err.message);
        deletion->target = target;
    }
    return true;
}

/* Returns whether a key is still to be deleted from this repository. */
static bool is_in_group(const struct deletion *deletion, const struct td_publish_name *name)
{
    return !deletion->is_done && deletion->target != NULL && strcmp(deletion->target->name.folder, name->folder) == 0;
}

/* Has the deletion of a key fail with the error of its repository. */
static void fail_in_group(struct deletion *deletion, const struct td_error *err)
{
    if (err->code == TD_CONFLICT || err->code == TD_FAILED_PRECONDITION)
        fail_deletion(deletion, 409, "OperationAborted", err->message);
    else if (err->code == TD_UNAVAILABLE || err->code == TD_RESOURCE_EXHAUSTED)
        fail_deletion(deletion, 503, "ServiceUnavailable", err->message);
    else
        fail_deletion(deletion, 500, "InternalError", err->message);
}

/* Deletes all keys of the repository of the i-th, by one commit. `paths` has room for all. A failure is that of each of
 * them. */
static void delete_group(struct td_call *call, struct deletion *deletions, size_t count, size_t first,
                         const char **paths)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    size_t path_count = 0;
    const struct td_publish_name *name = &deletions[first].target->name;
    bool opened = td_publish_repo_open(&call->api->publish->disk, name, false, &repo, &err);
    bool has_any = opened && has_files(&repo);
    for (size_t i = first; i < count; i++) {
        struct deletion *deletion = &deletions[i];
        char hex[TD_SHA256_TEXT_BYTES];
        if (!is_in_group(deletion, name))
            continue;
        bool exists = has_any && td_s3_find_now(&repo, deletion->target->path, hex);
        if (opened && !td_s3_may_delete(deletion->listed->etag, exists ? hex : NULL))
            fail_deletion(deletion, 412, "PreconditionFailed", "The entity tag is another one");
        else if (exists)
            paths[path_count++] = deletion->target->path;
    }
    bool ok = opened && (path_count == 0 || try_deletions(call, &repo, paths, path_count, &err));
    if (opened && path_count == 0)
        td_publish_repo_close(&repo);
    if (!ok)
        td_log(TD_LOG_WARN, "publish: %s", err.message);
    for (size_t i = first; i < count; i++) {
        struct deletion *deletion = &deletions[i];
        if (!is_in_group(deletion, name))
            continue;
        deletion->is_done = true;
        if (!ok)
            fail_in_group(deletion, &err);
    }
}

static void write_deletions(const struct td_call *call, const struct deletion *deletions, size_t count, bool is_quiet)
{
    struct td_buffer xml;
    td_s3_begin_document(&xml, "DeleteResult");
    for (size_t i = 0; i < count; i++) {
        const struct deletion *deletion = &deletions[i];
        if (deletion->status == 0 && is_quiet)
            continue;
        td_buffer_puts(&xml, deletion->status == 0 ? "<Deleted>" : "<Error>");
        td_xml_element(&xml, "Key", deletion->listed->key);
        if (deletion->status != 0) {
            td_xml_element(&xml, "Code", td_text_of(deletion->code));
            td_xml_element(&xml, "Message", td_text_of(deletion->message == NULL ? "" : deletion->message));
        }
        td_buffer_puts(&xml, deletion->status == 0 ? "</Deleted>" : "</Error>");
    }
    td_s3_answer_document(call, &xml, "DeleteResult");
}

static void delete_all(struct td_call *call, struct td_text bucket, const struct td_s3_key_list *list,
                       struct td_arena *arena)
{
    struct deletion *deletions = td_arena_array(arena, list->count, sizeof *deletions);
    const char **paths = td_arena_array(arena, list->count, sizeof *paths);
    if (deletions == NULL || paths == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    for (size_t i = 0; i < list->count; i++)
        deletions[i] = (struct deletion){.listed = &list->items[i]};
    bool ok = find_targets(call, bucket, deletions, list->count, arena);
    for (size_t i = 0; ok && i < list->count; i++)
        if (!deletions[i].is_done && deletions[i].target != NULL)
            delete_group(call, deletions, list->count, i, paths);
    if (ok)
        write_deletions(call, deletions, list->count, list->is_quiet);
    for (size_t i = 0; i < list->count; i++)
        free(deletions[i].message);
}

void td_s3_end_delete_keys(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_sink *sink = td_s3_sink_of(call);
    struct td_s3_key_list list;
    struct td_arena arena;
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket) || !td_s3_sink_check(call, sink) || !td_call_take_snapshot(call))
        return;
    td_arena_init(&arena, 0);
    enum td_s3_document_fault fault = td_s3_read_keys(td_buffer_text(&sink->text), &arena, &list);
    if (fault == TD_S3_DOCUMENT_NO_MEMORY)
        (void)td_call_no_memory(call);
    else if (fault != TD_S3_DOCUMENT_OK)
        td_response_fail_as(call->response, 400, "MalformedXML",
                            "The XML you provided was not well-formed, or does not name 1 to %d keys", TD_S3_MOST_KEYS);
    else
        delete_all(call, bucket, &list, &arena);
    td_arena_fini(&arena);
}

/* ---- DeleteBucket -------------------------------------------------------------------------------------- */

void td_s3_delete_bucket(struct td_call *call, struct td_text bucket, struct td_text key)
{
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket) || !td_call_take_snapshot(call))
        return;
    const struct td_bucket *known = td_bucket_find(call->snapshot, bucket);
    if (known != NULL && known->entry_count + known->key_count > 0)
        td_response_fail_as(call->response, 409, "BucketNotEmpty", "The bucket you tried to delete is not empty");
    else
        td_s3_answer_status(call, 204);
}
