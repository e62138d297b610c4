/* Plan: the table in memory has one row for each model in the store, complete or not, made from the disk at the start.
 * The disk is changed in an order that any kill leaves right:
 *   - publishing writes the record before the rename; a record whose directory is not in place is dropped at
 *     the start, and the folder under incoming/ goes on;
 *   - the rename comes when all files are at rest, so that the next scan publishes all of them or none;
 *   - evicting renames the directory into check/KEY, which makes it vanish at once. Only when nothing in it has changed
 *     since it was published, it goes on into trash/, and the record is removed; otherwise it goes back. The start puts
 *     back what it finds in check/, and removes what it finds in trash/.
 * Removing trees takes long, so it happens without the lock, on what has left the table. */
#include "catalog/upstream/upstream_store.h"

#include "catalog/upstream/disk_tree.h"
#include "catalog/upstream/published_tree.h"
#include "core/array.h"
#include "core/checked.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/log.h"
#include "parser/names.h"
#include "storage/at_rest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

enum { OLD_S = 7 * 86400, PATH_BYTES = PATH_MAX };

enum stage {
    LEFT,      /* incomplete, of an earlier run or a fetch that failed */
    FETCHED,   /* incomplete, being fetched */
    PUBLISHED, /* complete, in the served directory */
    LEAVING,   /* being published or removed */
};

struct row {
    struct td_kept_note note;
    char key[TD_TAG_BYTES];
    enum stage stage;
    int64_t read_ns;
    bool is_read; /* read_ns is newer than the record */
};

struct td_upstream_store {
    pthread_mutex_t lock;
    char *root;      /* path of the served directory */
    int root_fd, fd; /* the served directory, the store's folder */
    int lock_fd;     /* of the file `lock` */
    uint64_t max_bytes;
    uint64_t trash_number;
    struct row *rows; /* sorted by id; under the lock */
    size_t count, capacity;
};

/* ---- names ---------------------------------------------------------------------------------------------- */

static bool key_of(const char *id, char key[TD_TAG_BYTES])
{
    return td_digest_tag(id, strlen(id), key);
}

static int64_t now_s(void)
{
    return td_wall_now().seconds;
}

static int64_t now_ns(void)
{
    struct td_wall now = td_wall_now();
    return now.seconds * NS_PER_S + now.nanoseconds;
}

/* ---- rows, under the lock -------------------------------------------------------------------------------- */

static struct td_text row_id(const void *context, size_t i)
{
    return td_text_of(((const struct row *)context)[i].note.id);
}

static size_t search_row(const struct td_upstream_store *store, struct td_text id, bool *found)
{
    const struct td_names names = {.count = store->count, .context = store->rows, .get = row_id};
    return td_names_search(&names, id, found);
}

static struct row *find_row(struct td_upstream_store *store, struct td_text id)
{
    bool found;
    size_t at = search_row(store, id, &found);
    return found ? &store->rows[at] : NULL;
}

static struct row *add_row(struct td_upstream_store *store, const char *id, struct td_error *err)
{
    struct row row = {.stage = LEFT};
    bool found;
    if (!key_of(id, row.key)) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (!TD_ARRAY_GROW(store->rows, store->count, store->capacity, err))
        return NULL;
    (void)snprintf(row.note.id, sizeof row.note.id, "%s", id);
    size_t at = search_row(store, td_text_of(id), &found);
    memmove(&store->rows[at + 1], &store->rows[at], (store->count - at) * sizeof row);
    store->rows[at] = row;
    store->count++;
    return &store->rows[at];
}

static void remove_row(struct td_upstream_store *store, struct td_text id)
{
    bool found;
    size_t at = search_row(store, id, &found);
    if (!found)
        return;
    store->count--;
    memmove(&store->rows[at], &store->rows[at + 1], (store->count - at) * sizeof *store->rows);
}

/* ---- files ----------------------------------------------------------------------------------------------- */

/* Writes the path of something in the store, from the root of the file system. */
static bool full_path(const struct td_upstream_store *store, const char *folder, const char *name, char *out)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s/%s%s%s", store->root, TD_UPSTREAM_FOLDER, folder,
                     folder[0] == '\0' ? "" : "/", name);
    return n > 0 && n < PATH_BYTES;
}

static void remove_tree(const struct td_upstream_store *store, const char *folder, const char *name)
{
    char path[PATH_BYTES];
    if (full_path(store, folder, name, path) && !td_disk_tree_remove(path) && errno != ENOENT)
        td_log(TD_LOG_WARN, "cannot remove \"%s\": %s", path, strerror(errno));
}

/* Returns how many bytes on disk the files of an incomplete model take, also those that are only reserved. */
static uint64_t incoming_bytes(const struct td_upstream_store *store, const char *id)
{
    char key[TD_TAG_BYTES];
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    if (key_of(id, key) && full_path(store, "incoming", key, path))
        bytes = td_disk_tree_bytes(path);
    return bytes;
}

static bool make_folder(int at, const char *name)
{
    return mkdirat(at, name, 0755) == 0 || errno == EEXIST;
}

/* Reads the note of a model into its row. Returns false when there is none. */
static bool read_row(const struct td_upstream_store *store, const char *path, struct row *row)
{
    return td_kept_note_read(store->fd, path, &row->note) && key_of(row->note.id, row->key);
}

/* Opens the directory that holds the model's, and sets *name to the model's name in it. Follows no link. Returns the
 * descriptor, or -1 with errno. */
static int open_parent(const struct td_upstream_store *store, const char *id, const char **name)
{
    char org[TD_UPSTREAM_ID_BYTES];
    const char *slash = strchr(id, '/');
    *name = slash == NULL ? id : slash + 1;
    (void)snprintf(org, sizeof org, "%.*s", slash == NULL ? 1 : (int)(slash - id), slash == NULL ? "." : id);
    return openat(store->root_fd, org, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Returns whether the model's place in the served directory has the directory that was published there: the same inode
 * of the same file system, whose number may have been used again, and no name in it added or removed since. */
static bool is_in_place(const struct td_upstream_store *store, const struct row *row)
{
    const char *name;
    struct stat st;
    struct stat root;
    int parent = open_parent(store, row->note.id, &name);
    bool ok = parent >= 0 && fstat(store->root_fd, &root) == 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (parent >= 0)
        (void)close(parent);
    return ok && S_ISDIR(st.st_mode) && st.st_dev == root.st_dev && st.st_ino == row->note.inode &&
           td_file_id_of(&st).mtime_ns == row->note.mtime_ns;
}

/* Returns whether nothing in a directory has changed since it was published as this model. */
static bool is_as_published(const struct row *row, const char *directory)
{
    char tree[TD_TAG_BYTES];
    return row->note.tree[0] != '\0' && td_published_tree_tag(directory, tree) && strcmp(tree, row->note.tree) == 0;
}

/* Moves a model out of the served directory into check/. Returns false when it cannot be moved; it is then in place. */
static bool move_to_check(const struct td_upstream_store *store, const struct row *row)
{
    char check[64];
    const char *name;
    int parent = open_parent(store, row->note.id, &name);
    if (parent < 0)
        return false;
    (void)snprintf(check, sizeof check, "check/%s", row->key);
    bool ok = renameat2(parent, name, store->fd, check, RENAME_NOREPLACE) == 0;
    (void)close(parent);
    return ok;
}

/* Moves a model from check/ back to its place. What cannot go back stays, and the log says where. */
static bool move_back(const struct td_upstream_store *store, const char *id, const char *key)
{
    char check[NAME_MAX + 16];
    const char *name;
    (void)snprintf(check, sizeof check, "check/%s", key);
    int parent = open_parent(store, id, &name);
    bool ok = parent >= 0 && renameat2(store->fd, check, parent, name, RENAME_NOREPLACE) == 0;
    int sys = errno;
    if (parent >= 0)
        (void)close(parent);
    if (!ok)
        td_log(TD_LOG_WARN, "upstream: cannot move \"%s/%s/%s\" back to \"%s\": %s; move or remove it yourself",
               store->root, TD_UPSTREAM_FOLDER, check, id, strerror(sys));
    return ok;
}

/* ---- the start ------------------------------------------------------------------------------------------- */

/* Calls `look` for each name in a folder of the store. */
static bool each_name(struct td_upstream_store *store, const char *folder,
                      bool (*look)(struct td_upstream_store *store, const char *name, struct td_error *err),
                      struct td_error *err)
{
    int fd = openat(store->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL)
        return td_error_sys(err, TD_IO, errno, "cannot list \"%s/%s\"", TD_UPSTREAM_FOLDER, folder);
    bool ok = true;
    const struct dirent *item;
    while (ok && (item = readdir(directory)) != NULL)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            ok = look(store, item->d_name, err);
    (void)closedir(directory);
    return ok;
}

static bool remove_trash(struct td_upstream_store *store, const char *name, struct td_error *err)
{
    (void)err;
    remove_tree(store, "trash", name);
    return true;
}

/* Puts back what a kill has left in check/: nobody knows yet whether it has changed. */
static bool take_check(struct td_upstream_store *store, const char *name, struct td_error *err)
{
    char path[NAME_MAX + 16];
    struct row row = {.stage = PUBLISHED};
    (void)err;
    (void)snprintf(path, sizeof path, "records/%s", name);
    if (read_row(store, path, &row) && strcmp(row.key, name) == 0)
        (void)move_back(store, row.note.id, name);
    else
        td_log(TD_LOG_WARN, "upstream: \"%s/%s/check/%s\" belongs to no model; move or remove it yourself", store->root,
               TD_UPSTREAM_FOLDER, name);
    return true;
}

/* Reads a record; removes one that is broken or of an older version, or whose model is gone. */
static bool take_record(struct td_upstream_store *store, const char *name, struct td_error *err)
{
    char path[NAME_MAX + 16];
    struct row row = {.stage = PUBLISHED};
    struct stat st;
    (void)snprintf(path, sizeof path, "records/%s", name);
    bool ok = read_row(store, path, &row) && strcmp(row.key, name) == 0 && row.note.tree[0] != '\0' &&
              is_in_place(store, &row) && fstatat(store->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!ok) {
        (void)unlinkat(store->fd, path, 0);
        return true;
    }
    struct row *added = add_row(store, row.note.id, err);
    if (added == NULL)
        return false;
    row.read_ns = td_file_id_of(&st).mtime_ns;
    *added = row;
    return true;
}

/* Notes an incomplete model that can be resumed; removes any other. */
static bool take_incoming(struct td_upstream_store *store, const char *name, struct td_error *err)
{
    char path[NAME_MAX + 32];
    struct row row = {.stage = LEFT};
    (void)snprintf(path, sizeof path, "incoming/%s/model", name);
    bool ok = read_row(store, path, &row) && strcmp(row.key, name) == 0 && row.note.began_s + OLD_S > now_s() &&
              find_row(store, td_text_of(row.note.id)) == NULL;
    if (!ok) {
        remove_tree(store, "incoming", name);
        return true;
    }
    struct row *added = add_row(store, row.note.id, err);
    if (added != NULL)
        *added = row;
    return added != NULL;
}

static bool cannot_write(const char *root, struct td_error *err)
{
    int sys = errno;
    return td_error_sys(err, sys == EACCES || sys == EPERM || sys == EROFS ? TD_PERMISSION_DENIED : TD_IO, sys,
                        "--upstream keeps models in \"%s\", which must be writable for this process", root);
}

static bool take_lock(struct td_upstream_store *store, const char *root, struct td_error *err)
{
    store->lock_fd = openat(store->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (store->lock_fd < 0)
        return cannot_write(root, err);
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "another tensord with --upstream serves \"%s\"; give each a directory of its own", root);
    return true;
}

static bool open_folders(struct td_upstream_store *store, const char *root, struct td_error *err)
{
    store->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->root_fd < 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open \"%s\"", root);
    if (!make_folder(store->root_fd, TD_UPSTREAM_FOLDER))
        return cannot_write(root, err);
    store->fd = openat(store->root_fd, TD_UPSTREAM_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (store->fd < 0 || !make_folder(store->fd, "incoming") || !make_folder(store->fd, "records") ||
        !make_folder(store->fd, "check") || !make_folder(store->fd, "trash"))
        return cannot_write(root, err);
    return take_lock(store, root, err);
}

bool td_upstream_store_open(const char *root, uint64_t max_bytes, struct td_upstream_store **out, struct td_error *err)
{
    struct td_upstream_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return td_error_no_memory(err);
    store->root_fd = store->fd = store->lock_fd = -1;
    store->max_bytes = max_bytes;
    if (pthread_mutex_init(&store->lock, NULL) != 0) {
        free(store);
        return td_error_no_memory(err);
    }
    store->root = realpath(root, NULL);
    bool ok = store->root != NULL || td_error_sys(err, TD_NOT_FOUND, errno, "cannot open \"%s\"", root);
    ok = ok && open_folders(store, root, err) && each_name(store, "trash", remove_trash, err) &&
         each_name(store, "check", take_check, err) && each_name(store, "records", take_record, err) &&
         each_name(store, "incoming", take_incoming, err);
    if (ok)
        *out = store;
    else
        td_upstream_store_close(store);
    return ok;
}

void td_upstream_store_close(struct td_upstream_store *store)
{
    if (store == NULL)
        return;
    if (store->fd >= 0)
        td_upstream_store_write_reads(store);
    const int fds[] = {store->lock_fd, store->fd, store->root_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    (void)pthread_mutex_destroy(&store->lock);
    free(store->rows);
    free(store->root);
    free(store);
}

/* ---- room ------------------------------------------------------------------------------------------------ */

static uint64_t used_bytes(const struct td_upstream_store *store)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < store->count; i++)
        if (!td_add_u64(sum, store->rows[i].note.bytes, &sum))
            return UINT64_MAX;
    return sum;
}

/* Returns the row that should leave first: what was left over, else what was read longest ago; NULL: none may leave. */
static struct row *choose_victim(struct td_upstream_store *store)
{
    struct row *victim = NULL;
    for (size_t i = 0; store->rows != NULL && i < store->count; i++) {
        struct row *row = &store->rows[i];
        if (row->stage != LEFT && row->stage != PUBLISHED)
            continue;
        bool is_earlier = victim == NULL || (row->stage == LEFT && victim->stage == PUBLISHED) ||
                          (row->stage == victim->stage && row->read_ns < victim->read_ns);
        if (is_earlier)
            victim = row;
    }
    return victim;
}

/* Moves something of the store into the trash and writes its name there. Returns false when it is not there. */
static bool move_to_trash(struct td_upstream_store *store, const char *path, uint64_t number, char name[32])
{
    (void)snprintf(name, 32, "%" PRId64 "-%" PRIu64, now_s(), number);
    char target[64];
    (void)snprintf(target, sizeof target, "trash/%s", name);
    return renameat(store->fd, path, store->fd, target) == 0;
}

/* Moves a published model into the trash, if nothing in it has changed since. It is compared in its place, so that what
 * is the operator's does not vanish even for a moment, and once more where nobody finds it, since it could have changed
 * until then. Returns whether it is in the trash. */
static bool move_published(struct td_upstream_store *store, const struct row *row, uint64_t number, char name[32])
{
    char check[64];
    char place[PATH_BYTES];
    char path[PATH_BYTES];
    int n = snprintf(place, sizeof place, "%s/%s", store->root, row->note.id);
    (void)snprintf(check, sizeof check, "check/%s", row->key);
    bool ok = n > 0 && n < PATH_BYTES && full_path(store, "", check, path) && is_in_place(store, row) &&
              is_as_published(row, place) && move_to_check(store, row);
    if (ok && !is_as_published(row, path)) {
        (void)move_back(store, row->note.id, row->key);
        ok = false;
    }
    return ok && move_to_trash(store, check, number, name);
}

static void say_removed(const struct row *row, bool is_moved)
{
    if (is_moved)
        td_log(TD_LOG_INFO, "upstream: removed \"%s\" (%" PRIu64 " bytes), the least recently read model", row->note.id,
               row->note.bytes);
    else
        td_log(
            TD_LOG_WARN,
            "upstream: \"%s\" is not what was fetched any more, so it stays, and --cache-max-bytes does not count it",
            row->note.id);
}

/* Takes a row that is LEAVING off the disk and out of the table. A published model that has changed stays on disk, as
 * the operator's. Without the lock. Returns whether it has left the disk. */
static bool remove_model(struct td_upstream_store *store, const struct row *row, uint64_t number)
{
    char path[64];
    char name[32];
    bool was_published = row->note.inode != 0;
    (void)snprintf(path, sizeof path, was_published ? "records/%s" : "incoming/%s", row->key);
    bool is_moved = was_published ? move_published(store, row, number, name) : move_to_trash(store, path, number, name);
    if (was_published)
        (void)unlinkat(store->fd, path, 0);
    pthread_mutex_lock(&store->lock);
    remove_row(store, td_text_of(row->note.id));
    pthread_mutex_unlock(&store->lock);
    if (was_published)
        say_removed(row, is_moved);
    if (is_moved)
        remove_tree(store, "trash", name);
    return is_moved;
}

/* Removes models until `bytes` more fit. Under the lock, which it releases while it removes. */
static bool make_room(struct td_upstream_store *store, uint64_t bytes, uint64_t *evicted, struct td_error *err)
{
    uint64_t sum;
    if (store->max_bytes == 0)
        return true;
    if (bytes > store->max_bytes)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "it has %" PRIu64 " bytes, more than --cache-max-bytes %" PRIu64, bytes, store->max_bytes);
    while (!td_add_u64(used_bytes(store), bytes, &sum) || sum > store->max_bytes) {
        struct row *victim = choose_victim(store);
        if (victim == NULL)
            return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                                "it needs %" PRIu64 " bytes; of --cache-max-bytes %" PRIu64 ", %" PRIu64
                                " are for models that are being fetched",
                                bytes, store->max_bytes, used_bytes(store));
        bool was_published = victim->stage == PUBLISHED;
        victim->stage = LEAVING;
        struct row leaving = *victim;
        uint64_t number = ++store->trash_number;
        pthread_mutex_unlock(&store->lock);
        bool is_removed = remove_model(store, &leaving, number);
        pthread_mutex_lock(&store->lock);
        *evicted += was_published && is_removed ? 1 : 0;
    }
    return true;
}

/* Checks that the disk has room for what is still to come. */
static bool check_disk(const struct td_upstream_store *store, uint64_t bytes, struct td_error *err)
{
    struct statvfs fs;
    uint64_t free_bytes;
    if (fstatvfs(store->fd, &fs) != 0 || !td_mul_u64(fs.f_bavail, fs.f_frsize, &free_bytes) || free_bytes >= bytes)
        return true; /* whoever writes finds out */
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "it needs %" PRIu64 " more bytes, and the disk has %" PRIu64 " left", bytes, free_bytes);
}

/* ---- models ---------------------------------------------------------------------------------------------- */

/* Opens the folder of an incomplete model's files; makes it where it is missing. */
static bool open_files(const struct td_upstream_store *store, const struct row *row, struct td_root **folder,
                       struct td_error *err)
{
    char path[64];
    char whole[PATH_BYTES];
    (void)snprintf(path, sizeof path, "incoming/%s", row->key);
    bool ok = make_folder(store->fd, path);
    (void)snprintf(path, sizeof path, "incoming/%s/files", row->key);
    if (!ok || !make_folder(store->fd, path))
        return td_error_sys(err, errno == ENOSPC || errno == EDQUOT ? TD_RESOURCE_EXHAUSTED : TD_IO, errno,
                            "cannot make a folder for \"%s\"", row->note.id);
    if (!full_path(store, "", path, whole))
        return td_error_set(err, TD_FAILED_PRECONDITION, "the path of the served directory is too long");
    if (!td_root_create(whole, folder, err))
        return false;
    (void)snprintf(path, sizeof path, "incoming/%s/model", row->key);
    if (td_kept_note_write(store->fd, path, &row->note, err))
        return true;
    td_root_unref(*folder);
    return false;
}

/* Returns whether something has the model's name in the served directory. */
static bool is_taken(const struct td_upstream_store *store, const char *id)
{
    struct stat st;
    return fstatat(store->root_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Takes a model's row for a fetch, and adds one if there is none. here: what is on disk of its bytes. Under the lock.
 */
static bool take_row(struct td_upstream_store *store, const char *id, uint64_t bytes, uint64_t here, uint64_t *evicted,
                     struct row *out, struct td_error *err)
{
    uint64_t missing = bytes > here ? bytes - here : 0;
    struct row *row = find_row(store, td_text_of(id));
    int64_t began_s = now_s();
    uint64_t left_bytes = 0;
    bool is_left = row != NULL && row->stage == LEFT;
    if (row != NULL && !is_left)
        return td_error_set(err, TD_CONFLICT, "\"%s\" is here already, or on its way", id);
    if (is_left) {
        began_s = row->note.began_s;
        left_bytes = row->note.bytes;
        remove_row(store, td_text_of(id)); /* its bytes are counted anew */
    }
    if (!make_room(store, bytes, evicted, err) || !check_disk(store, missing, err) ||
        (row = add_row(store, id, err)) == NULL) {
        if (is_left && (row = add_row(store, id, NULL)) != NULL) {
            row->note.bytes = left_bytes;
            row->note.began_s = began_s;
        }
        return false;
    }
    row->stage = FETCHED;
    row->note.bytes = bytes;
    row->note.began_s = began_s;
    *out = *row;
    return true;
}

bool td_upstream_store_begin(struct td_upstream_store *store, const char *id, uint64_t bytes, struct td_root **folder,
                             int64_t *began_s, uint64_t *evicted, struct td_error *err)
{
    struct row row = {.stage = LEFT};
    if (is_taken(store, id))
        return td_error_set(err, TD_CONFLICT, "the served directory has \"%s\" already, although no model is in it",
                            id);
    uint64_t here = incoming_bytes(store, id);
    pthread_mutex_lock(&store->lock);
    bool ok = take_row(store, id, bytes, here, evicted, &row, err);
    pthread_mutex_unlock(&store->lock);
    if (!ok)
        return false;
    *began_s = row.note.began_s;
    if (open_files(store, &row, folder, err))
        return true;
    td_upstream_store_pause(store, id);
    return false;
}

void td_upstream_store_pause(struct td_upstream_store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    struct row *row = find_row(store, td_text_of(id));
    if (row != NULL && row->stage == FETCHED)
        row->stage = LEFT;
    pthread_mutex_unlock(&store->lock);
}

void td_upstream_store_discard(struct td_upstream_store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    struct row *row = find_row(store, td_text_of(id));
    bool ok = row != NULL && (row->stage == FETCHED || row->stage == LEFT);
    struct row leaving = {.stage = LEAVING};
    if (ok) {
        row->stage = LEAVING;
        leaving = *row;
    }
    uint64_t number = ++store->trash_number;
    pthread_mutex_unlock(&store->lock);
    if (ok)
        (void)remove_model(store, &leaving, number);
}

/* The removal of files that do not belong to a model. */
struct pruning {
    size_t prefix_len; /* of the paths, up to the model's own */
    bool (*is_wanted)(void *context, const char *path);
    void *context;
    int64_t changed_ns; /* result: the latest change time of a file that stays, ns since 1970 */
};

/* Makes the names in a directory durable. */
static void sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    (void)close(fd);
}

/* Removes what does not belong to the model, also directories that are empty. */
static bool prune_item(void *context, const FTSENT *item)
{
    struct pruning *pruning = context;
    if (item->fts_info == FTS_DP) {
        bool is_top = item->fts_pathlen <= pruning->prefix_len;
        if (is_top || unlinkat(AT_FDCWD, item->fts_path, AT_REMOVEDIR) != 0)
            sync_directory(item->fts_path);
        return true;
    }
    if (!pruning->is_wanted(pruning->context, item->fts_path + pruning->prefix_len))
        return unlinkat(AT_FDCWD, item->fts_path, 0) == 0;
    int64_t changed_ns = td_file_id_of(item->fts_statp).ctime_ns;
    if (changed_ns > pruning->changed_ns)
        pruning->changed_ns = changed_ns;
    return true;
}

/* Waits until every file that was changed at this time, or earlier, is at rest: 40 ms at most after the change. A scan
 * passes over files that are not, so it would publish a model without the files that came last. */
static void wait_for_rest(int64_t changed_ns)
{
    uint64_t wait_ns = 0;
    struct td_wall now = td_wall_now();
    while (td_change_time_at_rest(changed_ns, now.seconds * NS_PER_S + now.nanoseconds, &wait_ns) == TD_REST_SOON) {
        const struct timespec pause = {.tv_nsec = (long)wait_ns};
        (void)nanosleep(&pause, NULL);
        now = td_wall_now();
    }
}

/* Opens the directory that holds the model's as open_parent does, but makes it where it is missing. */
static bool make_parent(const struct td_upstream_store *store, const char *id, int *parent, const char **name,
                        struct td_error *err)
{
    char org[TD_UPSTREAM_ID_BYTES];
    const char *slash = strchr(id, '/');
    (void)snprintf(org, sizeof org, "%.*s", slash == NULL ? 1 : (int)(slash - id), slash == NULL ? "." : id);
    if (slash != NULL && !make_folder(store->root_fd, org))
        return td_error_sys(err, TD_IO, errno, "cannot make \"%s\"", org);
    *parent = open_parent(store, id, name);
    return *parent >= 0 || td_error_sys(err, TD_CONFLICT, errno, "\"%s\" is no directory", org);
}

/* Renames the folder of the files into place, durably. */
static bool move_in_place(const struct td_upstream_store *store, const struct row *row, const char *files,
                          struct td_error *err)
{
    int parent = -1;
    const char *name = NULL;
    if (!make_parent(store, row->note.id, &parent, &name, err))
        return false;
    bool ok = renameat2(store->fd, files, parent, name, RENAME_NOREPLACE) == 0;
    int sys = errno;
    if (ok)
        (void)(fsync(parent) + fsync(store->root_fd));
    (void)close(parent);
    return ok ||
           td_error_sys(err, sys == EEXIST ? TD_CONFLICT : TD_IO, sys, "cannot move \"%s\" into place", row->note.id);
}

/* Publishes a row that is LEAVING: its record first, then the rename. */
static bool publish(struct td_upstream_store *store, struct row *row, struct pruning *pruning, struct td_error *err)
{
    char files[64];
    char record[64];
    char path[PATH_BYTES];
    struct stat st;
    (void)snprintf(files, sizeof files, "incoming/%s/files", row->key);
    (void)snprintf(record, sizeof record, "records/%s", row->key);
    if (!full_path(store, "", files, path))
        return td_error_set(err, TD_FAILED_PRECONDITION, "the path of the served directory is too long");
    pruning->prefix_len = strlen(path) + 1;
    if (!td_disk_tree_visit(path, prune_item, pruning) || fstatat(store->fd, files, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return td_error_sys(err, TD_IO, errno, "cannot list \"%s\"", path);
    if (!td_published_tree_tag(path, row->note.tree))
        return td_error_set(err, TD_IO, "cannot look at all files in \"%s\"", path);
    row->note.inode = st.st_ino;
    row->note.mtime_ns = td_file_id_of(&st).mtime_ns;
    if (!td_kept_note_write(store->fd, record, &row->note, err))
        return false;
    wait_for_rest(pruning->changed_ns);
    if (move_in_place(store, row, files, err))
        return true;
    (void)unlinkat(store->fd, record, 0);
    return false;
}

bool td_upstream_store_publish(struct td_upstream_store *store, const char *id, bool is_verified,
                               bool (*is_wanted)(void *context, const char *path), void *context, struct td_error *err)
{
    struct row row = {.stage = LEFT};
    struct pruning pruning = {.is_wanted = is_wanted, .context = context};
    pthread_mutex_lock(&store->lock);
    struct row *found = find_row(store, td_text_of(id));
    bool ok = found != NULL && found->stage == FETCHED;
    if (ok) {
        found->stage = LEAVING;
        row = *found;
    }
    pthread_mutex_unlock(&store->lock);
    if (!ok)
        return td_error_set(err, TD_INTERNAL, "\"%s\" is not being fetched", id);
    row.note.is_verified = is_verified;
    row.read_ns = now_ns();
    ok = publish(store, &row, &pruning, err);
    row.stage = ok ? PUBLISHED : LEFT;
    row.note.inode = ok ? row.note.inode : 0;
    pthread_mutex_lock(&store->lock);
    found = find_row(store, td_text_of(id));
    if (found != NULL)
        *found = row;
    pthread_mutex_unlock(&store->lock);
    if (ok)
        remove_tree(store, "incoming", row.key);
    return ok;
}

/* ---- what is known --------------------------------------------------------------------------------------- */

bool td_upstream_store_find(struct td_upstream_store *store, struct td_text id, struct td_kept_model *out)
{
    pthread_mutex_lock(&store->lock);
    const struct row *row = find_row(store, id);
    bool found = row != NULL && row->stage == PUBLISHED;
    if (found)
        *out = (struct td_kept_model){
            .bytes = row->note.bytes, .is_verified = row->note.is_verified, .read_ns = row->read_ns};
    pthread_mutex_unlock(&store->lock);
    return found;
}

bool td_upstream_store_is_there(struct td_upstream_store *store, struct td_text id)
{
    struct row copy = {.stage = LEFT};
    pthread_mutex_lock(&store->lock);
    const struct row *row = find_row(store, id);
    if (row != NULL)
        copy = *row;
    pthread_mutex_unlock(&store->lock);
    bool is_there = copy.stage == PUBLISHED && is_in_place(store, &copy);
    if (copy.stage == PUBLISHED && !is_there) { /* the operator has removed it */
        char path[64];
        (void)snprintf(path, sizeof path, "records/%s", copy.key);
        (void)unlinkat(store->fd, path, 0);
        pthread_mutex_lock(&store->lock);
        remove_row(store, td_text_of(copy.note.id));
        pthread_mutex_unlock(&store->lock);
    }
    return is_there;
}

void td_upstream_store_note_read(struct td_upstream_store *store, struct td_text id)
{
    pthread_mutex_lock(&store->lock);
    struct row *row = find_row(store, id);
    if (row != NULL && row->stage == PUBLISHED) {
        row->read_ns = now_ns();
        row->is_read = true;
    }
    pthread_mutex_unlock(&store->lock);
}

/* Takes one row whose time is to be written. Returns false when there is none. */
static bool take_read(struct td_upstream_store *store, struct row *out)
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->count && !found; i++) {
        struct row *row = &store->rows[i];
        found = row->is_read && row->stage == PUBLISHED;
        if (found)
            *out = *row;
        row->is_read = false;
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

void td_upstream_store_write_reads(struct td_upstream_store *store)
{
    struct row row;
    while (take_read(store, &row)) {
        char path[64];
        const struct timespec read = {.tv_sec = row.read_ns / NS_PER_S, .tv_nsec = row.read_ns % NS_PER_S};
        const struct timespec times[2] = {read, read};
        (void)snprintf(path, sizeof path, "records/%s", row.key);
        (void)utimensat(store->fd, path, times, AT_SYMLINK_NOFOLLOW);
    }
}

uint64_t td_upstream_store_bytes(struct td_upstream_store *store, size_t *count)
{
    pthread_mutex_lock(&store->lock);
    uint64_t bytes = used_bytes(store);
    *count = 0;
    for (size_t i = 0; i < store->count; i++)
        *count += store->rows[i].stage == PUBLISHED ? 1 : 0;
    pthread_mutex_unlock(&store->lock);
    return bytes;
}
