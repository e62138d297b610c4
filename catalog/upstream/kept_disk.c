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
#include "core/clock.h"
#include "core/log.h"
#include "storage/disk_tree.h"
#include "storage/file_system.h"
#include "storage/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static const char *const folders[] = {"incoming", "records", "check", NULL};

const struct td_own_folder_rules td_kept_folder = {.name = TD_UPSTREAM_FOLDER,
                                                   .option = "--upstream",
                                                   .deed = "serves",
                                                   .when_taken = "give each a directory of its own",
                                                   .children = folders};

void td_kept_record_name(const char *key, char out[TD_OWN_NAME_BYTES])
{
    (void)snprintf(out, TD_OWN_NAME_BYTES, "records/%s", key);
}

void td_kept_incoming_name(const char *key, const char *part, char out[TD_OWN_NAME_BYTES])
{
    (void)snprintf(out, TD_OWN_NAME_BYTES, "incoming/%s%s", key, part);
}

/* ---- paths ----------------------------------------------------------------------------------------------- */

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
static int open_parent(const struct td_own_folder *disk, const char *id, const char **name)
{
    char parent[TD_UPSTREAM_ID_BYTES];
    *name = split_id(id, parent);
    return openat(disk->root_fd, parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static const char *kind_of(const struct stat *st)
{
    return S_ISLNK(st->st_mode) ? "a symbolic link" : "not a directory";
}

bool td_kept_disk_check_place(const struct td_own_folder *disk, const char *id, struct td_error *err)
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

/* ---- incomplete models ----------------------------------------------------------------------------------- */

uint64_t td_kept_disk_incoming_bytes(const struct td_own_folder *disk, const char *key)
{
    char name[TD_OWN_NAME_BYTES];
    char path[TD_OWN_PATH_BYTES];
    td_kept_incoming_name(key, "", name);
    td_own_folder_path(disk, name, path);
    return td_disk_tree_bytes(path);
}

bool td_kept_disk_open_incoming(const struct td_own_folder *disk, const char *key, const struct td_kept_note *note,
                                struct td_root **folder, struct td_error *err)
{
    char name[TD_OWN_NAME_BYTES];
    td_kept_incoming_name(key, "", name);
    bool ok = td_own_folder_make(disk, name);
    td_kept_incoming_name(key, "/files", name);
    if (!ok || !td_own_folder_make(disk, name))
        return td_error_sys(err, errno == ENOSPC || errno == EDQUOT ? TD_RESOURCE_EXHAUSTED : TD_IO, errno,
                            "cannot make a folder for \"%s\"", note->id);
    if (!td_own_folder_open_root(disk, name, folder, err))
        return false;
    td_kept_incoming_name(key, "/model", name);
    if (td_kept_note_write(disk->fd, name, note, err))
        return true;
    td_root_unref(*folder);
    return false;
}

/* ---- published models ------------------------------------------------------------------------------------ */

bool td_kept_disk_is_in_place(const struct td_own_folder *disk, const struct td_kept_note *note)
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
static bool is_untouched(const struct td_own_folder *disk, const struct td_kept_note *note)
{
    char place[PATH_MAX];
    int n = snprintf(place, sizeof place, "%s/%s", disk->root, note->id);
    return n > 0 && n < PATH_MAX && td_kept_disk_is_in_place(disk, note) && is_as_published(note, place);
}

/* Moves a model out of the served directory to `check`. Returns false, with errno, when it cannot be moved. */
static bool move_to_check(const struct td_own_folder *disk, const char *id, const char *check)
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
static bool move_back(const struct td_own_folder *disk, const char *id, const char *check)
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

void td_kept_disk_put_back(const struct td_own_folder *disk, const char *key)
{
    char name[TD_OWN_NAME_BYTES];
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

void td_kept_disk_remove_incoming(struct td_own_folder *disk, const char *key)
{
    char name[TD_OWN_NAME_BYTES];
    char trash[TD_OWN_NAME_BYTES];
    td_kept_incoming_name(key, "", name);
    if (td_own_folder_trash(disk, disk->fd, name, trash))
        td_own_folder_remove(disk, trash);
    else if (errno != ENOENT)
        td_log(TD_LOG_WARN, "cannot move \"%s/%s/%s\" to \"%s\": %s", disk->root, TD_UPSTREAM_FOLDER, name, trash,
               strerror(errno));
}

/* Moves a published model to `check`, and then to the trash. Compares it with its record in its place, so that files of
 * the operator never vanish, and again in `check`, where no client finds it, since it could change before the move.
 * Returns NULL when the model is in the trash; otherwise the reason why it is not, and sets *is_in_place to whether it
 * is in its place, not in `check`. */
static const char *move_published_to_trash(struct td_own_folder *disk, const struct td_kept_note *note,
                                           const char *check, char trash[TD_OWN_NAME_BYTES], bool *is_in_place)
{
    static const char changed[] = "it has changed since it was published";
    char path[TD_OWN_PATH_BYTES];
    const char *why = changed;
    *is_in_place = true;
    td_own_folder_path(disk, check, path);
    if (!is_untouched(disk, note))
        return changed;
    if (!move_to_check(disk, note->id, check))
        return strerror(errno);
    if (is_as_published(note, path))
        why = td_own_folder_trash(disk, disk->fd, check, trash) ? NULL : strerror(errno);
    *is_in_place = why != NULL && move_back(disk, note->id, check);
    return why;
}

bool td_kept_disk_remove_published(struct td_own_folder *disk, const struct td_kept_note *note, const char *key)
{
    char check[TD_OWN_NAME_BYTES];
    char record[TD_OWN_NAME_BYTES];
    char trash[TD_OWN_NAME_BYTES];
    bool is_in_place;
    (void)snprintf(check, sizeof check, "check/%s", key);
    td_kept_record_name(key, record);
    const char *why = move_published_to_trash(disk, note, check, trash, &is_in_place);
    if (why == NULL || is_in_place) /* else the next start needs the record to move it back */
        (void)unlinkat(disk->fd, record, 0);
    if (why == NULL)
        td_own_folder_remove(disk, trash);
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
static bool make_parent(const struct td_own_folder *disk, const char *id, int *parent, const char **name,
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
static bool move_in_place(const struct td_own_folder *disk, const char *id, const char *files, struct td_error *err)
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
static bool prune_files(const struct td_own_folder *disk, const char *files, const struct td_kept_files *belonging,
                        struct td_kept_note *note, int64_t *changed_ns, struct td_error *err)
{
    char path[TD_OWN_PATH_BYTES];
    td_own_folder_path(disk, files, path);
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

bool td_kept_publish(const struct td_own_folder *disk, const char *key, const struct td_kept_files *belonging,
                     struct td_kept_note *note, struct td_error *err)
{
    char files[TD_OWN_NAME_BYTES];
    char record[TD_OWN_NAME_BYTES];
    char folder[TD_OWN_NAME_BYTES];
    int64_t changed_ns = 0;
    td_kept_incoming_name(key, "/files", files);
    td_kept_record_name(key, record);
    td_kept_incoming_name(key, "", folder);
    if (!td_own_folder_check(disk, err) || !prune_files(disk, files, belonging, note, &changed_ns, err) ||
        !td_kept_note_write(disk->fd, record, note, err))
        return false;
    wait_for_rest(changed_ns);
    if (move_in_place(disk, note->id, files, err)) {
        td_own_folder_remove(disk, folder);
        return true;
    }
    (void)unlinkat(disk->fd, record, 0);
    return false;
}
