#include "catalog/publish/publish.h"

#include "catalog/publish/publish_collect.h"
#include "catalog/publish/publish_upload.h"
#include "core/clock.h"
#include "core/log.h"
#include "storage/fetch/fetch_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDLE_NS (UINT64_C(60) * TD_NS_PER_S)

/* ---- blobs of a repository ------------------------------------------------------------------------------- */

/* Visits the files of blobs/: sums up their bytes or, with `expired_s`, removes unfinished blobs that are older. */
struct blobs {
    struct td_publish *publish;
    const struct td_publish_repo *repo;
    int64_t expired_s; /* since 1970; INT64_MIN: nothing is removed */
    uint64_t bytes;    /* of blobs, and of unfinished ones that are not open; of those that were removed */
};

/* Returns the digits of an unfinished blob's name, ".HEX.tensord-part"; false for another name. */
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

/* Removes an unfinished blob with its journal. */
static void expire_blob(struct blobs *blobs, int fd, const char *name, const char *hex, const struct stat *st)
{
    char journal[NAME_MAX + 1];
    (void)snprintf(journal, sizeof journal, ".%s" TD_FETCH_JOURNAL_END, hex);
    (void)unlinkat(fd, journal, 0);
    if (unlinkat(fd, name, 0) == 0)
        blobs->bytes += (uint64_t)st->st_size;
}

static void visit_blob(struct blobs *blobs, int fd, const char *name)
{
    struct stat st;
    char hex[TD_SHA256_TEXT_BYTES];
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return;
    bool is_part = is_unfinished(name, hex);
    if (is_part && td_publish_is_open(blobs->publish, blobs->repo->name.folder, hex))
        return;
    if (blobs->expired_s == INT64_MIN)
        blobs->bytes += is_part || name[0] != '.' ? (uint64_t)st.st_size : 0;
    else if (is_part && (int64_t)st.st_mtim.tv_sec <= blobs->expired_s)
        expire_blob(blobs, fd, name, hex, &st);
}

/* Visits all files of the open repository's blobs/. Returns blobs.bytes. */
static uint64_t visit_blobs(struct td_publish *publish, const struct td_publish_repo *repo, int64_t expired_s)
{
    struct blobs blobs = {.publish = publish, .repo = repo, .expired_s = expired_s};
    int fd = repo->fd < 0 ? -1 : openat(repo->fd, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL && fd >= 0)
        (void)close(fd);
    const struct dirent *item;
    while (directory != NULL && (item = readdir(directory)) != NULL) // NOLINT(concurrency-mt-unsafe): one thread
        visit_blob(&blobs, fd, item->d_name);
    if (directory != NULL)
        (void)closedir(directory);
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
    publish->status.used_bytes += visit_blobs(publish, &repo, INT64_MIN);
    td_publish_repo_close(&repo);
    return true;
}

bool td_publish_open(const struct td_publish_config *config, struct td_publish **out, struct td_error *err)
{
    struct td_publish *publish;
    if (!td_publish_store_open(config, &publish, err))
        return false;
    if (!td_publish_disk_each(&publish->disk, count_repo, publish, err)) {
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
    td_publish_close_idle(publish, NULL, UINT64_MAX);
    td_publish_store_close(publish);
}

bool td_publish_remove(struct td_publish *publish, const struct td_publish_name *name, struct td_error *err)
{
    struct td_publish_repo repo;
    char trash[TD_OWN_NAME_BYTES];
    td_publish_close_idle(publish, name->folder, UINT64_MAX);
    if (!td_publish_repo_open(&publish->disk, name, false, &repo, err))
        return false;
    uint64_t bytes = visit_blobs(publish, &repo, INT64_MIN);
    bool ok = td_publish_repo_remove(&repo, trash, err);
    td_publish_repo_close(&repo);
    if (!ok)
        return false;
    td_publish_give_back(publish, bytes);
    td_own_folder_remove(&publish->disk.own, trash);
    return true;
}

/* ---- tidying --------------------------------------------------------------------------------------------- */

struct tidying {
    struct td_publish *publish;
    struct td_collect_rules rules;
    const _Atomic bool *stop;
};

/* Removes what has expired in one repository. */
static bool tidy_repo(void *context, const struct td_publish_name *name, struct td_error *err)
{
    struct tidying *tidying = context;
    struct td_publish *publish = tidying->publish;
    struct td_collected collected = {0};
    struct td_error why = TD_ERROR_INIT;
    struct td_publish_repo repo;
    (void)err;
    if (!td_publish_repo_open(&publish->disk, name, false, &repo, NULL))
        return true;
    int64_t age_s = tidying->rules.upload_expires_s < INT32_MAX ? (int64_t)tidying->rules.upload_expires_s : INT32_MAX;
    uint64_t bytes = visit_blobs(publish, &repo, tidying->rules.now_s - age_s);
    bool ok = repo.fd < 0 || td_publish_collect(&repo, &tidying->rules, &collected, &why);
    td_publish_repo_close(&repo);
    td_publish_give_back(publish, bytes + collected.blob_bytes);
    if (!ok)
        td_log(TD_LOG_WARN, "publish: \"%s\" cannot be tidied: %s", name->folder, why.message);
    else if (collected.commits + collected.blobs > 0)
        td_log(TD_LOG_INFO, "publish: removed %" PRIu64 " commits and %" PRIu64 " blobs of \"%s\", %" PRIu64 " bytes",
               collected.commits, collected.blobs, name->path, collected.blob_bytes);
    return !atomic_load(tidying->stop);
}

static bool remove_trash(void *context, const char *name, struct td_error *err)
{
    struct td_publish *publish = context;
    char path[TD_OWN_NAME_BYTES];
    (void)err;
    (void)snprintf(path, sizeof path, "trash/%s", name);
    td_own_folder_remove(&publish->disk.own, path);
    return true;
}

void td_publish_tidy(struct td_publish *publish, const _Atomic bool *stop)
{
    struct td_error why = TD_ERROR_INIT;
    uint64_t now_ns = td_clock_ns();
    struct tidying tidying = {.publish = publish,
                              .rules = {.now_s = td_wall_now().seconds,
                                        .keep_commits_s = publish->config.keep_commits_s,
                                        .upload_expires_s = publish->config.upload_expires_s},
                              .stop = stop};
    td_publish_close_idle(publish, NULL, now_ns > IDLE_NS ? now_ns - IDLE_NS : 0);
    if (!td_own_folder_check(&publish->disk.own, &why) ||
        !td_publish_disk_each(&publish->disk, tidy_repo, &tidying, &why) ||
        !td_own_folder_each(&publish->disk.own, "trash", remove_trash, publish, &why))
        if (why.code != TD_OK)
            td_log(TD_LOG_WARN, "publish: cannot remove what has expired: %s", why.message);
}
