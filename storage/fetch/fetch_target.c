#include "storage/fetch/fetch_target.h"

#include "core/checked.h"
#include "core/clock.h"
#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_POLL_NS = 50 * 1000 * 1000 };

/* Sets the error for a failed call: TD_RESOURCE_EXHAUSTED for a full disk, else TD_IO. Returns false. */
static bool fail_call(int sys, const char *what, const char *name, struct td_error *err)
{
    bool is_full = sys == ENOSPC || sys == EDQUOT || sys == EFBIG || sys == ENOMEM;
    return td_error_sys(err, is_full ? TD_RESOURCE_EXHAUSTED : TD_IO, sys, "cannot %s \"%s\"", what, name);
}

/* ---- names and directories ----------------------------------------------------------------------------- */

/* Sets the error for path[0..len), which cannot be opened as a directory below the root. `why` is the error of opening
 * it. Returns false. */
static bool refuse_directory(const struct td_root *root, const char *path, size_t len, const struct td_error *why,
                             struct td_error *err)
{
    char whole[PATH_MAX];
    struct stat st;
    (void)snprintf(whole, sizeof whole, "%.*s", (int)len, path);
    if (td_root_stat(root, whole, &st, NULL) && !S_ISDIR(st.st_mode))
        return td_error_set(err, TD_IO, "\"%.200s\" in \"%.200s\" is no directory, as the path of a file needs it",
                            whole, root->path);
    if (why->code == TD_NOT_FOUND)
        return td_error_set(err, TD_IO, "\"%.200s\" in \"%.200s\" is a symlink that leads nowhere", whole, root->path);
    if (why->code == TD_PERMISSION_DENIED && why->sys == 0)
        return td_error_set(err, TD_PERMISSION_DENIED, "\"%.200s\" in \"%.200s\" is a symlink that leads outside of it",
                            whole, root->path);
    return td_error_copy(err, why);
}

/* Opens the directory path[0..len), "" for the root. */
static bool open_existing(const struct td_root *root, const char *path, size_t len, int *directory,
                          struct td_error *err)
{
    char whole[PATH_MAX];
    struct td_error why = TD_ERROR_INIT;
    (void)snprintf(whole, sizeof whole, "%.*s", (int)len, path);
    return td_root_open_directory(root, whole, directory, &why) || refuse_directory(root, path, len, &why, err);
}

/* Creates the directory path[0..len) unless it exists; its parent exists. Creates it in the opened parent, so that no
 * symlink leads out of the root. */
static bool make_directory(const struct td_root *root, const char *path, size_t len, struct td_error *err)
{
    char whole[PATH_MAX];
    int parent = -1;
    if (len >= sizeof whole)
        return td_error_set(err, TD_INVALID_ARGUMENT, "\"%.200s\" is too long a path", path);
    memcpy(whole, path, len);
    whole[len] = '\0';
    char *slash = strrchr(whole, '/');
    const char *name = slash == NULL ? whole : slash + 1;
    if (slash != NULL)
        *slash = '\0';
    if (!open_existing(root, path, slash == NULL ? 0 : (size_t)(slash - whole), &parent, err))
        return false;
    bool ok = mkdirat(parent, name, 0777) == 0 || errno == EEXIST;
    if (!ok)
        (void)fail_call(errno, "make the directory", name, err);
    (void)close(parent);
    return ok;
}

/* Checks that no directory has the file's name, since a rename cannot replace it. */
static bool check_name(const struct td_root *root, int directory, const char *name, struct td_error *err)
{
    struct stat st;
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        return true;
    return td_error_set(err, TD_IO, "a directory in \"%.200s\" has the name of the file \"%.200s\"; remove it",
                        root->path, name);
}

/* Opens the directory of the path, and creates missing directories. */
static bool open_directory(const struct td_root *root, const char *path, size_t len, int *directory,
                           struct td_error *err)
{
    for (size_t i = 1; i <= len; i++)
        if ((i == len || path[i] == '/') && !make_directory(root, path, i, err))
            return false;
    return open_existing(root, path, len, directory, err);
}

bool td_fetch_target_check(const struct td_root *root, const char *path, struct td_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);
    char whole[PATH_MAX];
    struct stat st;
    struct td_error why = TD_ERROR_INIT;
    int directory = -1;
    (void)snprintf(whole, sizeof whole, "%.*s", (int)len, path);
    if (td_root_open_directory(root, whole, &directory, &why)) {
        bool ok = check_name(root, directory, slash == NULL ? path : slash + 1, err);
        (void)close(directory);
        return ok;
    }
    if (why.code != TD_NOT_FOUND)
        return refuse_directory(root, path, len, &why, err);
    /* missing directories will be made, and each existing part must be a directory */
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        (void)snprintf(whole, sizeof whole, "%.*s", (int)i, path);
        if (!td_root_stat(root, whole, &st, NULL))
            return true;
        if (!S_ISDIR(st.st_mode))
            return refuse_directory(root, path, i, &why, err);
    }
    return true;
}

bool td_fetch_target_open(struct td_fetch_target *target, const struct td_root *root, const char *path,
                          uint64_t size_bytes, struct td_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    memset(target, 0, sizeof *target);
    target->directory = target->part = target->journal = -1;
    target->size_bytes = size_bytes;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "\"%.200s\" does not end with a file's name", path);
    if (strlen(name) > TD_FETCH_NAME_BYTES || strlen(path) >= PATH_MAX)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the name \"%.60s...\" has %zu bytes, and at most %d are allowed",
                            name, strlen(name), TD_FETCH_NAME_BYTES);
    (void)snprintf(target->name, sizeof target->name, "%s", name);
    (void)snprintf(target->part_name, sizeof target->part_name, ".%.238s" TD_FETCH_PART_END, name);
    (void)snprintf(target->journal_name, sizeof target->journal_name, ".%.238s" TD_FETCH_JOURNAL_END, name);
    return open_directory(root, path, slash == NULL ? 0 : (size_t)(slash - path), &target->directory, err) &&
           check_name(root, target->directory, name, err);
}

int td_fetch_target_open_finished(const struct td_fetch_target *target)
{
    struct stat st;
    int fd = openat(target->directory, target->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == target->size_bytes)
        return fd;
    (void)close(fd);
    return -1;
}

/* ---- the lock ------------------------------------------------------------------------------------------ */

/* Sets the error for an unfinished file or journal that cannot be opened. */
static void refuse_own(int sys, const char *name, struct td_error *err)
{
    if (sys == ELOOP)
        (void)td_error_set(err, TD_IO, "\"%s\" is a symlink, which is not written through; remove it", name);
    else if (sys == EISDIR)
        (void)td_error_set(err, TD_IO, "\"%s\" is no regular file; remove it", name);
    else
        (void)fail_call(sys, "open", name, err);
}

/* Opens an unfinished file or journal, or creates it. Refuses a file with a second name (a hard link). Returns a
 * descriptor, or -1 with the error set. */
static int open_own(const struct td_fetch_target *target, const char *name, struct td_error *err)
{
    struct stat st;
    int fd = openat(target->directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0) {
        refuse_own(errno, name, err);
        return -1;
    }
    bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (is_file && st.st_nlink <= 1)
        return fd;
    (void)close(fd);
    if (is_file)
        (void)td_error_set(err, TD_IO,
                           "\"%s\" is a file that has another name, too, and is not written; remove this name", name);
    else
        (void)td_error_set(err, TD_IO, "\"%s\" is no regular file; remove it", name);
    return -1;
}

/* Returns whether the descriptor still is the file of that name: another process may have renamed or removed it. */
static bool is_still_named(const struct td_fetch_target *target, int fd)
{
    struct stat own;
    struct stat named;
    return fstat(fd, &own) == 0 && fstatat(target->directory, target->part_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/* Tries to lock. Returns 1 with the lock, 0 when another process has it, -1 after an error. A file system without locks
 * counts as locked. */
static int try_lock(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL)
        return 1;
    return errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

bool td_fetch_target_lock(struct td_fetch_target *target, const struct td_cancel *cancel, void (*waits)(void *context),
                          void *context, struct td_error *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_POLL_NS};
    for (;;) {
        int fd = open_own(target, target->part_name, err);
        if (fd < 0)
            return false;
        int locked = try_lock(fd);
        if (locked < 0)
            (void)fail_call(errno, "lock", target->part_name, err);
        else if (locked > 0 && is_still_named(target, fd))
            target->part = fd;
        if (locked < 0 || target->part >= 0) {
            if (locked < 0)
                (void)close(fd);
            return locked > 0;
        }
        (void)close(fd);
        if (td_cancel_is_asked(cancel))
            return td_error_set(err, TD_CONFLICT, "stopped while another process fetches the file");
        if (locked == 0) {
            if (waits != NULL)
                waits(context);
            waits = NULL;
            (void)nanosleep(&pause, NULL); /* polls, since a wait for a lock cannot be cancelled */
        }
    }
}

/* ---- the journal --------------------------------------------------------------------------------------- */

bool td_fetch_target_resume(struct td_fetch_target *target, const struct td_fetch_journal *wanted,
                            struct td_fetch_journal *found, uint8_t **bits)
{
    uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES];
    uint64_t bytes = td_fetch_journal_bytes(target->size_bytes);
    size_t bit_bytes = (size_t)(bytes - TD_FETCH_JOURNAL_HEAD_BYTES);
    struct stat part;
    struct stat st;
    int fd = openat(target->directory, target->journal_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    /* The size of the unfinished file shows that this is its journal. A journal of a killed process, from after the
     * file got its name, must not count for the next file. */
    *bits = NULL;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && (uint64_t)st.st_size == bytes &&
              fstat(target->part, &part) == 0 && (uint64_t)part.st_size == target->size_bytes &&
              td_read_at(fd, head, sizeof head, 0) == (ssize_t)sizeof head && td_fetch_journal_read(head, found) &&
              td_fetch_journal_fits(found, wanted) && (*bits = malloc(bit_bytes + 1)) != NULL &&
              td_read_at(fd, *bits, bit_bytes, TD_FETCH_JOURNAL_HEAD_BYTES) == (ssize_t)bit_bytes;
    if (!ok) {
        free(*bits);
        *bits = NULL;
        (void)close(fd);
        return false;
    }
    target->journal = fd;
    target->has_begun = true;
    return true;
}

/* Returns whether the file is in memory, where reserving writes zeros to every page. */
static bool is_in_memory(int fd, struct statfs *fs)
{
    return fstatfs(fd, fs) == 0 && fs->f_type == TMPFS_MAGIC;
}

/* Reserves the space, so that a full disk is known now and not after hours. File systems that cannot reserve get a file
 * of that length; for a file in memory, checks the free room instead. */
static bool reserve_space(int fd, uint64_t size_bytes)
{
    struct statfs fs;
    if (is_in_memory(fd, &fs)) {
        bool fits = fs.f_blocks == 0 || size_bytes / (uint64_t)fs.f_bsize < fs.f_bavail; /* no blocks: no limit */
        errno = ENOSPC;
        return (fits || size_bytes == 0) && ftruncate(fd, (off_t)size_bytes) == 0;
    }
    if (size_bytes == 0 || fallocate(fd, 0, 0, (off_t)size_bytes) == 0)
        return true;
    return (errno == EOPNOTSUPP || errno == ENOSYS) && ftruncate(fd, (off_t)size_bytes) == 0;
}

bool td_fetch_target_check_room(const struct td_fetch_target *target, struct td_error *err)
{
    struct statvfs fs;
    struct stat st;
    uint64_t room;
    if (fstatvfs(target->part, &fs) != 0 || fs.f_blocks == 0 || fstat(target->part, &st) != 0)
        return true; /* no known bound: td_fetch_target_begin reports a full disk */
    bool is_known =
        td_mul_u64(fs.f_bavail, fs.f_frsize, &room) && td_add_u64(room, (uint64_t)st.st_blocks * 512, &room);
    if (!is_known || target->size_bytes <= room)
        return true;
    return td_error_sys(err, TD_RESOURCE_EXHAUSTED, ENOSPC,
                        "\"%.100s\" has %" PRIu64 " bytes, and its file system has room for %" PRIu64, target->name,
                        target->size_bytes, room);
}

/* Writes a journal without pieces. */
static bool begin_journal(struct td_fetch_target *target, const struct td_fetch_journal *journal, struct td_error *err)
{
    uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES];
    td_fetch_journal_write(journal, head);
    return (ftruncate(target->journal, (off_t)td_fetch_journal_bytes(target->size_bytes)) == 0 &&
            td_write_at(target->journal, head, sizeof head, 0)) ||
           fail_call(errno, "write", target->journal_name, err);
}

bool td_fetch_target_begin(struct td_fetch_target *target, const struct td_fetch_journal *journal, struct td_error *err)
{
    if (target->journal < 0 && journal != NULL) {
        target->journal = open_own(target, target->journal_name, err);
        if (target->journal < 0)
            return false;
    }
    /* From here on the journal is invalid until its head is written. */
    if ((target->journal >= 0 && ftruncate(target->journal, 0) != 0) || ftruncate(target->part, 0) != 0)
        return fail_call(errno, "empty", target->part_name, err);
    if (!reserve_space(target->part, target->size_bytes)) {
        int sys = errno;
        if (ftruncate(target->part, 0) != 0) /* releases the space that was reserved */
            sys = errno;
        return fail_call(sys, "reserve the space on disk for", target->name, err);
    }
    if (journal != NULL && !begin_journal(target, journal, err))
        return false;
    target->has_begun = journal != NULL;
    return true;
}

bool td_fetch_target_write(const struct td_fetch_target *target, uint64_t off, const void *bytes, size_t len,
                           struct td_error *err)
{
    return td_write_at(target->part, bytes, len, off) || fail_call(errno, "write", target->part_name, err);
}

bool td_fetch_target_note(const struct td_fetch_target *target, const uint8_t *bits, uint64_t first, uint64_t end,
                          struct td_error *err)
{
    uint64_t from = first / 8;
    size_t len = (size_t)((end - 1) / 8 - from + 1);
    return target->journal < 0 || td_write_at(target->journal, bits + from, len, TD_FETCH_JOURNAL_HEAD_BYTES + from) ||
           fail_call(errno, "write", target->journal_name, err);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

bool td_fetch_target_sync(const struct td_fetch_target *target, struct td_error *err)
{
    struct stat st;
    bool ok = fstat(target->part, &st) == 0;
    if (ok && (uint64_t)st.st_size != target->size_bytes) /* else the call only changes times, which cost a write */
        ok = ftruncate(target->part, (off_t)target->size_bytes) == 0;
    return (ok && fdatasync(target->part) == 0) || fail_call(errno, "write", target->part_name, err);
}

bool td_fetch_target_place(struct td_fetch_target *target, struct td_error *err)
{
    if (renameat(target->directory, target->part_name, target->directory, target->name) != 0)
        return fail_call(errno, "rename the finished file to", target->name, err);
    (void)unlinkat(target->directory, target->journal_name, 0);
    target->has_begun = true; /* no empty file is to be removed */
    return true;
}

bool td_fetch_target_finish(struct td_fetch_target *target, struct td_error *err)
{
    if (!td_fetch_target_sync(target, err) || !td_fetch_target_place(target, err))
        return false;
    (void)fsync(target->directory); /* an error is ignored: some file systems cannot sync directories */
    return true;
}

void td_fetch_target_discard(struct td_fetch_target *target)
{
    (void)unlinkat(target->directory, target->journal_name, 0);
    if (target->part >= 0 && is_still_named(target, target->part))
        (void)unlinkat(target->directory, target->part_name, 0);
    if (target->part >= 0)
        (void)close(target->part);
    if (target->journal >= 0)
        (void)close(target->journal);
    target->part = target->journal = -1;
    target->has_begun = false;
}

void td_fetch_target_close(struct td_fetch_target *target)
{
    if (target->part >= 0 && !target->has_begun)
        td_fetch_target_discard(target);
    if (target->part >= 0)
        (void)close(target->part);
    if (target->journal >= 0)
        (void)close(target->journal);
    if (target->directory >= 0)
        (void)close(target->directory);
    target->directory = target->part = target->journal = -1;
}
