/* Plan: a sorted list has the files of a folder together, so a tree is written with one pass over the list. The
 * directories on the way to the current file are open; one that ends is synced and closed, so each is durable before
 * the one above it. */
#include "catalog/publish/publish_tree.h"

#include "catalog/scan/seen_blobs.h"
#include "core/digits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TARGET_BYTES = (TD_COMMIT_PATH_PARTS + 2) * 3 + 6 + TD_SHA256_TEXT_BYTES };

static const char up[] = "../";
static const char blobs[] = "blobs/";

/* ---- links ----------------------------------------------------------------------------------------------- */

/* Writes the target of a link that is so many folders deep in a snapshot. */
static void write_target(size_t depth, const uint8_t sha256[TD_SHA256_BYTES], char out[TARGET_BYTES])
{
    size_t len = 0;
    for (size_t i = 0; i < depth + 2; i++, len += sizeof up - 1)
        memcpy(out + len, up, sizeof up - 1);
    memcpy(out + len, blobs, sizeof blobs - 1);
    td_hex_write(sha256, TD_SHA256_BYTES, out + len + sizeof blobs - 1);
}

bool td_publish_link_read(const struct td_folder_item *item, size_t depth_above, uint8_t sha256[TD_SHA256_BYTES])
{
    char name[TD_BLOB_NAME_BYTES];
    return item->kind == S_IFLNK && item->depth >= depth_above &&
           td_blob_link_read(item->at, item->name, (unsigned)(item->depth - depth_above) + 1, name) &&
           td_hex_read_bytes(td_text_of(name), sha256, TD_SHA256_BYTES);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

bool td_publish_is_commit(struct td_text name)
{
    return name.len == TD_COMMIT_BYTES - 1 && td_hex_is_lower(name);
}

int td_publish_tree_open(const struct td_publish_repo *repo, const char *commit)
{
    char path[sizeof "snapshots/" + TD_COMMIT_BYTES];
    const char *name;
    if (repo->fd < 0 || !td_publish_is_commit(td_text_of(commit))) {
        errno = ENOENT;
        return -1;
    }
    (void)snprintf(path, sizeof path, "snapshots/%s", commit);
    int parent = td_folder_open_parent(repo->fd, path, false, &name);
    int fd = parent < 0 ? -1 : td_folder_open(parent, name);
    td_folder_close(parent);
    return fd;
}

static bool read_item(void *context, const struct td_folder_item *item, struct td_error *err)
{
    struct td_commit_list *list = context;
    uint8_t sha256[TD_SHA256_BYTES];
    if (item->kind == S_IFDIR)
        return true;
    if (!td_commit_check_path(item->path, true, NULL))
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%.200s\" is no path of a commit", item->path);
    if (!td_publish_link_read(item, 0, sha256))
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%.200s\" is no link to a blob", item->path);
    return td_commit_list_add(list, item->path, sha256, err);
}

bool td_publish_tree_read(int fd, const char *commit, struct td_commit_list *list, struct td_error *err)
{
    char id[TD_COMMIT_BYTES];
    struct td_error why = TD_ERROR_INIT;
    bool ok = td_folder_walk(fd, (size_t)TD_COMMIT_MAX_FILES + TD_COMMIT_MAX_FOLDERS, read_item, list, &why);
    td_commit_list_sort(list);
    ok = ok && td_commit_list_id(list, id, &why) &&
         (strcmp(id, commit) == 0 || td_error_set(&why, TD_FAILED_PRECONDITION, "files are missing or were added"));
    return ok ||
           td_error_set(err, why.code, "the snapshot of commit %s is damaged, so its files cannot be kept: %.300s",
                        commit, why.message);
}

bool td_publish_tree_find(const struct td_publish_repo *repo, const char *commit, const char *path,
                          uint8_t sha256[TD_SHA256_BYTES])
{
    struct td_folder_item item = {.path = path, .kind = S_IFLNK};
    int fd = td_publish_tree_open(repo, commit);
    if (fd < 0)
        return false;
    item.at = td_folder_open_parent(fd, path, false, &item.name);
    for (const char *c = path; *c != '\0'; c++)
        item.depth += *c == '/' ? 1 : 0;
    bool found = item.at >= 0 && td_publish_link_read(&item, 0, sha256);
    td_folder_close(item.at);
    (void)close(fd);
    return found;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

struct writer {
    const struct td_publish_stage *stage;
    int before;                         /* the snapshot before; -1: no such snapshot */
    int open[TD_COMMIT_PATH_PARTS + 1]; /* the tree, and the folders on the way to the current file */
    size_t depth;                       /* number of folders */
    const char *path;                   /* of the file before */
    struct td_error *err;
};

static bool fail(const struct writer *writer)
{
    return td_publish_fail(&writer->stage->repo->name, "write a snapshot of", writer->err);
}

/* Makes a folder and opens it. */
static bool push(struct writer *writer, const char *name)
{
    int at = writer->open[writer->depth];
    int fd = mkdirat(at, name, 0755) == 0 ? td_folder_open(at, name) : -1;
    if (fd < 0)
        return fail(writer);
    writer->open[++writer->depth] = fd;
    return true;
}

/* Syncs and closes the innermost directory. */
static bool pop(struct writer *writer)
{
    int fd = writer->open[writer->depth];
    bool ok = fsync(fd) == 0 || fail(writer);
    (void)close(fd);
    writer->depth--;
    return ok;
}

/* Returns how many folders two paths share, and sets *len to the length of these. */
static size_t shared_folders(const char *a, const char *b, size_t *len)
{
    size_t count = 0;
    *len = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        if (a[i] == '/') {
            count++;
            *len = i + 1;
        }
    return count;
}

/* Leaves and makes folders until the one of this path is open. Returns the file's name in it, or NULL. */
static const char *move_to(struct writer *writer, const char *path)
{
    size_t len;
    size_t shared = shared_folders(writer->path, path, &len);
    bool ok = true;
    while (ok && writer->depth > shared)
        ok = pop(writer);
    const char *rest = path + len;
    for (const char *slash = strchr(rest, '/'); ok && slash != NULL; slash = strchr(rest, '/')) {
        char name[TD_COMMIT_PATH_BYTES + 1];
        memcpy(name, rest, (size_t)(slash - rest));
        name[slash - rest] = '\0';
        ok = push(writer, name);
        rest = slash + 1;
    }
    writer->path = path;
    return ok ? rest : NULL;
}

/* Hard-links the link in the snapshot before. Returns false when the link must be written instead. */
static bool link_before(const struct writer *writer, const struct td_commit_entry *entry, const char *name)
{
    return writer->before >= 0 && entry->has_link &&
           linkat(writer->before, entry->path, writer->open[writer->depth], name, 0) == 0;
}

/* Gives a link that could not be hard-linked the time of the link in the snapshot before. */
static void copy_time(const struct writer *writer, const struct td_commit_entry *entry, const char *name)
{
    struct stat st;
    if (writer->before < 0 || !entry->has_link || fstatat(writer->before, entry->path, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    const struct timespec times[2] = {st.st_mtim, st.st_mtim};
    (void)utimensat(writer->open[writer->depth], name, times, AT_SYMLINK_NOFOLLOW);
}

/* Returns whether a hard link failed for a reason that a new link does not share. */
static bool can_write_instead(int sys)
{
    return sys == EMLINK || sys == EPERM || sys == EXDEV || sys == EOPNOTSUPP || sys == ENOSYS || sys == ENOENT;
}

static bool write_link(struct writer *writer, const struct td_commit_entry *entry)
{
    char target[TARGET_BYTES];
    const char *name = move_to(writer, entry->path);
    if (name == NULL)
        return false;
    errno = ENOENT; /* without a snapshot before */
    if (link_before(writer, entry, name))
        return true;
    if (!can_write_instead(errno))
        return fail(writer);
    write_target(writer->depth, entry->sha256, target);
    if (symlinkat(target, writer->open[writer->depth], name) != 0)
        return fail(writer);
    copy_time(writer, entry, name);
    return true;
}

bool td_publish_tree_write(const struct td_publish_stage *stage, const char *name, const struct td_commit_list *list,
                           int before, struct td_error *err)
{
    struct writer writer = {.stage = stage, .before = before, .path = "", .err = err};
    int fd = mkdirat(stage->fd, name, 0755) == 0 ? td_folder_open(stage->fd, name) : -1;
    if (fd < 0)
        return fail(&writer);
    writer.open[0] = fd;
    bool ok = true;
    for (size_t i = 0; ok && i < list->count; i++)
        ok = write_link(&writer, &list->entries[i]);
    while (writer.depth > 0)
        if (ok)
            ok = pop(&writer);
        else
            (void)close(writer.open[writer.depth--]);
    ok = ok && (fsync(fd) == 0 || fail(&writer));
    (void)close(fd);
    return ok;
}

void td_publish_tree_touch(int fd, const struct td_commit_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->entries[i].number != SIZE_MAX && !list->entries[i].has_link)
            (void)utimensat(fd, list->entries[i].path, NULL, AT_SYMLINK_NOFOLLOW);
}
