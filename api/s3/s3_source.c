#include "api/s3/s3_source.h"

#include "api/call/publishing.h"
#include "api/s3/s3_target.h"
#include "catalog/names/bucket.h"
#include "catalog/publish/publish_folder.h"
#include "catalog/publish/publish_refs.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "core/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void td_s3_source_fini(struct td_s3_source *source)
{
    td_blob_unref(source->blob);
    source->blob = NULL;
}

/* ---- blobs over a file that nobody changes ------------------------------------------------------------- */

struct file_blob {
    struct td_blob blob; /* first */
    int fd;
};

static int descriptor_of(const struct td_blob *blob)
{
    return ((const struct file_blob *)(const void *)blob)->fd;
}

static void destroy(struct td_blob *blob)
{
    (void)close(descriptor_of(blob));
    free(blob);
}

static bool read_blob(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (!td_may_wait(err))
        return false;
    return td_read_at(descriptor_of(blob), out, len, off) == (ssize_t)len ||
           td_error_sys(err, TD_UNAVAILABLE, errno, "a published file cannot be read");
}

static bool is_never_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    (void)blob;
    (void)off;
    (void)len;
    return false;
}

static const struct td_blob_class file_class = {
    .destroy = destroy, .read = read_blob, .resident = is_never_resident, .descriptor = descriptor_of};

/* Makes a blob of the file, whose descriptor it takes over, also on failure. */
static struct td_blob *make_blob(int fd, uint64_t size_bytes, struct td_error *err)
{
    struct file_blob *blob = malloc(sizeof *blob);
    if (blob == NULL) {
        (void)close(fd);
        (void)td_error_no_memory(err);
        return NULL;
    }
    td_blob_init(&blob->blob, &file_class, size_bytes);
    blob->fd = fd;
    return &blob->blob;
}

/* ---- files that no scan lists -------------------------------------------------------------------------- */

/* Opens the blob of a path in the main revision of a repository. */
static bool open_blob(const struct td_publish_repo *repo, const char *path, struct td_s3_source *source,
                      struct td_error *err)
{
    struct stat st;
    if (!td_publish_find_file(repo, "main", path, source->sha256))
        return false;
    td_hex_write(source->sha256, sizeof source->sha256, source->tag);
    int blobs = td_folder_open(repo->fd, "blobs");
    int fd = blobs < 0 ? -1 : openat(blobs, source->tag, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    td_folder_close(blobs);
    if (fd < 0)
        return td_publish_fail(&repo->name, "open a file of", err);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return td_error_set(err, TD_IO, "a blob is no file");
    }
    source->size_bytes = (uint64_t)st.st_size;
    source->written_ns = (int64_t)st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    source->has_sha256 = true;
    source->blob = make_blob(fd, source->size_bytes, err);
    return source->blob != NULL;
}

/* Returns whether lists may lack a file because of its path: one that they pass over, and a .metadata, which they show
 * with the parts that it describes. */
static bool may_be_unlisted(const char *path)
{
    return path[0] == '.' || strstr(path, "/.") != NULL || !td_commit_check_path(path, false, NULL);
}

bool td_s3_source_hidden(const struct td_call *call, struct td_text bucket, struct td_text key,
                         struct td_s3_source *source, struct td_error *err)
{
    struct td_s3_target target;
    struct td_s3_target_fault fault;
    struct td_publish_repo repo;
    *source = (struct td_s3_source){.blob = NULL};
    if (call->api->publish == NULL || !td_s3_target_find(call, bucket, key, &target, &fault) || target.is_folder ||
        !may_be_unlisted(target.path) || !td_publish_name(target.repo_id, target.is_dataset, &target.name, NULL) ||
        !td_publishing_may_see(call, td_text_of(target.repo_id), target.is_dataset))
        return false;
    if (!td_may_wait(err))
        return false;
    if (!td_publish_repo_look(&call->api->publish->disk, &target.name, &repo, err))
        return false;
    bool ok = open_blob(&repo, target.path, source, err);
    td_publish_repo_look_end(&repo);
    return ok;
}

bool td_s3_source_open(const struct td_call *call, struct td_text bucket, struct td_text key,
                       struct td_s3_source *source, struct td_error *err)
{
    const struct td_bucket *known = td_bucket_find(call->snapshot, bucket);
    const struct td_entry *entry = known == NULL ? NULL : td_bucket_find_entry(call->snapshot, known, key);
    *source = (struct td_s3_source){.blob = NULL};
    if (entry == NULL)
        return td_s3_source_hidden(call, bucket, key, source, err);
    const char *tag = td_file_tag(entry->file);
    source->size_bytes = entry->file->source.id.size_bytes;
    source->written_ns = entry->file->source.id.mtime_ns;
    (void)snprintf(source->tag, sizeof source->tag, "%s", tag);
    source->has_sha256 = td_hex_read_bytes(td_text_of(tag), source->sha256, sizeof source->sha256);
    return td_file_source_map(td_catalog_maps(call->api->catalog), call->snapshot->root, &entry->file->source,
                              &source->blob, err);
}
