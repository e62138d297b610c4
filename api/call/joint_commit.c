/* A list has all files that wait. The first thread that finds nobody committing to its repository leads: it takes the
 * files of that repository off, its own among them, and commits them together, while later ones gather for the next
 * commit. When a joint commit cannot be made, each of its requests tries again alone, so that it gets an answer of its
 * own and no file keeps another one out. One that was made and cannot be shown fails for all of them. */
#include "api/call/joint_commit.h"

#include "api/call/publishing.h"

#include <string.h>

enum { MOST_JOINED = 256 };

enum { WAITS, IS_TAKEN, IS_DONE, IS_REFUSED, IS_FAILED, IS_ALONE };

/* Returns whether two files can be part of one commit, but for their paths. */
static bool may_join(const struct td_joint_file *a, const struct td_joint_file *b)
{
    return strcmp(a->name->folder, b->name->folder) == 0 && strcmp(a->token, b->token) == 0 &&
           a->allows_hidden == b->allows_hidden && a->renews_times == b->renews_times;
}

/* Returns whether somebody commits to the file's repository. The caller has the lock. */
static bool is_busy(const struct td_api *api, const struct td_joint_file *file)
{
    for (const struct td_joint_file *other = api->joint_files; other != NULL; other = other->next)
        if (other->state == IS_TAKEN && strcmp(other->name->folder, file->name->folder) == 0)
            return true;
    return false;
}

static bool has_path(struct td_joint_file *const *batch, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(batch[i]->path, path) == 0)
            return true;
    return false;
}

/* Takes the files that go with this one, which comes first. The caller has the lock. Returns their number. */
static size_t take_batch(struct td_api *api, struct td_joint_file *file, struct td_joint_file *batch[MOST_JOINED])
{
    size_t count = 0;
    batch[count++] = file;
    for (struct td_joint_file *other = api->joint_files; other != NULL && count < MOST_JOINED; other = other->next)
        if (other != file && other->state == WAITS && may_join(file, other) && !has_path(batch, count, other->path))
            batch[count++] = other;
    for (size_t i = 0; i < count; i++)
        batch[i]->state = IS_TAKEN;
    return count;
}

/* Commits the files that pass their checks. Returns false with an error when the commit has failed; then `passed` is
 * true for those that it would have had. */
static bool commit_batch(const struct td_call *call, struct td_joint_file *const *batch, size_t count,
                         bool passed[MOST_JOINED], struct td_commit_result *result, struct td_error *err)
{
    struct td_commit_file files[MOST_JOINED];
    struct td_publish_repo repo;
    struct td_commit_order order = {.revision = "main",
                                    .keep = true,
                                    .allows_hidden = batch[0]->allows_hidden,
                                    .renews_times = batch[0]->renews_times,
                                    .files = files,
                                    .message = ""};
    memset(passed, true, count * sizeof *passed);
    if (!td_publish_repo_open(&call->api->publish->disk, batch[0]->name, true, &repo, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct td_joint_file *file = batch[i];
        passed[i] = file->check(file->context, &repo);
        if (!passed[i])
            continue;
        struct td_commit_file *next = &files[order.file_count++];
        *next = (struct td_commit_file){.path = file->path, .size_bytes = file->sum->size_bytes, .has_size = true};
        memcpy(next->sha256, file->sum->sha256, sizeof next->sha256);
    }
    if (order.file_count > 0)
        return td_publishing_try(call, &repo, &order, result, err);
    td_publish_repo_close(&repo);
    return true;
}

/* Ends the waits of a batch: sets the states, results and errors of its files. err: why !ok. The caller has the lock.
 */
static void end_batch(struct td_joint_file *const *batch, size_t count, const bool *passed, bool ok,
                      const struct td_commit_result *result, const struct td_error *err)
{
    bool is_made = result->commit[0] != '\0' && result->verdict != TD_COMMIT_LACKS_BLOBS;
    bool is_unshown = !ok && is_made && err->code == TD_UNAVAILABLE;
    for (size_t i = 0; i < count; i++) {
        if (!passed[i])
            batch[i]->state = IS_REFUSED;
        else if (ok && (count == 1 || result->verdict != TD_COMMIT_LACKS_BLOBS))
            batch[i]->state = IS_DONE;
        else
            batch[i]->state = is_unshown || count == 1 ? IS_FAILED : IS_ALONE;
        batch[i]->result = *result;
        batch[i]->result.missing = NULL;
        batch[i]->result.missing_count = 0;
        batch[i]->err = *err;
    }
}

/* Leads a batch, or commits the file alone. Is called and returns with the lock. */
static void lead(const struct td_call *call, struct td_joint_file *file, bool is_alone)
{
    struct td_api *api = call->api;
    struct td_joint_file *batch[MOST_JOINED] = {file};
    bool passed[MOST_JOINED];
    struct td_commit_result result = {.missing = NULL};
    struct td_error err = TD_ERROR_INIT;
    size_t count = is_alone ? 1 : take_batch(api, file, batch);
    pthread_mutex_unlock(&api->joint_lock);
    bool ok = commit_batch(call, batch, count, passed, &result, &err);
    td_commit_result_fini(&result);
    pthread_mutex_lock(&api->joint_lock);
    end_batch(batch, count, passed, ok, &result, &err);
    pthread_cond_broadcast(&api->joint_changed);
}

static void add(struct td_api *api, struct td_joint_file *file)
{
    struct td_joint_file **end = &api->joint_files;
    while (*end != NULL)
        end = &(*end)->next;
    file->next = NULL;
    *end = file;
}

static void take_off(struct td_api *api, const struct td_joint_file *file)
{
    struct td_joint_file **at = &api->joint_files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
}

bool td_joint_commit(const struct td_call *call, struct td_joint_file *file, struct td_commit_result *result)
{
    struct td_api *api = call->api;
    file->token = call->response->token;
    file->state = WAITS;
    pthread_mutex_lock(&api->joint_lock);
    add(api, file);
    while (file->state == WAITS || file->state == IS_TAKEN) {
        if (file->state == WAITS && !is_busy(api, file))
            lead(call, file, false);
        else
            pthread_cond_wait(&api->joint_changed, &api->joint_lock);
    }
    if (file->state == IS_ALONE)
        lead(call, file, true);
    take_off(api, file);
    pthread_mutex_unlock(&api->joint_lock);
    if (file->state == IS_FAILED)
        td_publishing_fail(call, &file->err, file->result.is_too_large ? 413 : 409);
    *result = file->result;
    return file->state == IS_DONE;
}
