/* Locks: a pull that writes files into a staging directory holds a shared lock of the directory from its start to its
 * end. A pull that can take the exclusive lock is alone: it removes files that do not belong to it, and then changes to
 * the shared lock. So no pull removes the files of another running pull, with two exceptions. A pull that has waited
 * for lock_most_ns, such as for another one that removes hundreds of GB, continues without a lock, and other pulls do
 * not see it. And the kernel releases a lock before it takes the other kind, so at that moment another pull may get the
 * exclusive lock. */
#include "server/cmd/pull_directory.h"

#include "catalog/model/file_kind.h"
#include "core/clock.h"
#include "storage/disk_tree.h"
#include "storage/fetch/fetch_target.h"
#include "storage/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The note in the staging directory that says what is pulled there. No file of a model has such a name. */
#define NOTE_NAME ".tensord-pull-of"

enum { NOTE_BYTES = 512 };

static const uint64_t lock_poll_ns = TD_NS_PER_S / 50;
static const uint64_t lock_most_ns = 5 * TD_NS_PER_S;

/* The removal of files that do not belong to the pull. */
struct tidying {
    const struct td_root *root;
    size_t prefix_len; /* of the paths, up to the file's own */
    dev_t device;      /* of the directories; file systems mounted below have other devices, and are left alone */
    const struct td_pull_belonging *belonging;
};

/* Makes the directory that the first `len` bytes of the path name, and its parents. */
static bool make_directories(const char *path, size_t len, struct td_error *err)
{
    char *copy = td_text_copy(td_text_n(path, len));
    bool ok = true;
    if (copy == NULL)
        return td_error_no_memory(err);
    for (char *c = copy; ok && copy[0] != '\0'; c++) {
        char kept = *c;
        if (kept != '\0' && (kept != '/' || c == copy))
            continue;
        *c = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            ok = td_error_sys(err, TD_IO, errno, "cannot make the directory \"%s\"", copy);
        *c = kept;
        if (kept == '\0')
            break;
    }
    free(copy);
    return ok;
}

bool td_directories_make(const char *path, struct td_error *err)
{
    return make_directories(path, strlen(path), err);
}

/* Returns whether the staging directory cannot be renamed to the final name, since a file, a directory or a link has
 * the name, or it is no usable name. */
static bool is_taken(const struct td_pull_directory *directory)
{
    struct stat st;
    const char *name = td_base_name(directory->final);
    return name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || lstat(directory->final, &st) == 0;
}

/* Returns whether the path is a symlink without a target. */
static bool leads_nowhere(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) != 0 && errno == ENOENT;
}

/* Copies the path without the slashes at its end. */
static bool set_final(const char *path, struct td_pull_directory *out, struct td_error *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    out->final = td_text_copy(td_text_n(path, len));
    return out->final != NULL || td_error_no_memory(err);
}

/* Returns whether the name of the staging directory still leads to the directory that the root has open, and not by a
 * symlink. */
static bool is_staging(const struct td_pull_directory *directory, struct stat *st)
{
    return lstat(directory->staging, st) == 0 && S_ISDIR(st->st_mode) && st->st_dev == directory->root->device &&
           st->st_ino == directory->root->inode;
}

/* Refuses a staging directory that another user made before in a directory where everybody may, since that user could
 * change the files in it later. This is the rule of the kernel's fs.protected_regular. If the directory above is not
 * sticky, every user with write access may rename its content, so the owner proves nothing. */
static bool check_owner(const struct td_pull_directory *directory, bool is_new, struct td_error *err)
{
    struct stat st;
    struct stat above_it;
    size_t parent = (size_t)(td_base_name(directory->final) - directory->final);
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%.*s", parent == 0 ? 1 : (int)parent, parent == 0 ? "." : directory->final);
    if (!is_staging(directory, &st))
        return td_error_set(err, TD_IO, "\"%s\" was renamed or replaced by another program; try again",
                            directory->staging);
    if (is_new)
        return true;
    if (stat(path, &above_it) != 0)
        return td_error_sys(err, TD_IO, errno, "cannot look at \"%s\"", path);
    bool is_shared = (above_it.st_mode & S_ISVTX) != 0 && (above_it.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (!is_shared || st.st_uid == geteuid() || st.st_uid == above_it.st_uid)
        return true;
    return td_error_set(err, TD_PERMISSION_DENIED,
                        "\"%s\", where the files are until all are there, is of another user, who may change them: "
                        "have it removed, or give another -o",
                        directory->staging);
}

/* Returns the mode of new directories: 0777 without the bits of the umask. Not beside other threads. */
static mode_t new_mode(void)
{
    mode_t mask = umask(0);
    (void)umask(mask);
    return 0777 & ~mask;
}

/* Returns the mode of the staging directory: users who may not write there may not read or lock it either. */
static mode_t staging_mode(mode_t mode)
{
    mode_t group = (mode & S_IWGRP) != 0 ? mode & S_IRWXG : 0;
    mode_t others = (mode & S_IWOTH) != 0 ? mode & S_IRWXO : 0;
    return (mode & S_IRWXU) | group | others;
}

/* Makes and opens the staging directory, whose name ends with `end`. Sets *is_new to whether it was not there. */
static bool open_staging(struct td_pull_directory *out, const char *end, bool *is_new, struct td_error *err)
{
    size_t parent = (size_t)(td_base_name(out->final) - out->final);
    struct stat st;
    if (asprintf(&out->staging, "%.*s.%s%s", (int)parent, out->final, out->final + parent, end) < 0) {
        out->staging = NULL;
        (void)td_error_no_memory(err);
        return false;
    }
    if (!make_directories(out->final, parent, err))
        return false;
    out->mode = new_mode();
    *is_new = mkdir(out->staging, staging_mode(out->mode)) == 0;
    if (!*is_new && errno != EEXIST)
        return td_error_sys(err, TD_IO, errno, "cannot make the directory \"%s\"", out->staging);
    if (lstat(out->staging, &st) == 0 && !S_ISDIR(st.st_mode))
        return td_error_set(err, TD_IO, "\"%s\", where the files are until all are there, is no directory; remove it",
                            out->staging);
    return td_root_create(out->staging, &out->root, err) && check_owner(out, *is_new, err);
}

/* Locks the file, but waits for at most lock_most_ns and then continues without the lock, as on file systems without
 * locks. Every user who may read a file can lock it, and must not be able to stop pulls. */
static void lock_soon(int fd, int how)
{
    const struct timespec pause = {.tv_nsec = (long)lock_poll_ns};
    uint64_t until_ns = td_clock_ns() + lock_most_ns;
    while (flock(fd, how | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) && td_clock_ns() < until_ns)
        (void)nanosleep(&pause, NULL);
}

/* Sets *holds to whether the staging directory has any file but the note. */
static bool look_for_files(const struct td_pull_directory *directory, bool *holds, struct td_error *err)
{
    int fd = openat(directory->root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *items = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *item;
    *holds = false;
    if (items == NULL) {
        (void)td_error_sys(err, TD_IO, errno, "cannot read the directory \"%s\"", directory->staging);
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    while (!*holds && (item = readdir(items)) != NULL)
        *holds =
            strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 && strcmp(item->d_name, NOTE_NAME) != 0;
    (void)closedir(items);
    return true;
}

/* Writes the note with the content into the staging directory, or compares the content with an existing note. When
 * several pulls begin at the same time, the lock lets one of them write it. Refuses a directory with files but without
 * a note: a user may have put the files there, and the pull would remove them. Looks for files before it reads the
 * note, since other pulls write the note before their first file. */
static bool check_content(struct td_pull_directory *directory, const char *content, struct td_error *err)
{
    char noted[NOTE_BYTES] = "";
    bool holds_files;
    if (!look_for_files(directory, &holds_files, err))
        return false;
    int fd = openat(directory->root->fd, NOTE_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return td_error_sys(err, TD_IO, errno, "cannot write into \"%s\"", directory->staging);
    lock_soon(fd, LOCK_EX);
    ssize_t n = pread(fd, noted, sizeof noted - 1, 0);
    directory->has_noted = n == 0 && !holds_files;
    bool ok = !directory->has_noted || pwrite(fd, content, strlen(content), 0) == (ssize_t)strlen(content);
    if (n < 0 || !ok)
        ok = td_error_sys(err, TD_IO, errno, "cannot note in \"%s\" what is pulled", directory->staging);
    (void)close(fd);
    if (!ok || directory->has_noted || strcmp(noted, content) == 0)
        return ok;
    if (n == 0)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "\"%s\" holds files that no pull has noted: move them away, or give another -o",
                            directory->staging);
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "\"%s\" holds an unfinished pull of %s: remove it, or give another -o", directory->staging,
                        noted);
}

/* Copies the path of a file. The path of a partial file, or of a journal, becomes the path of its file. */
static void copy_path(const char *path, char out[PATH_MAX])
{
    static const char *const ends[] = {TD_FETCH_PART_END, TD_FETCH_JOURNAL_END};
    size_t name = (size_t)(td_base_name(path) - path);
    size_t len = strlen(path);
    (void)snprintf(out, PATH_MAX, "%s", path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (len < PATH_MAX && path[name] == '.' && len > name + 1 + end && strcmp(path + len - end, ends[i]) == 0)
            (void)snprintf(out + name, PATH_MAX - name, "%.*s", (int)(len - end - name - 1), path + name + 1);
    }
}

/* Removes a file that does not belong to the pull, or an empty directory. */
static bool tidy_item(void *context, const FTSENT *item)
{
    const struct tidying *tidying = context;
    char path[PATH_MAX];
    bool is_directory = item->fts_info == FTS_D || item->fts_info == FTS_DP;
    const FTSENT *at = is_directory ? item : item->fts_parent; /* files of an overlay may have other device numbers */
    if (item->fts_info == FTS_D || at->fts_statp->st_dev != tidying->device)
        return true;
    if (is_directory) {
        if (item->fts_pathlen > tidying->prefix_len)
            (void)td_root_remove(tidying->root, item->fts_path + tidying->prefix_len, AT_REMOVEDIR);
        return true;
    }
    const char *own = item->fts_path + tidying->prefix_len;
    copy_path(own, path);
    return strcmp(own, NOTE_NAME) == 0 || tidying->belonging->belongs(tidying->belonging->context, path) ||
           td_root_remove(tidying->root, own, 0) || errno == ENOENT;
}

/* Removes files of an earlier pull that do not belong to this one. It works by the descriptor, so a rename does not
 * lead it elsewhere. If another user replaces a directory by a symlink during the walk, the walk may read another
 * directory, but removes nothing there. */
static bool remove_leftovers(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                             struct td_error *err)
{
    char path[64];
    int len = snprintf(path, sizeof path, "/proc/self/fd/%d/.", directory->lock);
    struct tidying tidying = {.root = directory->root,
                              .prefix_len = (size_t)len + 1,
                              .device = directory->root->device,
                              .belonging = belonging};
    return td_disk_tree_visit(path, tidy_item, &tidying) ||
           td_error_sys(err, TD_IO, errno, "cannot remove the files of an earlier pull in \"%s\"; remove it",
                        directory->staging);
}

/* Takes the exclusive lock of the staging directory, and returns whether it could. Returns false on network file
 * systems and FUSE: a lock there may be known to this machine alone, so it does not prove that no other pull is
 * running. */
static bool lock_alone(const struct td_pull_directory *directory)
{
    return td_sees_every_writer(directory->lock) && flock(directory->lock, LOCK_EX | LOCK_NB) == 0;
}

/* Locks the staging directory, checks the note, and removes files that do not belong when no other pull has the
 * lock. */
static bool enter_staging(struct td_pull_directory *out, const char *content, const struct td_pull_belonging *belonging,
                          struct td_error *err)
{
    struct stat st;
    out->lock = openat(out->root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->lock < 0)
        return td_error_sys(err, TD_IO, errno, "cannot open \"%s\"", out->staging);
    bool is_alone = lock_alone(out);
    bool ok = check_content(out, content, err);
    /* a directory without a note was empty; one that lost its staging name has just been published */
    if (ok && is_alone && !out->has_noted && is_staging(out, &st))
        ok = remove_leftovers(out, belonging, err);
    lock_soon(out->lock, LOCK_SH);
    return ok;
}

static void close_lock(struct td_pull_directory *directory)
{
    if (directory->lock >= 0)
        (void)close(directory->lock);
    directory->lock = -1;
}

/* Removes the note if another pull has just published the directory, or if this pull wrote the note and no other pull
 * has the lock. Otherwise the note belongs to another pull and stays. */
static void remove_note(const struct td_pull_directory *directory)
{
    struct stat st;
    bool is_ours = directory->has_noted && flock(directory->lock, LOCK_EX | LOCK_NB) == 0;
    if (is_ours || !is_staging(directory, &st))
        (void)unlinkat(directory->root->fd, NOTE_NAME, 0);
}

/* Closes the staging directory, and removes it if it still has its name and is empty. */
static void leave_staging(struct td_pull_directory *out)
{
    if (out->root != NULL)
        remove_note(out);
    close_lock(out);
    td_root_unref(out->root);
    out->root = NULL;
    (void)rmdir(out->staging);
    free(out->staging);
    out->staging = NULL;
}

static bool check_writable(const struct td_pull_directory *directory, struct td_error *err)
{
    const char *path = td_pull_directory_kept(directory);
    return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0 ||
           td_error_sys(err, TD_IO, errno, "cannot write into \"%s\"", path);
}

bool td_pull_directory_open(const char *path, const char *content, const struct td_pull_belonging *belonging,
                            struct td_pull_directory *out, struct td_error *err)
{
    bool is_new;
    memset(out, 0, sizeof *out);
    out->lock = -1;
    if (!set_final(path, out, err))
        return false;
    if (!is_taken(out)) {
        /* another pull may have published the staging directory in between; then the final one exists */
        bool ok = open_staging(out, TD_FETCH_STAGING_END, &is_new, err) && enter_staging(out, content, belonging, err);
        if (!is_taken(out))
            return ok && check_writable(out, err);
        if (out->staging == NULL)
            return false;
        leave_staging(out);
        td_error_init(err);
    }
    if (leads_nowhere(out->final))
        return td_error_set(err, TD_IO, "\"%s\" is a symlink that leads nowhere", out->final);
    return td_directories_make(out->final, err) && td_root_create(out->final, &out->root, err) &&
           check_writable(out, err);
}

static bool belongs_nowhere(void *context, const char *path)
{
    (void)context, (void)path;
    return false;
}

/* Locks the staging directory for this process alone, and empties it. A directory that this process has made is its own
 * where locks do not work, too. */
static bool enter_alone(struct td_pull_directory *out, bool is_new, struct td_error *err)
{
    const struct td_pull_belonging belonging = {.belongs = belongs_nowhere};
    struct stat st;
    out->lock = openat(out->root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->lock < 0)
        return td_error_sys(err, TD_IO, errno, "cannot open \"%s\"", out->staging);
    if (!td_sees_every_writer(out->lock)) {
        if (is_new)
            return true;
        close_lock(out);
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "\"%s\" is there: another tensord writes into it, or was killed; this file system does not "
                            "show which. Remove it if none is running",
                            out->staging);
    }
    if (flock(out->lock, LOCK_EX | LOCK_NB) == 0 && is_staging(out, &st))
        return is_new || remove_leftovers(out, &belonging, err);
    close_lock(out);
    return td_error_set(err, TD_CONFLICT, "another tensord writes into \"%s\"", out->staging);
}

static bool check_free(const struct td_pull_directory *out, struct td_error *err)
{
    return !is_taken(out) ||
           td_error_set(err, TD_CONFLICT, "\"%s\" is there already; give a directory that is not", out->final);
}

bool td_pull_directory_open_alone(const char *path, const char *end, struct td_pull_directory *out,
                                  struct td_error *err)
{
    bool is_new;
    memset(out, 0, sizeof *out);
    out->lock = -1;
    if (!set_final(path, out, err))
        return false;
    /* again when the staging directory is this process's own: the one before may just have been published */
    return check_free(out, err) && open_staging(out, end, &is_new, err) && enter_alone(out, is_new, err) &&
           check_free(out, err) && check_writable(out, err);
}

void td_pull_directory_discard(const struct td_pull_directory *directory)
{
    struct stat st;
    if (directory->lock >= 0 && is_staging(directory, &st))
        (void)td_disk_tree_remove(directory->staging);
}

bool td_pull_directory_publish(const struct td_pull_directory *directory, struct td_error *err)
{
    struct stat st;
    if (directory->staging == NULL)
        return true;
    if (fstat(directory->lock, &st) == 0) /* not all file systems have modes */
        (void)fchmod(directory->lock, (st.st_mode & 07777) | directory->mode);
    if (rename(directory->staging, directory->final) == 0) {
        (void)unlinkat(directory->root->fd, NOTE_NAME, 0); /* not before: a kill in between would leave no note */
        int parent = openat(directory->root->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >= 0) { /* as durable as the file system makes it */
            (void)fsync(parent);
            (void)close(parent);
        }
        return true;
    }
    int sys = errno;
    if (stat(directory->final, &st) == 0 && st.st_dev == directory->root->device && st.st_ino == directory->root->inode)
        return true;
    return td_error_sys(err, TD_IO, sys, "all files are in \"%s\", but it cannot be renamed to \"%s\"",
                        directory->staging, directory->final);
}

bool td_pull_directory_claim(const struct td_pull_directory *directory)
{
    struct stat st;
    if (directory->staging == NULL)
        return false;
    if (lock_alone(directory) && is_staging(directory, &st))
        return true;
    td_pull_directory_share(directory);
    return false;
}

void td_pull_directory_share(const struct td_pull_directory *directory)
{
    lock_soon(directory->lock, LOCK_SH);
}

const char *td_pull_directory_kept(const struct td_pull_directory *directory)
{
    return directory->staging != NULL ? directory->staging : directory->final;
}

void td_pull_directory_close(struct td_pull_directory *directory)
{
    close_lock(directory);
    td_root_unref(directory->root);
    free(directory->staging);
    free(directory->final);
    memset(directory, 0, sizeof *directory);
    directory->lock = -1;
}
