/* Plan: removing a published model renames its directory into check/KEY, which makes it vanish at once. If nothing in
 * it has changed since it was published, it is moved on to trash/ and the record is removed; otherwise it is moved
 * back. At the start, models in check/ are moved back and everything in trash/ is removed.
 *
 * Publishing: the order of the steps keeps the store consistent if the process is killed at any point. The record is
 * written before the rename: the next start drops a record without its directory in place, and the fetch resumes from
 * the folder under incoming/. The rename is made when all files are at rest, so that the next scan publishes either all
 * of them or none. */
#include "catalog/upstream/kept_disk.h"

#include "catalog/remote/remote_listing.h"
#include "core/checked.h"
#include "core/clock.h"
#include "core/log.h"
#include "storage/disk_tree.h"
#include "storage/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- published directories ----------------------------------------------------------------------------- */

struct tagging {
    struct td_digest *digest;
    size_t top_len; /* of the top directory's path, which counts as empty */
    dev_t device;
};

/* Adds one item to the digest. Returns false for an item that cannot be part of a published model. */
static bool add_item(void *context, const FTSENT *item)
{
    const struct tagging *tagging = context;
    const struct stat *st = item->fts_statp;
    const uint64_t numbers[] = {
        st->st_mode & S_IFMT,
        st->st_ino,
        S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
        (uint64_t)td_file_id_of(st).mtime_ns,
    };
    if (item->fts_info == FTS_DP)
        return true;
    td_digest_add_cstring(tagging->digest, item->fts_path + tagging->top_len);
    td_digest_add(tagging->digest, numbers, sizeof numbers);
    return item->fts_info != FTS_DC && item->fts_level <= TD_REMOTE_MAX_DEPTH && st->st_dev == tagging->device;
}

/* Writes a digest over the path, kind, inode and modification time of the directory and of everything below it, and
 * over the sizes of its files. A move of the directory does not change the tag. Follows no links. May take long: it
 * asks for the status of each file, but reads none. Returns false and an empty tag when an item cannot be accessed, is
 * deeper than the files of a listing can be, or is on another file system than the directory. */
static bool tree_tag(const char *directory, char tag[TD_TAG_BYTES])
{
    struct stat top;
    struct tagging tagging = {.digest = td_digest_create(), .top_len = strlen(directory)};
    bool ok = lstat(directory, &top) == 0 && S_ISDIR(top.st_mode);
    tagging.device = ok ? top.st_dev : 0;
    ok = ok && td_disk_tree_visit(directory, add_item, &tagging);
    bool is_done = td_digest_finish(tagging.digest, tag);
    if (!ok)
        tag[0] = '\0';
    return ok && is_done;
}

/* ---- the store's folder -------------------------------------------------------------------------------- */

void td_kept_record_name(const char *key, char out[TD_KEPT_NAME_BYTES])
{
    (void)snprintf(out, TD_KEPT_NAME_BYTES, "records/%s", key);
}

void td_kept_incoming_name(const char *key, const char *part, char out[TD_KEPT_NAME_BYTES])
{
    (void)snprintf(out, TD_KEPT_NAME_BYTES, "incoming/%s%s", key, part);
}

/* ---- opening --------------------------------------------------------------------------------------------- */

static bool make_folder(int at, const char *name)
{
    return mkdirat(at, name, 0755) == 0 || errno == EEXIST;
}

static bool make_folders(const struct td_kept_disk *disk)
{
    return make_folder(disk->fd, "incoming") && make_folder(disk->fd, "records") && make_folder(disk->fd, "check") &&
           make_folder(disk->fd, "trash");
}

static bool cannot_write(const char *root, struct td_error *err)
{
    int sys = errno;
    return td_error_sys(err, sys == EACCES || sys == EPERM || sys == EROFS ? TD_PERMISSION_DENIED : TD_IO, sys,
                        "--upstream keeps models in \"%s\", which must be writable for this process", root);
}

static bool lock_store(struct td_kept_disk *disk, const char *root, struct td_error *err)
{
    disk->lock_fd = openat(disk->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (disk->lock_fd < 0)
        return cannot_write(root, err);
    if (flock(disk->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno == EWOULDBLOCK)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "another tensord with --upstream serves \"%s\"; give each a directory of its own", root);
    return td_error_sys(err, TD_IO, errno, "--upstream needs a lock on \"%s/%s/lock\"", root, TD_UPSTREAM_FOLDER);
}

/* Checks that the file system can rename without replacing, which publishing needs: NFS and some FUSE file systems
 * cannot. The trial folder is moved to the trash, which the start empties. */
static bool check_renames(const struct td_kept_disk *disk, const char *root, struct td_error *err)
{
    static const char from[] = "trial";
    static const char to[] = "trash/trial";
    if (!make_folder(disk->fd, from) || renameat2(disk->fd, from, disk->fd, to, RENAME_NOREPLACE) == 0)
        return true; /* a full disk is found later, and is no reason not to start */
    int sys = errno;
    (void)unlinkat(disk->fd, from, AT_REMOVEDIR);
    return (sys != EINVAL && sys != ENOSYS && sys != EOPNOTSUPP) ||
           td_error_sys(err, TD_FAILED_PRECONDITION, sys,
                        "--upstream publishes by renames that replace nothing (RENAME_NOREPLACE), which the file "
                        "system of \"%s\" lacks; give it one of a local disk",
                        root);
}

bool td_kept_disk_open(struct td_kept_disk *disk, const char *root, struct td_error *err)
{
    struct td_root *served;
    disk->root_fd = disk->fd = disk->lock_fd = -1;
    if (!td_root_create(root, &served, err)) /* the errors of a directory that is served without an upstream */
        return false;
    td_root_unref(served);
    disk->root = realpath(root, NULL);
    if (disk->root == NULL)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open \"%s\"", root);
    disk->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (disk->root_fd < 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open \"%s\"", root);
    if (!make_folder(disk->root_fd, TD_UPSTREAM_FOLDER))
        return cannot_write(root, err);
    disk->fd = openat(disk->root_fd, TD_UPSTREAM_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (disk->fd < 0 || !make_folders(disk))
        return cannot_write(root, err);
    return lock_store(disk, root, err) && check_renames(disk, root, err);
}

void td_kept_disk_close(struct td_kept_disk *disk)
{
    const int fds[] = {disk->lock_fd, disk->fd, disk->root_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    free(disk->root);
}

/* Returns whether a path still leads to the file that was opened as `fd`. */
static bool is_still(int at, const char *path, int fd)
{
    struct stat now;
    struct stat opened;
    return fstatat(at, path, &now, 0) == 0 && fstat(fd, &opened) == 0 && now.st_dev == opened.st_dev &&
           now.st_ino == opened.st_ino;
}

/* Sets the error for a store that was removed or replaced. Returns false. */
static bool refuse_replaced(const struct td_kept_disk *disk, struct td_error *err)
{
    return td_error_set(
        err, TD_FAILED_PRECONDITION,
        "\"%s/%s\", or what is in it, was removed or replaced while the server runs; restart the server", disk->root,
        TD_UPSTREAM_FOLDER);
}

bool td_kept_disk_check(const struct td_kept_disk *disk, struct td_error *err)
{
    if (!is_still(AT_FDCWD, disk->root, disk->root_fd) || !is_still(disk->root_fd, TD_UPSTREAM_FOLDER, disk->fd) ||
        !is_still(disk->fd, "lock", disk->lock_fd))
        return refuse_replaced(disk, err);
    return make_folders(disk) || cannot_write(disk->root, err);
}

/* ---- paths ----------------------------------------------------------------------------------------------- */

bool td_kept_disk_each(const struct td_kept_disk *disk, const char *folder,
                       bool (*visit)(void *context, const char *name, struct td_error *err), void *context,
                       struct td_error *err)
{
    int fd = openat(disk->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int sys = errno;
        if (fd >= 0)
            (void)close(fd);
        return td_error_sys(err, TD_IO, sys, "cannot list \"%s/%s\"", TD_UPSTREAM_FOLDER, folder);
    }
    bool ok = true;
    const struct dirent *item = NULL;
    errno = 0;
    while (ok && (item = readdir(directory)) != NULL) {
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            ok = visit(context, item->d_name, err);
        errno = 0;
    }
    if (ok && errno != 0)
        ok = td_error_sys(err, TD_IO, errno, "cannot list \"%s/%s\"", TD_UPSTREAM_FOLDER, folder);
    (void)closedir(directory);
    return ok;
}

/* Writes the path of an item in the store, based on the store's descriptor, so that it stays right when another server
 * has replaced the store's folder. Messages show the path below the served directory instead. */
static void item_path(const struct td_kept_disk *disk, const char *name, char out[TD_KEPT_PATH_BYTES])
{
    (void)snprintf(out, TD_KEPT_PATH_BYTES, "/proc/self/fd/%d/%s", disk->fd, name);
}

/* Splits an id: writes the name of the model's parent directory, "." without an organisation, and returns the model's
 * own name. */
static const char *split_id(const char *id, char parent[TD_UPSTREAM_ID_BYTES])
{
    const char *slash = strchr(id, '/');
    (void)snprintf(parent, TD_UPSTREAM_ID_BYTES, "%.*s", slash == NULL ? 1 : (int)(slash - id),
                   slash == NULL ? "." : id);
    return slash == NULL ? id : slash + 1;
}

/* Opens the parent directory of a model's place, and sets *name to the model's name there, a part of the id. Returns
 * the descriptor, or -1 with errno. */
static int open_parent(const struct td_kept_disk *disk, const char *id, const char **name)
{
    char parent[TD_UPSTREAM_ID_BYTES];
    *name = split_id(id, parent);
    return openat(disk->root_fd, parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static const char *kind_of(const struct stat *st)
{
    return S_ISLNK(st->st_mode) ? "a symbolic link" : "not a directory";
}

bool td_kept_disk_check_place(const struct td_kept_disk *disk, const char *id, struct td_error *err)
{
    char parent[TD_UPSTREAM_ID_BYTES];
    struct stat root;
    struct stat st;
    (void)split_id(id, parent);
    if (fstatat(disk->root_fd, parent, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return true; /* it is created when it is needed */
    if (!S_ISDIR(st.st_mode))
        return td_error_set(err, TD_CONFLICT, "\"%s/%s\" is %s, so \"%s\" cannot be kept there; move it away",
                            disk->root, parent, kind_of(&st), id);
    if (fstat(disk->root_fd, &root) == 0 && root.st_dev != st.st_dev)
        return td_error_set(err, TD_CONFLICT,
                            "\"%s/%s\" is on another file system than \"%s\", so \"%s\" cannot be kept there",
                            disk->root, parent, disk->root, id);
    if (fstatat(disk->root_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return td_error_set(err, TD_CONFLICT,
                            "\"%s/%s\" is in the way: it is not a model that was fetched, so it stays; move it away",
                            disk->root, id);
    return true;
}

uint64_t td_kept_disk_free_bytes(const struct td_kept_disk *disk)
{
    struct statvfs fs;
    uint64_t free_bytes;
    if (fstatvfs(disk->fd, &fs) != 0 || !td_mul_u64(fs.f_bavail, fs.f_frsize, &free_bytes))
        return UINT64_MAX; /* unknown: a write reports a full disk */
    return free_bytes;
}

bool td_kept_disk_check_room(const struct td_kept_disk *disk, uint64_t bytes, struct td_error *err)
{
    uint64_t free_bytes = td_kept_disk_free_bytes(disk);
    if (free_bytes >= bytes)
        return true;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "it needs %" PRIu64 " more bytes, and the disk has %" PRIu64 " left", bytes, free_bytes);
}

/* ---- incomplete models ----------------------------------------------------------------------------------- */

uint64_t td_kept_disk_incoming_bytes(const struct td_kept_disk *disk, const char *key)
{
    char name[TD_KEPT_NAME_BYTES];
    char path[TD_KEPT_PATH_BYTES];
    td_kept_incoming_name(key, "", name);
    item_path(disk, name, path);
    return td_disk_tree_bytes(path);
}

/* Opens a folder of the store by a path that messages can show, and checks that the path leads into this store. */
static bool open_folder(const struct td_kept_disk *disk, const char *name, struct td_root **folder,
                        struct td_error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s/%s", disk->root, TD_UPSTREAM_FOLDER, name);
    if (n < 0 || n >= PATH_MAX)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the path of the served directory is too long");
    if (!td_root_create(path, folder, err))
        return false;
    if (is_still(disk->fd, name, (*folder)->fd))
        return true;
    td_root_unref(*folder);
    return refuse_replaced(disk, err);
}

bool td_kept_disk_open_incoming(const struct td_kept_disk *disk, const char *key, const struct td_kept_note *note,
                                struct td_root **folder, struct td_error *err)
{
    char name[TD_KEPT_NAME_BYTES];
    td_kept_incoming_name(key, "", name);
    bool ok = make_folder(disk->fd, name);
    td_kept_incoming_name(key, "/files", name);
    if (!ok || !make_folder(disk->fd, name))
        return td_error_sys(err, errno == ENOSPC || errno == EDQUOT ? TD_RESOURCE_EXHAUSTED : TD_IO, errno,
                            "cannot make a folder for \"%s\"", note->id);
    if (!open_folder(disk, name, folder, err))
        return false;
    td_kept_incoming_name(key, "/model", name);
    if (td_kept_note_write(disk->fd, name, note, err))
        return true;
    td_root_unref(*folder);
    return false;
}

/* ---- published models ------------------------------------------------------------------------------------ */

bool td_kept_disk_is_in_place(const struct td_kept_disk *disk, const struct td_kept_note *note)
{
    const char *name;
    struct stat st;
    struct stat root;
    int parent = open_parent(disk, note->id, &name);
    bool ok = parent >= 0 && fstat(disk->root_fd, &root) == 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (parent >= 0)
        (void)close(parent);
    return ok && S_ISDIR(st.st_mode) && st.st_dev == root.st_dev && st.st_ino == note->inode &&
           td_file_id_of(&st).mtime_ns == note->mtime_ns;
}

/* Returns whether nothing in a directory has changed since it was published as this model. */
static bool is_as_published(const struct td_kept_note *note, const char *directory)
{
    char tree[TD_TAG_BYTES];
    return note->tree[0] != '\0' && tree_tag(directory, tree) && strcmp(tree, note->tree) == 0;
}

/* Returns whether the model's place has the directory that was published there, and nothing in it has changed. */
static bool is_untouched(const struct td_kept_disk *disk, const struct td_kept_note *note)
{
    char place[PATH_MAX];
    int n = snprintf(place, sizeof place, "%s/%s", disk->root, note->id);
    return n > 0 && n < PATH_MAX && td_kept_disk_is_in_place(disk, note) && is_as_published(note, place);
}

/* Moves a model out of the served directory to `check`. Returns false, with errno, when it cannot be moved. */
static bool move_to_check(const struct td_kept_disk *disk, const char *id, const char *check)
{
    const char *name;
    int parent = open_parent(disk, id, &name);
    if (parent < 0)
        return false;
    bool ok = renameat2(parent, name, disk->fd, check, RENAME_NOREPLACE) == 0;
    int sys = errno;
    (void)close(parent);
    errno = sys;
    return ok;
}

/* Moves a model from `check` back to its place. If that fails, the model stays in `check`, and the log says so. Returns
 * whether it was moved. */
static bool move_back(const struct td_kept_disk *disk, const char *id, const char *check)
{
    const char *name;
    int parent = open_parent(disk, id, &name);
    bool ok = parent >= 0 && renameat2(disk->fd, check, parent, name, RENAME_NOREPLACE) == 0;
    int sys = errno;
    if (parent >= 0)
        (void)close(parent);
    if (!ok)
        td_log(TD_LOG_WARN, "upstream: cannot move \"%s/%s/%s\" back to \"%s\": %s; move or remove it yourself",
               disk->root, TD_UPSTREAM_FOLDER, check, id, strerror(sys));
    return ok;
}

void td_kept_disk_put_back(const struct td_kept_disk *disk, const char *key)
{
    char name[TD_KEPT_NAME_BYTES];
    char own_key[TD_TAG_BYTES];
    struct td_kept_note note;
    td_kept_record_name(key, name);
    bool is_known =
        td_kept_note_read(disk->fd, name, &note) && td_kept_key(note.id, own_key) && strcmp(own_key, key) == 0;
    (void)snprintf(name, sizeof name, "check/%s", key);
    if (is_known)
        (void)move_back(disk, note.id, name);
    else
        td_log(TD_LOG_WARN, "upstream: \"%s/%s/%s\" belongs to no model; move or remove it yourself", disk->root,
               TD_UPSTREAM_FOLDER, name);
}

/* ---- removing -------------------------------------------------------------------------------------------- */

void td_kept_disk_remove(const struct td_kept_disk *disk, const char *name)
{
    char path[TD_KEPT_PATH_BYTES];
    item_path(disk, name, path);
    if (!td_disk_tree_remove(path) && errno != ENOENT)
        td_log(TD_LOG_WARN, "cannot remove \"%s/%s/%s\": %s", disk->root, TD_UPSTREAM_FOLDER, name, strerror(errno));
}

/* Moves an item of the store into the trash and writes its new name. Returns false, with errno, when it cannot be
 * moved. */
static bool move_to_trash(struct td_kept_disk *disk, const char *name, char trash[TD_KEPT_NAME_BYTES])
{
    uint64_t number = atomic_fetch_add_explicit(&disk->trash_number, 1, memory_order_relaxed);
    (void)snprintf(trash, TD_KEPT_NAME_BYTES, "trash/%" PRId64 "-%" PRIu64, td_wall_now().seconds, number);
    return renameat(disk->fd, name, disk->fd, trash) == 0;
}

void td_kept_disk_remove_incoming(struct td_kept_disk *disk, const char *key)
{
    char name[TD_KEPT_NAME_BYTES];
    char trash[TD_KEPT_NAME_BYTES];
    td_kept_incoming_name(key, "", name);
    if (move_to_trash(disk, name, trash))
        td_kept_disk_remove(disk, trash);
    else if (errno != ENOENT)
        td_log(TD_LOG_WARN, "cannot move \"%s/%s/%s\" to \"%s\": %s", disk->root, TD_UPSTREAM_FOLDER, name, trash,
               strerror(errno));
}

/* Moves a published model to `check`, and then to the trash. Compares it with its record in its place, so that files of
 * the operator never vanish, and again in `check`, where no client finds it, since it could change before the move.
 * Returns NULL when the model is in the trash; otherwise the reason why it is not, and sets *is_in_place to whether it
 * is in its place, not in `check`. */
static const char *move_published_to_trash(struct td_kept_disk *disk, const struct td_kept_note *note,
                                           const char *check, char trash[TD_KEPT_NAME_BYTES], bool *is_in_place)
{
    static const char changed[] = "it has changed since it was published";
    char path[TD_KEPT_PATH_BYTES];
    const char *why = changed;
    *is_in_place = true;
    item_path(disk, check, path);
    if (!is_untouched(disk, note))
        return changed;
    if (!move_to_check(disk, note->id, check))
        return strerror(errno);
    if (is_as_published(note, path))
        why = move_to_trash(disk, check, trash) ? NULL : strerror(errno);
    *is_in_place = why != NULL && move_back(disk, note->id, check);
    return why;
}

bool td_kept_disk_remove_published(struct td_kept_disk *disk, const struct td_kept_note *note, const char *key)
{
    char check[TD_KEPT_NAME_BYTES];
    char record[TD_KEPT_NAME_BYTES];
    char trash[TD_KEPT_NAME_BYTES];
    bool is_in_place;
    (void)snprintf(check, sizeof check, "check/%s", key);
    td_kept_record_name(key, record);
    const char *why = move_published_to_trash(disk, note, check, trash, &is_in_place);
    if (why == NULL || is_in_place) /* else the next start needs the record to move it back */
        (void)unlinkat(disk->fd, record, 0);
    if (why == NULL)
        td_kept_disk_remove(disk, trash);
    else
        td_log(TD_LOG_WARN, "upstream: \"%s\" cannot be removed: %s; --cache-max-bytes does not count it any more",
               note->id, why);
    return why == NULL;
}

/* ---- publishing ---------------------------------------------------------------------------------------- */

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
static bool make_parent(const struct td_kept_disk *disk, const char *id, int *parent, const char **name,
                        struct td_error *err)
{
    char path[TD_UPSTREAM_ID_BYTES];
    const char *slash = strchr(id, '/');
    if (slash != NULL) {
        (void)snprintf(path, sizeof path, "%.*s", (int)(slash - id), id);
        if (mkdirat(disk->root_fd, path, 0755) != 0 && errno != EEXIST)
            return td_error_sys(err, TD_IO, errno, "cannot make \"%s/%s\"", disk->root, path);
    }
    *parent = open_parent(disk, id, name);
    return *parent >= 0 || td_error_sys(err, TD_IO, errno, "cannot open the directory of \"%s/%s\"", disk->root, id);
}

/* Renames the folder of the files into place, durably. */
static bool move_in_place(const struct td_kept_disk *disk, const char *id, const char *files, struct td_error *err)
{
    int parent = -1;
    const char *name = NULL;
    if (!td_kept_disk_check_place(disk, id, err) || !make_parent(disk, id, &parent, &name, err))
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
    item_path(disk, files, path);
    struct pruning pruning = {.prefix_len = strlen(path) + 1, .belonging = belonging};
    struct stat st;
    if (!td_disk_tree_visit(path, prune_item, &pruning) || lstat(path, &st) != 0)
        return td_error_sys(err, TD_IO, errno, "cannot list \"%s/%s/%s\"", disk->root, TD_UPSTREAM_FOLDER, files);
    if (!tree_tag(path, note->tree))
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
