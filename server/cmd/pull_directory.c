#include "server/cmd/pull_directory.h"

#include "storage/fetch/fetch_target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the staging directory: what is pulled there. No file of a model has such a name. */
#define NOTE_NAME ".tensord-pull-of"

enum { NOTE_BYTES = 512 };

/* Returns the length of the path before its last component: 0, or past a '/'. */
static size_t above(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* Makes the first `len` bytes of the path as a directory, with those above it. */
static bool make_directories(const char *path, size_t len, struct td_error *err)
{
    char *copy = strndup(path, len);
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

/* Returns whether something has the final name, a link without a target too, or cannot be renamed to. */
static bool is_taken(const struct td_pull_directory *directory)
{
    struct stat st;
    const char *name = directory->final + above(directory->final);
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
    out->final = strndup(path, len);
    return out->final != NULL || td_error_no_memory(err);
}

/* Makes and opens the staging directory. */
static bool open_staging(struct td_pull_directory *out, struct td_error *err)
{
    size_t parent = above(out->final);
    struct stat st;
    if (asprintf(&out->staging, "%.*s.%s" TD_FETCH_STAGING_END, (int)parent, out->final, out->final + parent) < 0) {
        out->staging = NULL;
        return td_error_no_memory(err);
    }
    if (!make_directories(out->final, parent, err))
        return false;
    if (mkdir(out->staging, 0777) != 0 && errno != EEXIST)
        return td_error_sys(err, TD_IO, errno, "cannot make the directory \"%s\"", out->staging);
    if (lstat(out->staging, &st) == 0 && !S_ISDIR(st.st_mode))
        return td_error_set(err, TD_IO, "\"%s\", where the files are until all are there, is no directory; remove it",
                            out->staging);
    return td_root_create(out->staging, &out->root, err);
}

/* Notes the content in the staging directory, or compares it with the note that is there. Of pulls that begin at the
 * same time the lock lets one write. */
static bool check_content(const struct td_pull_directory *directory, const char *content, struct td_error *err)
{
    char noted[NOTE_BYTES] = "";
    int fd = openat(directory->root->fd, NOTE_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return td_error_sys(err, TD_IO, errno, "cannot write into \"%s\"", directory->staging);
    (void)flock(fd, LOCK_EX); /* not all file systems have locks */
    ssize_t n = pread(fd, noted, sizeof noted - 1, 0);
    bool ok = n > 0 || (n == 0 && pwrite(fd, content, strlen(content), 0) == (ssize_t)strlen(content));
    if (!ok)
        (void)td_error_sys(err, TD_IO, errno, "cannot note in \"%s\" what is pulled", directory->staging);
    (void)close(fd);
    if (!ok || n == 0 || strcmp(noted, content) == 0)
        return ok;
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "\"%s\" holds an unfinished pull of %s: remove it, or give another -o", directory->staging,
                        noted);
}

/* Lets go of the staging directory, which another pull has just renamed, or which is removed if it is empty. */
static void leave_staging(struct td_pull_directory *out)
{
    if (out->root != NULL)
        (void)unlinkat(out->root->fd, NOTE_NAME, 0);
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

bool td_pull_directory_open(const char *path, const char *content, struct td_pull_directory *out, struct td_error *err)
{
    memset(out, 0, sizeof *out);
    if (!set_final(path, out, err))
        return false;
    if (!is_taken(out)) {
        /* another pull may have renamed the staging directory in between: then the final one is there */
        bool ok = open_staging(out, err) && check_content(out, content, err);
        if (!is_taken(out))
            return ok && check_writable(out, err);
        if (out->staging == NULL)
            return false;
        leave_staging(out);
        td_error_init(err);
    }
    if (leads_nowhere(out->final))
        return td_error_set(err, TD_IO, "\"%s\" is a symlink that leads nowhere", out->final);
    return make_directories(out->final, strlen(out->final), err) && td_root_create(out->final, &out->root, err) &&
           check_writable(out, err);
}

bool td_pull_directory_publish(const struct td_pull_directory *directory, struct td_error *err)
{
    struct stat st;
    if (directory->staging == NULL)
        return true;
    (void)unlinkat(directory->root->fd, NOTE_NAME, 0);
    if (rename(directory->staging, directory->final) == 0) {
        (void)unlinkat(directory->root->fd, NOTE_NAME, 0); /* of a pull that has begun in between */
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

const char *td_pull_directory_kept(const struct td_pull_directory *directory)
{
    return directory->staging != NULL ? directory->staging : directory->final;
}

void td_pull_directory_close(struct td_pull_directory *directory)
{
    td_root_unref(directory->root);
    free(directory->staging);
    free(directory->final);
    memset(directory, 0, sizeof *directory);
}
