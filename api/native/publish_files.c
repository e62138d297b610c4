/* Single files of published repositories: each PUT and each DELETE is a commit. DELETE of a repository. */
#include "api/call/joint_commit.h"
#include "api/call/publish_sink.h"
#include "api/call/publishing.h"
#include "api/native/commit_answer.h"
#include "api/native/publish_handlers.h"
#include "catalog/dataset/dataset.h"
#include "catalog/publish/publish_refs.h"
#include "core/digits.h"
#include "http/conditional.h"
#include "http/repr_digest.h"

#include <stdio.h>
#include <string.h>

static const char revision[] = "main";

/* A file that the call changes. */
struct target {
    struct td_publish_name name;
    char path[TD_COMMIT_PATH_BYTES + 1];
};

/* Checks who asks, the id and the path. Returns false after it answered. */
static bool read_target(const struct td_call *call, const struct td_publish_path *path, struct target *target)
{
    struct td_error err = TD_ERROR_INIT;
    if (!td_publishing_begin(call, path->id, path->is_dataset, &target->name))
        return false;
    if (path->rest.len > TD_COMMIT_PATH_BYTES) {
        td_response_fail(call->response, 400, NULL, "the path of a file has at most %d bytes", TD_COMMIT_PATH_BYTES);
        return false;
    }
    (void)snprintf(target->path, sizeof target->path, "%.*s", (int)path->rest.len, path->rest.p);
    if (td_commit_check_path(target->path, false, &err))
        return true;
    td_response_fail_error(call->response, &err);
    return false;
}

/* Sets the digits to the digest of the file as main has it now. Returns false when there is no such file. */
static bool find_now(const struct td_publish_repo *repo, const char *path, char hex[TD_SHA256_TEXT_BYTES])
{
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_publish_find_file(repo, revision, path, sha256))
        return false;
    td_hex_write(sha256, sizeof sha256, hex);
    return true;
}

/* Checks the request's conditions; before a commit with the repository open, so that nothing can change until then.
 * Sets *exists to whether the file is there. Returns false after it answered 412. */
static bool check_conditions(const struct td_call *call, const struct td_publish_repo *repo, const char *path,
                             bool *exists)
{
    char hex[TD_SHA256_TEXT_BYTES];
    char etag[TD_SHA256_TEXT_BYTES + 2];
    *exists = find_now(repo, path, hex);
    (void)snprintf(etag, sizeof etag, "\"%s\"", *exists ? hex : "");
    return td_conditional_allow_write(call->request, *exists ? etag : NULL, call->response);
}

/* ---- PUT ----------------------------------------------------------------------------------------------- */

/* Checks the conditions before the body comes. They are checked again after it. */
static bool check_early(const struct td_call *call, const struct target *target)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    bool exists;
    if (!td_publish_repo_look(&call->api->publish->disk, &target->name, &repo, &err)) {
        td_publishing_fail(call, &err, 500);
        return false;
    }
    bool ok = check_conditions(call, &repo, target->path, &exists);
    td_publish_repo_look_end(&repo);
    return ok;
}

struct td_body_sink *td_begin_file_put(struct td_call *call, const struct td_publish_path *path)
{
    struct target target;
    struct td_repr_digest digest;
    if (!read_target(call, path, &target) || !td_repr_digest_read(call->request, &digest, call->response) ||
        !check_early(call, &target))
        return NULL;
    return td_publish_sink_whole(call, &target.name);
}

/* The context of check_again. */
struct committing {
    const struct td_call *call;
    const char *path;
    bool exists; /* the file was there before */
};

static bool check_again(void *context, const struct td_publish_repo *repo)
{
    struct committing *committing = context;
    return check_conditions(committing->call, repo, committing->path, &committing->exists);
}

/* Makes the file, whose blob is here, a part of main. */
static void commit_file(const struct td_call *call, const struct td_publish_path *path, const struct target *target,
                        const struct td_publish_sum *sum)
{
    struct committing committing = {.call = call, .path = target->path};
    struct td_joint_file file = {
        .name = &target->name, .path = target->path, .sum = sum, .check = check_again, .context = &committing};
    const struct td_commit_order order = {.revision = revision};
    struct td_commit_result result;
    char hex[TD_SHA256_TEXT_BYTES];
    if (!td_joint_commit(call, &file, &result))
        return;
    if (result.verdict == TD_COMMIT_LACKS_BLOBS) { /* somebody has removed the model since */
        td_response_fail(call->response, 409, NULL, "the model was removed while the file arrived");
        return;
    }
    td_commit_answer(call, path->id, &order, &result, committing.exists ? 200 : 201);
    td_hex_write(sum->sha256, sizeof sum->sha256, hex);
    if (call->response->status < 300)
        td_response_set_etag(call->response, hex);
}

void td_end_file_put(struct td_call *call, const struct td_publish_path *path)
{
    struct target target;
    struct td_repr_digest digest;
    struct td_publish_sum sum;
    if (read_target(call, path, &target) && td_repr_digest_read(call->request, &digest, call->response) &&
        td_publish_sink_end_whole(call, digest.has_sha256 ? digest.sha256 : NULL, &sum))
        commit_file(call, path, &target, &sum);
}

/* ---- DELETE -------------------------------------------------------------------------------------------- */

/* Answers that a name is not that of a published repository: 409 for a model or dataset of the operator, else 404. */
static void fail_to_open(struct td_call *call, const struct td_publish_path *path, const struct td_error *err)
{
    if (err->code != TD_CONFLICT) {
        td_publishing_fail(call, err, 500);
        return;
    }
    if (!td_call_take_snapshot(call))
        return;
    bool is_shown = path->is_dataset ? td_dataset_find(call->snapshot, path->id) != NULL
                                     : td_snapshot_find_model(call->snapshot, path->id) != NULL;
    if (is_shown)
        td_publishing_fail(call, err, 409);
    else
        (void)td_publishing_refuse_absent(call, path->id);
}

/* Makes the commit that removes the file, in a repository that is open, and that it closes. */
static void commit_deletion(struct td_call *call, const struct td_publish_path *path, const struct target *target,
                            struct td_publish_repo *repo)
{
    const char *const deletions[] = {target->path};
    struct td_commit_order order = {
        .revision = revision, .keep = true, .deletions = deletions, .deletion_count = 1, .message = ""};
    struct td_commit_result result = {.missing = NULL};
    if (td_publishing_commit(call, repo, &order, &result))
        td_commit_answer(call, path->id, &order, &result, 200);
    td_commit_result_fini(&result);
}

void td_handle_file_delete(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct target target;
    struct td_publish_repo repo;
    bool exists;
    if (!read_target(call, path, &target))
        return;
    if (!td_publish_repo_open(&call->api->publish->disk, &target.name, false, &repo, &err)) {
        fail_to_open(call, path, &err);
        return;
    }
    if (repo.fd < 0 || repo.is_new)
        (void)td_publishing_refuse_absent(call, path->id);
    else if (check_conditions(call, &repo, target.path, &exists)) {
        commit_deletion(call, path, &target, &repo);
        return;
    }
    td_publish_repo_close(&repo);
}

void td_handle_repo_delete(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name))
        return;
    if (td_publishing_remove(call, &name, &err)) {
        call->response->status = 204;
        call->response->cache_control = "no-store";
    } else if (err.code != TD_OK) {
        fail_to_open(call, path, &err);
    }
}
