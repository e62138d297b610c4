#include "catalog/publish/publish_store.h"

#include "core/digits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

bool td_publish_store_open(const struct td_publish_config *config, struct td_publish **out, struct td_error *err)
{
    struct td_publish *publish = calloc(1, sizeof *publish);
    if (publish == NULL)
        return td_error_no_memory(err);
    publish->config = *config;
    publish->status.max_bytes = config->max_bytes;
    if (!td_publish_disk_open(&publish->disk, config->root, err)) {
        free(publish);
        return false;
    }
    td_shared_budget_init(&publish->xorb_counts, TD_PUBLISH_XORBS, "objects of uploads");
    (void)pthread_mutex_init(&publish->parts_lock, NULL);
    (void)pthread_mutex_init(&publish->lock, NULL); /* cannot fail without attributes (glibc) */
    *out = publish;
    return true;
}

void td_publish_store_close(struct td_publish *publish)
{
    td_publish_disk_close(&publish->disk);
    (void)pthread_mutex_destroy(&publish->lock);
    (void)pthread_mutex_destroy(&publish->parts_lock);
    free(publish);
}

void td_publish_get_status(struct td_publish *publish, struct td_publish_status *status)
{
    pthread_mutex_lock(&publish->lock);
    *status = publish->status;
    pthread_mutex_unlock(&publish->lock);
}

/* ---- the bound ------------------------------------------------------------------------------------------- */

bool td_publish_take(struct td_publish *publish, uint64_t bytes, struct td_error *err)
{
    pthread_mutex_lock(&publish->lock);
    struct td_publish_status *status = &publish->status;
    uint64_t used = status->used_bytes;
    bool ok = publish->config.max_bytes == 0 ||
              (used <= publish->config.max_bytes && bytes <= publish->config.max_bytes - used);
    if (ok)
        status->used_bytes = bytes <= UINT64_MAX - used ? used + bytes : UINT64_MAX;
    else
        status->refused_quota_count++;
    pthread_mutex_unlock(&publish->lock);
    return ok || td_error_sys(err, TD_RESOURCE_EXHAUSTED, EDQUOT,
                              "the blob has %" PRIu64 " bytes, and published models take %" PRIu64 " of %" PRIu64
                              " (--publish-max-bytes)",
                              bytes, used, publish->config.max_bytes);
}

void td_publish_take_anyway(struct td_publish *publish, uint64_t bytes)
{
    pthread_mutex_lock(&publish->lock);
    publish->status.used_bytes += bytes;
    pthread_mutex_unlock(&publish->lock);
}

void td_publish_give_back(struct td_publish *publish, uint64_t bytes)
{
    pthread_mutex_lock(&publish->lock);
    uint64_t *used = &publish->status.used_bytes;
    *used -= bytes < *used ? bytes : *used;
    pthread_mutex_unlock(&publish->lock);
}

/* ---- blobs ----------------------------------------------------------------------------------------------- */

bool td_publish_repo_root(const struct td_publish_repo *repo, struct td_root **out, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    char path[PATH_MAX];
    struct stat named;
    struct stat opened;
    int n = repo->is_new ? snprintf(path, sizeof path, "%s/" TD_PUBLISH_FOLDER "/new/%s", own->root, repo->name.folder)
                         : snprintf(path, sizeof path, "%s/%s", own->root, repo->name.folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the path of the served directory is too long");
    if (!td_root_create(path, out, err))
        return false;
    if (fstat((*out)->fd, &named) == 0 && fstat(repo->fd, &opened) == 0 && named.st_dev == opened.st_dev &&
        named.st_ino == opened.st_ino)
        return true;
    td_root_unref(*out);
    return td_error_set(err, TD_FAILED_PRECONDITION, "\"%s\" was replaced while a blob of it arrives", path);
}

/* Returns whether the repository has the complete blob, and sets *size_bytes. */
static bool is_here(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES], uint64_t *size_bytes)
{
    char path[sizeof "blobs/" + TD_SHA256_TEXT_BYTES] = "blobs/";
    struct stat st;
    td_hex_write(sha256, TD_SHA256_BYTES, path + sizeof "blobs/" - 1);
    if (repo->fd < 0 || fstatat(repo->fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return false;
    *size_bytes = (uint64_t)st.st_size;
    return true;
}

bool td_publish_keep_blob(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                          uint64_t *size_bytes)
{
    /* only blobs that are here get leases; again, since one may have been removed before its lease */
    return is_here(repo, sha256, size_bytes) && td_publish_lease(&repo->disk->leases, repo->name.folder, sha256) &&
           is_here(repo, sha256, size_bytes);
}

void td_publish_note_blob(struct td_publish *publish, int dir_fd, const char *hex,
                          const uint8_t sha256[TD_SHA256_BYTES])
{
    struct stat st;
    pthread_mutex_lock(&publish->lock);
    publish->status.blob_count++;
    pthread_mutex_unlock(&publish->lock);
    if (publish->config.on_blob == NULL || fstatat(dir_fd, hex, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    const struct td_file_id id = td_file_id_of(&st);
    publish->config.on_blob(publish->config.context, &id, sha256);
}

void td_publish_note_bytes(struct td_publish *publish, uint64_t bytes)
{
    pthread_mutex_lock(&publish->lock);
    publish->status.received_bytes += bytes;
    pthread_mutex_unlock(&publish->lock);
}

void td_publish_note_commit(struct td_publish *publish)
{
    pthread_mutex_lock(&publish->lock);
    publish->status.commit_count++;
    pthread_mutex_unlock(&publish->lock);
}

void td_publish_note_failure(struct td_publish *publish, enum td_publish_failure failure)
{
    pthread_mutex_lock(&publish->lock);
    publish->status.failures[failure]++;
    pthread_mutex_unlock(&publish->lock);
}

void td_publish_note_refused(struct td_publish *publish)
{
    pthread_mutex_lock(&publish->lock);
    publish->status.refused_digest_count++;
    pthread_mutex_unlock(&publish->lock);
}
