/* Plan: the order of the steps keeps the store consistent if the process is killed at any point. The record is written
 * before the rename: the next start drops a record without its directory in place, and the fetch resumes from the
 * folder under incoming/. The rename is made when all files are at rest, so that the next scan publishes either all of
 * them or none. */
#include "catalog/upstream/kept_publish.h"

#include "catalog/upstream/kept_disk.h"
#include "core/clock.h"
#include "storage/at_rest.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The removal of files that do not belong to a model. */
struct pruning {
    size_t prefix_len; /* of the paths, up to the model's own */
    const struct td_kept_files *belonging;
    int64_t changed_ns; /* result: the latest change time of a file that stays, ns since 1970 */
};

/* Syncs a directory, so that the names in it are durable. */
static void sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    (void)close(fd);
}

/* Removes one item if it does not belong to the model, or is an empty directory. */
static bool prune_item(void *context, const FTSENT *item)
{
    struct pruning *pruning = context;
    if (item->fts_info == FTS_D)
        return true;
    if (item->fts_info == FTS_DP) {
        bool is_top = item->fts_pathlen <= pruning->prefix_len;
        if (is_top || unlinkat(AT_FDCWD, item->fts_path, AT_REMOVEDIR) != 0)
            sync_directory(item->fts_path);
        return true;
    }
    if (!pruning->belonging->belongs(pruning->belonging->context, item->fts_path + pruning->prefix_len))
        return unlinkat(AT_FDCWD, item->fts_path, 0) == 0;
    int64_t changed_ns = td_file_id_of(item->fts_statp).ctime_ns;
    if (changed_ns > pruning->changed_ns)
        pruning->changed_ns = changed_ns;
    return true;
}

/* Waits until every file that was changed at this time, or earlier, is at rest: 40 ms at most after the change. A scan
 * skips files that are not at rest, so it would publish the model without its newest files. */
static void wait_for_rest(int64_t changed_ns)
{
    uint64_t wait_ns = 0;
    struct td_wall now = td_wall_now();
    while (td_change_time_at_rest(changed_ns, now.seconds * TD_NS_PER_S + now.nanoseconds, &wait_ns) == TD_REST_SOON) {
        const struct timespec pause = {.tv_nsec = (long)wait_ns};
        (void)nanosleep(&pause, NULL);
        now = td_wall_now();
    }
}

/* Opens the parent directory of the model's place, and creates it if it is missing. */
static bool open_parent(const struct td_kept_disk *disk, const char *id, int *parent, const char **name,
                        struct td_error *err)
{
    char path[TD_UPSTREAM_ID_BYTES];
    const char *slash = strchr(id, '/');
    if (slash != NULL) {
        (void)snprintf(path, sizeof path, "%.*s", (int)(slash - id), id);
        if (mkdirat(disk->root_fd, path, 0755) != 0 && errno != EEXIST)
            return td_error_sys(err, TD_IO, errno, "cannot make \"%s/%s\"", disk->root, path);
    }
    *parent = td_kept_disk_open_parent(disk, id, name);
    return *parent >= 0 || td_error_sys(err, TD_IO, errno, "cannot open the directory of \"%s/%s\"", disk->root, id);
}

/* Renames the folder of the files into place, durably. */
static bool move_in_place(const struct td_kept_disk *disk, const char *id, const char *files, struct td_error *err)
{
    int parent = -1;
    const char *name = NULL;
    if (!td_kept_disk_check_place(disk, id, err) || !open_parent(disk, id, &parent, &name, err))
        return false;
    bool ok = renameat2(disk->fd, files, parent, name, RENAME_NOREPLACE) == 0;
    int sys = errno;
    if (ok)
        (void)(fsync(parent) + fsync(disk->root_fd));
    (void)close(parent);
    return ok || td_error_sys(err, sys == EEXIST ? TD_CONFLICT : TD_IO, sys, "cannot move \"%s\" into place", id);
}

/* Removes files that do not belong to the model from its folder, and writes to *note what eviction will compare. */
static bool prune_files(const struct td_kept_disk *disk, const char *files, const struct td_kept_files *belonging,
                        struct td_kept_note *note, int64_t *changed_ns, struct td_error *err)
{
    char path[TD_KEPT_PATH_BYTES];
    td_kept_disk_path(disk, files, path);
    struct pruning pruning = {.prefix_len = strlen(path) + 1, .belonging = belonging};
    struct stat st;
    if (!td_disk_tree_visit(path, prune_item, &pruning) || lstat(path, &st) != 0)
        return td_error_sys(err, TD_IO, errno, "cannot list \"%s/%s/%s\"", disk->root, TD_UPSTREAM_FOLDER, files);
    if (!td_published_tree_tag(path, note->tree))
        return td_error_set(err, TD_IO, "cannot check all files in \"%s/%s/%s\"", disk->root, TD_UPSTREAM_FOLDER,
                            files);
    note->inode = st.st_ino;
    note->mtime_ns = td_file_id_of(&st).mtime_ns;
    *changed_ns = pruning.changed_ns;
    return true;
}

bool td_kept_publish(const struct td_kept_disk *disk, const char *key, const struct td_kept_files *belonging,
                     struct td_kept_note *note, struct td_error *err)
{
    char files[TD_KEPT_NAME_BYTES];
    char record[TD_KEPT_NAME_BYTES];
    char folder[TD_KEPT_NAME_BYTES];
    int64_t changed_ns = 0;
    td_kept_incoming_name(key, "/files", files);
    td_kept_record_name(key, record);
    td_kept_incoming_name(key, "", folder);
    if (!td_kept_disk_check(disk, err) || !prune_files(disk, files, belonging, note, &changed_ns, err) ||
        !td_kept_note_write(disk->fd, record, note, err))
        return false;
    wait_for_rest(changed_ns);
    if (move_in_place(disk, note->id, files, err)) {
        td_kept_disk_remove(disk, folder);
        return true;
    }
    (void)unlinkat(disk->fd, record, 0);
    return false;
}
