#include "catalog/publish/publish.h"

#include "catalog/publish/parts_row.h"
#include "catalog/publish/publish_collect.h"
#include "catalog/publish/publish_folder.h"
#include "catalog/publish/publish_manifests.h"
#include "catalog/publish/publish_parts.h"
#include "catalog/publish/publish_refs.h"
#include "catalog/publish/publish_session.h"
#include "catalog/publish/publish_upload.h"
#include "catalog/publish/publish_xorbs.h"
#include "core/clock.h"
#include "core/log.h"
#include "storage/disk_tree.h"
#include "storage/fetch/fetch_target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDLE_NS (UINT64_C(60) * TD_NS_PER_S)

/* ---- blobs of a repository ------------------------------------------------------------------------------- */

/* The files of the blobs/ of an open repository, as far as no upload of them is open. */
struct blobs {
    struct td_publish *publish;
    const struct td_publish_repo *repo;
    const struct td_collect_rules *rules;
    int64_t next_s; /* as in td_collected, of the unfinished blobs that stay */
    uint64_t bytes; /* that were counted or removed */
};

/* Writes the digits of an unfinished blob's name, ".HEX.tensord-part". Returns false for another name. */
static bool is_unfinished(const char *name, char hex[TD_SHA256_TEXT_BYTES])
{
    static const size_t len = TD_SHA256_TEXT_BYTES - 1;
    if (name[0] != '.' || strlen(name) != 1 + len + strlen(TD_FETCH_PART_END) ||
        strcmp(name + 1 + len, TD_FETCH_PART_END) != 0)
        return false;
    memcpy(hex, name + 1, len);
    hex[len] = '\0';
    return true;
}

/* Adds the bytes of a complete blob, or of an unfinished one. */
static bool count_blob(void *context, int at, const char *name, struct td_error *err)
{
    struct blobs *blobs = context;
    struct stat st;
    char hex[TD_SHA256_TEXT_BYTES];
    (void)err;
    bool is_part = is_unfinished(name, hex);
    bool counts = is_part ? !td_publish_is_open(blobs->publish, blobs->repo->name.folder, hex) : name[0] != '.';
    if (counts && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        blobs->bytes += (uint64_t)st.st_size;
    return true;
}

/* Removes an unfinished blob with its journal, if nobody has written to it for long. */
static bool expire_blob(void *context, int at, const char *name, struct td_error *err)
{
    struct blobs *blobs = context;
    struct stat st;
    char hex[TD_SHA256_TEXT_BYTES];
    char journal[NAME_MAX + 1];
    (void)err;
    if (!is_unfinished(name, hex) || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return true;
    if ((int64_t)st.st_mtim.tv_sec > td_collect_expired_s(blobs->rules) ||
        td_publish_is_open(blobs->publish, blobs->repo->name.folder, hex)) {
        td_publish_quiet_lower(&blobs->next_s, (int64_t)st.st_mtim.tv_sec, blobs->rules->upload_expires_s);
        return true;
    }
    (void)snprintf(journal, sizeof journal, ".%s" TD_FETCH_JOURNAL_END, hex);
    (void)unlinkat(at, journal, 0);
    if (unlinkat(at, name, 0) == 0)
        blobs->bytes += (uint64_t)st.st_size;
    return true;
}

/* Returns the bytes of all blobs of the repository, without unfinished ones that are open: the end of their upload
 * returns them. */
static uint64_t count_blobs(struct td_publish *publish, const struct td_publish_repo *repo)
{
    struct blobs blobs = {.publish = publish, .repo = repo};
    if (repo->fd >= 0)
        (void)td_disk_list(td_folder_open(repo->fd, "blobs"), repo->name.folder, count_blob, &blobs, NULL);
    return blobs.bytes;
}

/* ---- the store ------------------------------------------------------------------------------------------- */

/* Adds the bytes of a repository to those that are used. */
static bool count_repo(void *context, const struct td_publish_name *name, struct td_error *err)
{
    struct td_publish *publish = context;
    struct td_publish_repo repo;
    (void)err;
    if (!td_publish_repo_open(&publish->disk, name, false, &repo, NULL))
        return true; /* not ours to count, or gone */
    publish->status.used_bytes += count_blobs(publish, &repo);
    td_publish_repo_close(&repo);
    return true;
}

bool td_publish_open(const struct td_publish_config *config, struct td_publish **out, struct td_error *err)
{
    struct td_publish *publish;
    if (!td_publish_store_open(config, &publish, err))
        return false;
    if (!td_publish_disk_each(&publish->disk, count_repo, publish, err) || !td_parts_count(publish, err) ||
        !td_publish_sessions_load(publish, err)) {
        td_publish_close(publish);
        return false;
    }
    *out = publish;
    return true;
}

void td_publish_close(struct td_publish *publish)
{
    if (publish == NULL)
        return;
    td_publish_sessions_leave(publish);
    td_publish_close_idle(publish, NULL, UINT64_MAX);
    td_publish_xorbs_expire(publish, true);
    td_parts_row_drop(publish, NULL);
    td_publish_store_close(publish);
}

void td_publish_report(struct td_publish *publish, struct td_publish_status *status)
{
    const struct td_own_folder *own = &publish->disk.own;
    uint64_t opened_ns = td_publish_oldest_upload_ns(publish);
    uint64_t free_bytes = td_own_folder_free_bytes(own);
    td_publish_get_status(publish, status);
    status->oldest_upload_ns = opened_ns == 0 ? 0 : td_clock_ns() - opened_ns;
    status->disk_bytes = td_own_folder_disk_bytes(own);
    status->free_bytes = free_bytes == UINT64_MAX ? 0 : free_bytes;
}

/* Removes an open repository, which it closes. */
static bool remove_open(struct td_publish *publish, struct td_publish_repo *repo, struct td_error *err)
{
    char trash[TD_OWN_NAME_BYTES] = "";
    td_publish_drop_uploads(publish, repo->name.folder);
    uint64_t bytes = count_blobs(publish, repo);
    bool ok = td_publish_repo_remove(repo, trash, err);
    td_publish_repo_close(repo);
    if (trash[0] == '\0')
        return false;
    td_publish_give_back(publish, bytes);
    td_own_folder_remove(&publish->disk.own, trash);
    return ok;
}

bool td_publish_remove(struct td_publish *publish, const struct td_publish_name *name, struct td_error *err)
{
    struct td_publish_repo repo;
    td_publish_sessions_close(publish, name->folder);
    td_publish_close_idle(publish, name->folder, UINT64_MAX);
    return td_publish_repo_open(&publish->disk, name, false, &repo, err) && remove_open(publish, &repo, err);
}

/* Notes the id of the commit that a revision names, and whether there are two. */
struct revisions {
    size_t count;
    char commit[TD_COMMIT_BYTES];
};

static bool note_revision(void *context, const char *name, const char *commit)
{
    struct revisions *revisions = context;
    (void)name;
    (void)snprintf(revisions->commit, sizeof revisions->commit, "%s", commit);
    return ++revisions->count < 2;
}

static struct td_collect_rules rules_now(const struct td_publish *publish)
{
    return (struct td_collect_rules){.now_s = td_wall_now().seconds,
                                     .keep_commits_s = publish->config.keep_commits_s,
                                     .more = td_publish_collect_manifests,
                                     .upload_expires_s = publish->config.upload_expires_s};
}

/* Stops at an unfinished blob that has not expired. */
static bool pass_expired(void *context, int at, const char *name, struct td_error *err)
{
    const struct td_collect_rules *rules = context;
    struct stat st;
    char hex[TD_SHA256_TEXT_BYTES];
    (void)err;
    return !is_unfinished(name, hex) || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
           (int64_t)st.st_mtim.tv_sec <= td_collect_expired_s(rules);
}

/* Returns whether blobs of an open repository arrive, or have arrived for a commit that has not come yet. */
static bool awaits_commit(struct td_publish *publish, const struct td_publish_repo *repo)
{
    struct td_publish_repo same = *repo;
    struct td_collect_rules rules = rules_now(publish);
    return td_publish_has_uploads(publish, repo->name.folder) ||
           !td_disk_list(td_folder_open(repo->fd, "blobs"), repo->name.folder, pass_expired, &rules, NULL) ||
           td_publish_has_young_blob(&same, &rules);
}

/* Returns whether the only revision of an open repository has no file, and nothing else was pushed to it. */
static bool is_empty(void *context, const struct td_publish_repo *repo)
{
    struct td_publish *publish = context;
    struct revisions revisions = {.count = 0};
    struct td_commit_list none = {.count = 0};
    char commit[TD_COMMIT_BYTES];
    return repo->fd >= 0 && !repo->is_new && !td_publish_has_manifests(repo) &&
           td_publish_each_ref(repo, note_revision, &revisions) && revisions.count == 1 &&
           td_commit_list_id(&none, commit, NULL) && strcmp(commit, revisions.commit) == 0 &&
           !awaits_commit(publish, repo);
}

/* Does what td_publish_remove_if does, and leaves sessions open. */
static bool remove_if(struct td_publish *publish, const struct td_publish_name *name,
                      bool (*may)(void *context, const struct td_publish_repo *repo), void *context, bool *is_removed,
                      struct td_error *err)
{
    struct td_publish_repo repo;
    *is_removed = false;
    td_publish_close_idle(publish, name->folder, UINT64_MAX);
    if (!td_publish_repo_open(&publish->disk, name, false, &repo, err))
        return false;
    if (!may(context, &repo)) {
        td_publish_repo_close(&repo);
        return true;
    }
    *is_removed = remove_open(publish, &repo, err);
    return *is_removed;
}

bool td_publish_remove_if(struct td_publish *publish, const struct td_publish_name *name,
                          bool (*may)(void *context, const struct td_publish_repo *repo), void *context,
                          bool *is_removed, struct td_error *err)
{
    td_publish_sessions_close(publish, name->folder);
    return remove_if(publish, name, may, context, is_removed, err);
}

bool td_publish_remove_empty(struct td_publish *publish, const struct td_publish_name *name, bool *is_removed,
                             struct td_error *err)
{
    return remove_if(publish, name, is_empty, publish, is_removed, err);
}

bool td_publish_move(struct td_publish *publish, const struct td_publish_name *from, const struct td_publish_name *to,
                     struct td_error *err)
{
    struct td_publish_repo repo;
    if (!td_publish_repo_open_to_move(&publish->disk, from, to, &repo, err))
        return false;
    td_publish_close_idle(publish, from->folder, UINT64_MAX);
    bool ok = td_publish_has_uploads(publish, from->folder)
                  ? td_error_set(err, TD_CONFLICT, "a file of \"%s\" is being sent; move it afterwards", from->path)
                  : td_publish_repo_move(&repo, to, err);
    td_publish_repo_close(&repo);
    return ok;
}

/* ---- tidying --------------------------------------------------------------------------------------------- */

struct tidying {
    struct td_publish *publish;
    struct td_collect_rules rules;
    const _Atomic bool *stop;
};

/* Removes unfinished blobs that nobody has written to for long, and commits and blobs that nothing names. Notes when
 * there will be something else to remove. */
static bool tidy_open_repo(const struct tidying *tidying, struct td_publish_repo *repo, struct td_collected *collected,
                           struct td_error *err)
{
    const struct td_collect_rules *rules = &tidying->rules;
    struct blobs blobs = {.publish = tidying->publish, .repo = repo, .rules = rules, .next_s = INT64_MAX};
    int fd = td_folder_open(repo->fd, "blobs");
    bool ok = ((fd < 0 && errno == ENOENT) || td_disk_list(fd, repo->name.folder, expire_blob, &blobs, err)) &&
              td_publish_collect(repo, rules, collected, err);
    td_publish_give_back(tidying->publish, blobs.bytes + collected->blob_bytes);
    if (ok)
        td_publish_quiet_set(&repo->disk->quiet, repo->name.folder, rules->now_s,
                             blobs.next_s < collected->next_s ? blobs.next_s : collected->next_s);
    return ok;
}

/* Tidies one repository, unless it needs none. */
static bool tidy_repo(void *context, const struct td_publish_name *name, struct td_error *err)
{
    struct tidying *tidying = context;
    struct td_publish *publish = tidying->publish;
    struct td_collected collected = {0};
    struct td_error why = TD_ERROR_INIT;
    struct td_publish_repo repo;
    (void)err;
    if (td_publish_quiet_is(&publish->disk.quiet, name->folder, tidying->rules.now_s))
        return !atomic_load(tidying->stop);
    if (!td_publish_repo_open(&publish->disk, name, false, &repo, NULL))
        return true;
    bool ok = repo.fd < 0 || tidy_open_repo(tidying, &repo, &collected, &why);
    td_publish_repo_close(&repo);
    if (collected.trash[0] != '\0')
        td_own_folder_remove(&publish->disk.own, collected.trash);
    if (!ok)
        td_log(TD_LOG_WARN, "publish: \"%s\" cannot be tidied: %s", name->folder, why.message);
    else if (collected.commits + collected.blobs > 0)
        td_log(TD_LOG_INFO, "publish: removed %" PRIu64 " commits and %" PRIu64 " blobs of \"%s\", %" PRIu64 " bytes",
               collected.commits, collected.blobs, name->path, collected.blob_bytes);
    return !atomic_load(tidying->stop);
}

void td_publish_tidy_one(struct td_publish *publish, const struct td_publish_name *name)
{
    const _Atomic bool stop = false;
    struct tidying tidying = {.publish = publish, .rules = rules_now(publish), .stop = &stop};
    (void)tidy_repo(&tidying, name, NULL);
}

void td_publish_tidy(struct td_publish *publish, const _Atomic bool *stop)
{
    struct td_error why = TD_ERROR_INIT;
    uint64_t now_ns = td_clock_ns();
    struct tidying tidying = {.publish = publish, .rules = rules_now(publish), .stop = stop};
    td_publish_sessions_tidy(publish, now_ns);
    td_publish_close_idle(publish, NULL, now_ns > IDLE_NS ? now_ns - IDLE_NS : 0);
    td_parts_expire(publish, td_collect_expired_s(&tidying.rules));
    td_publish_leases_expire(&publish->disk.leases, td_collect_expired_s(&tidying.rules));
    td_publish_xorbs_expire(publish, false);
    bool ok = td_own_folder_check(&publish->disk.own, &why) &&
              td_publish_disk_each(&publish->disk, tidy_repo, &tidying, &why);
    if (!ok && why.code != TD_OK) /* else it was stopped */
        td_log(TD_LOG_WARN, "publish: the published models cannot be tidied: %s", why.message);
}
