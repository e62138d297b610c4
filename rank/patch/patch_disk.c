/* A kept file is the patch and then its SHA-256, 32 bytes. It is written under another name and renamed, but not
 * synchronised, since a client waits for it: what a power cut has damaged is found when td_patch_disk_load compares the
 * SHA-256. */
#include "rank/patch/patch_disk.h"

#include "catalog/model/state_dir.h"
#include "core/array.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "core/log.h"
#include "storage/fault_guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char folder_name[] = "patches";
static const char new_prefix[] = "new-"; /* of files that are being written */

enum {
    BUFFER_BYTES = 256 * 1024,
    TAKEN_AT_ONCE_BYTES = 4 * 1024 * 1024, /* of the budget */
    FOUND_MAX = 1024
};

struct td_patch_found {
    char name[TD_TAG_BYTES];
    uint64_t bytes;
    int64_t mtime_ns;
};

bool td_patch_disk_init(struct td_patch_disk *disk)
{
    *disk = (struct td_patch_disk){.dir_fd = -1};
    td_budget_init(&disk->bytes, TD_PATCH_UNNAMED_BYTES, "patches on the disk");
    return pthread_mutex_init(&disk->lock, NULL) == 0;
}

void td_patch_disk_fini(struct td_patch_disk *disk)
{
    if (disk->dir_fd >= 0)
        (void)close(disk->dir_fd);
    free(disk->found);
    (void)pthread_mutex_destroy(&disk->lock);
}

/* ---- patches of earlier processes ----------------------------------------------------------------------- */

static bool is_patch_name(const char *name)
{
    return strlen(name) == TD_TAG_BYTES - 1 && strspn(name, "0123456789abcdef") == TD_TAG_BYTES - 1;
}

static int compare_found(const void *a, const void *b)
{
    const int64_t x = ((const struct td_patch_found *)a)->mtime_ns;
    const int64_t y = ((const struct td_patch_found *)b)->mtime_ns;
    return x > y ? -1 : x < y ? 1 : 0;
}

/* Returns whether a file of the folder may be a patch, and sets *found. */
static bool look_at(int dir_fd, const char *name, struct td_patch_found *found)
{
    struct stat st;
    if (!is_patch_name(name) || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        !td_state_is_ours_alone(&st) || st.st_size <= TD_SHA256_BYTES)
        return false;
    *found = (struct td_patch_found){.bytes = (uint64_t)st.st_size,
                                     .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    memcpy(found->name, name, sizeof found->name);
    return true;
}

/* Lists the patches in the folder, and removes all other files. Without memory it lists fewer. */
static void list_found(struct td_patch_disk *disk)
{
    int fd = openat(disk->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t capacity = 0;
    if (dir == NULL && fd >= 0)
        (void)close(fd);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct td_patch_found found;
        if (entry->d_name[0] == '.')
            continue;
        if (!look_at(disk->dir_fd, entry->d_name, &found))
            (void)unlinkat(disk->dir_fd, entry->d_name, 0);
        else if (TD_ARRAY_GROW(disk->found, disk->found_count, capacity, NULL))
            disk->found[disk->found_count++] = found;
    }
    if (dir != NULL)
        (void)closedir(dir);
    if (disk->found_count > 0)
        qsort(disk->found, disk->found_count, sizeof *disk->found, compare_found);
}

/* Takes the bytes of the newest patches from the budget, and removes the others. */
static void keep_newest(struct td_patch_disk *disk)
{
    size_t count = 0;
    for (size_t i = 0; i < disk->found_count; i++) {
        if (count < FOUND_MAX && td_budget_take(&disk->bytes, disk->found[i].bytes))
            disk->found[count++] = disk->found[i];
        else
            (void)unlinkat(disk->dir_fd, disk->found[i].name, 0);
    }
    disk->found_count = count;
}

void td_patch_disk_keep(struct td_patch_disk *disk, uint64_t max_bytes, const char *state_dir, const char *root)
{
    struct td_error why = TD_ERROR_INIT;
    disk->bytes.max_bytes = max_bytes < TD_PATCH_UNNAMED_BYTES ? max_bytes : TD_PATCH_UNNAMED_BYTES;
    if (state_dir == NULL)
        return;
    if (!td_state_folder_open(state_dir, root, folder_name, &disk->dir_fd, &why)) {
        disk->dir_fd = -1;
        td_log(TD_LOG_WARN, "patches are kept in temporary files alone: %s", why.message);
        return;
    }
    disk->is_kept = true;
    disk->bytes.max_bytes = max_bytes;
    list_found(disk);
    keep_newest(disk);
}

/* Takes the last of the patches that were found off the list, or with a name that of this name. */
static bool take_found(struct td_patch_disk *disk, const char *name, struct td_patch_found *out)
{
    pthread_mutex_lock(&disk->lock);
    size_t i = disk->found_count;
    while (i > 0 && name != NULL && strcmp(disk->found[i - 1].name, name) != 0)
        i--;
    if (i > 0) {
        *out = disk->found[i - 1];
        memmove(disk->found + i - 1, disk->found + i, (disk->found_count - i) * sizeof *disk->found);
        disk->found_count--;
    }
    pthread_mutex_unlock(&disk->lock);
    return i > 0;
}

bool td_patch_disk_drop_found(struct td_patch_disk *disk)
{
    struct td_patch_found found;
    if (!take_found(disk, NULL, &found))
        return false;
    (void)unlinkat(disk->dir_fd, found.name, 0);
    td_budget_give(&disk->bytes, found.bytes);
    return true;
}

/* ---- patches -------------------------------------------------------------------------------------------- */

static void destroy_patch(struct td_blob *blob)
{
    struct td_patch *patch = (struct td_patch *)(void *)blob;
    (void)munmap((void *)(uintptr_t)blob->bytes, patch->mapped_bytes);
    if (patch->name[0] != '\0' && !patch->disk->leaves_names)
        (void)unlinkat(patch->disk->dir_fd, patch->name, 0);
    td_budget_give(&patch->disk->bytes, patch->mapped_bytes);
    free(patch);
}

static bool read_patch(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    return td_fault_guard_copy(out, blob->bytes + off, len) ||
           td_error_set(err, TD_UNAVAILABLE, "a patch cannot be read from the disk");
}

static const struct td_blob_class patch_class = {.destroy = destroy_patch, .read = read_patch};

/* Maps a file, patch and SHA-256, whose bytes are taken from the budget. Returns NULL, with those bytes still taken,
 * when that fails. name: as in td_patch. */
static struct td_patch *map_patch(struct td_patch_disk *disk, int fd, uint64_t bytes, const char *name,
                                  const uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    struct td_patch *patch = calloc(1, sizeof *patch);
    if (patch == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    void *mapped = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        (void)td_error_sys(err, TD_RESOURCE_EXHAUSTED, errno, "cannot map a patch");
        free(patch);
        return NULL;
    }
    td_blob_init(&patch->blob, &patch_class, bytes - TD_SHA256_BYTES);
    patch->blob.bytes = mapped;
    patch->disk = disk;
    patch->mapped_bytes = (size_t)bytes;
    (void)snprintf(patch->name, sizeof patch->name, "%s", name);
    td_hex_write(sum, TD_SHA256_BYTES, patch->tag);
    return patch;
}

static bool hash_bytes(void *context, const void *bytes, size_t len, struct td_error *err)
{
    (void)err;
    td_digest_add_content(context, bytes, len);
    return true;
}

/* Returns whether the bytes of the patch have the SHA-256 of its tag. */
static bool is_intact(struct td_patch *patch)
{
    uint8_t sum[TD_SHA256_BYTES];
    char tag[TD_SHA256_TEXT_BYTES];
    struct td_digest *digest = td_digest_create();
    bool ok = digest != NULL && td_blob_copy_to(&patch->blob, 0, patch->blob.len_bytes, hash_bytes, digest, NULL);
    if (!td_digest_finish_binary(digest, sum) || !ok)
        return false;
    td_hex_write(sum, sizeof sum, tag);
    return strcmp(tag, patch->tag) == 0;
}

struct td_patch *td_patch_disk_load(struct td_patch_disk *disk, const char *name)
{
    struct td_patch_found found;
    struct stat st;
    uint8_t sum[TD_SHA256_BYTES];
    if (!take_found(disk, name, &found))
        return NULL;
    int fd = openat(disk->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && td_state_is_ours_alone(&st) &&
              (uint64_t)st.st_size == found.bytes &&
              td_read_at(fd, sum, sizeof sum, found.bytes - sizeof sum) == (ssize_t)sizeof sum;
    struct td_patch *patch = ok ? map_patch(disk, fd, found.bytes, name, sum, NULL) : NULL;
    if (fd >= 0)
        (void)close(fd);
    if (patch == NULL) {
        (void)unlinkat(disk->dir_fd, name, 0);
        td_budget_give(&disk->bytes, found.bytes);
    } else if (!is_intact(patch)) {
        td_log(TD_LOG_WARN, "--state-dir: the patch \"%s\" is damaged; it is made again", name);
        td_blob_unref(&patch->blob);
        patch = NULL;
    }
    return patch;
}

/* ---- spools --------------------------------------------------------------------------------------------- */

/* Opens the folder for files without names, if there is no other. */
static bool open_folder(struct td_patch_disk *disk, struct td_error *err)
{
    const char *path = getenv("TMPDIR");
    path = path == NULL || path[0] != '/' ? "/tmp" : path;
    pthread_mutex_lock(&disk->lock);
    if (disk->dir_fd < 0)
        disk->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = disk->dir_fd >= 0 || td_error_sys(err, TD_FAILED_PRECONDITION, errno,
                                                "patches need a directory for their files, --state-dir, since \"%s\" "
                                                "cannot be used",
                                                path);
    pthread_mutex_unlock(&disk->lock);
    return ok;
}

/* Creates a file with a new name in the folder, and sets *fd. */
static bool create_file(struct td_patch_disk *disk, char name[TD_SPOOL_NAME_BYTES], int *fd, struct td_error *err)
{
    uint64_t number;
    if (!open_folder(disk, err))
        return false;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return td_error_sys(err, TD_INTERNAL, errno, "no random bytes");
    (void)snprintf(name, TD_SPOOL_NAME_BYTES, "%s%016" PRIx64, new_prefix, number);
    *fd = openat(disk->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *fd >= 0 || td_error_sys(err, TD_FAILED_PRECONDITION, errno, "cannot create a file for a patch%s",
                                    disk->is_kept ? " in --state-dir" : "; give --state-dir");
}

static void remove_name(struct td_spool *spool)
{
    if (spool->name[0] != '\0')
        (void)unlinkat(spool->disk->dir_fd, spool->name, 0);
    spool->name[0] = '\0';
}

bool td_spool_open(struct td_patch_disk *disk, bool becomes_patch, struct td_spool *spool, struct td_error *err)
{
    *spool = (struct td_spool){.disk = disk, .fd = -1, .most_bytes = disk->bytes.max_bytes / TD_PATCH_SHARE};
    spool->buffer = malloc(BUFFER_BYTES);
    if (spool->buffer == NULL)
        return td_error_no_memory(err);
    if (!create_file(disk, spool->name, &spool->fd, err)) {
        spool->name[0] = '\0';
        return false;
    }
    if (!becomes_patch || !disk->is_kept)
        remove_name(spool);
    return true;
}

void td_spool_close(struct td_spool *spool)
{
    if (spool->fd >= 0)
        (void)close(spool->fd);
    remove_name(spool);
    if (spool->disk != NULL)
        td_budget_give(&spool->disk->bytes, spool->taken_bytes);
    free(spool->buffer);
    *spool = (struct td_spool){.fd = -1};
}

uint64_t td_spool_bytes(const struct td_spool *spool)
{
    return spool->written + spool->filled;
}

/* Takes what the spool lacks of `bytes` bytes from the budget. */
static bool take_room(struct td_spool *spool, uint64_t bytes, struct td_error *err)
{
    while (spool->taken_bytes < bytes) {
        if (!td_budget_take(&spool->disk->bytes, TAKEN_AT_ONCE_BYTES))
            return td_budget_refuse(&spool->disk->bytes, TAKEN_AT_ONCE_BYTES, err);
        spool->taken_bytes += TAKEN_AT_ONCE_BYTES;
    }
    return true;
}

/* Writes the buffer to the file. While the disk is full, drops patches that no answer uses, one after the other: other
 * programs may have filled it, or it is smaller than the limit. */
static bool write_buffer(struct td_spool *spool, struct td_error *err)
{
    struct td_budget *bytes = &spool->disk->bytes;
    while (!td_write_at(spool->fd, spool->buffer, spool->filled, spool->written)) {
        const int sys = errno;
        if ((sys != ENOSPC && sys != EDQUOT) || bytes->make_room == NULL || !bytes->make_room(bytes->context))
            return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot write a patch to the disk");
    }
    return true;
}

/* Writes the buffer to the file, within the limits. */
static bool flush(struct td_spool *spool, struct td_error *err)
{
    const uint64_t end = spool->written + spool->filled;
    if (end > spool->most_bytes)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "the patch would have more than %" PRIu64 " bytes: read the tensors themselves",
                            spool->most_bytes);
    if (!take_room(spool, end, err) || !write_buffer(spool, err))
        return false;
    spool->written = end;
    spool->filled = 0;
    return true;
}

bool td_spool_add(struct td_spool *spool, const void *bytes, size_t len, struct td_error *err)
{
    const uint8_t *from = bytes;
    while (len > 0) {
        const size_t n = td_array_fill(spool->buffer, BUFFER_BYTES, &spool->filled, from, len);
        from += n;
        len -= n;
        if (spool->filled == BUFFER_BYTES && !flush(spool, err))
            return false;
    }
    return true;
}

void td_spool_cut(struct td_spool *spool, uint64_t bytes)
{
    if (bytes >= spool->written) {
        spool->filled = (size_t)(bytes - spool->written);
        return;
    }
    spool->written = bytes;
    spool->filled = 0;
}

bool td_spool_read(struct td_spool *spool, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (spool->filled > 0 && !flush(spool, err))
        return false;
    return td_read_at(spool->fd, out, len, off) == (ssize_t)len ||
           td_error_sys(err, TD_IO, errno, "cannot read the parts of a patch from the disk");
}

bool td_spool_become(struct td_spool *spool, const char *name, const uint8_t sum[TD_SHA256_BYTES],
                     struct td_patch **out, struct td_error *err)
{
    struct td_patch_disk *disk = spool->disk;
    if (!td_spool_add(spool, sum, TD_SHA256_BYTES, err) || !flush(spool, err))
        return false;
    if (spool->written < spool->taken_bytes)
        td_budget_give(&disk->bytes, spool->taken_bytes - (size_t)spool->written);
    spool->taken_bytes = (size_t)spool->written;
    if (spool->name[0] != '\0' && renameat(disk->dir_fd, spool->name, disk->dir_fd, name) != 0)
        return td_error_sys(err, TD_UNAVAILABLE, errno, "--state-dir: cannot rename a patch");
    const bool has_name = spool->name[0] != '\0';
    spool->name[0] = '\0';
    struct td_patch *patch = map_patch(disk, spool->fd, spool->written, has_name ? name : "", sum, err);
    if (patch == NULL && has_name)
        (void)unlinkat(disk->dir_fd, name, 0);
    if (patch == NULL)
        return false;
    spool->taken_bytes = 0; /* they are the patch's */
    td_spool_close(spool);
    *out = patch;
    return true;
}
