/* The served root: the one directory below which files may be opened. Every open uses openat2 (Linux 5.6) with
 * RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS, so no name, symlink or race leads outside. Thread-safe. */
#ifndef TD_STORAGE_SERVED_ROOT_H
#define TD_STORAGE_SERVED_ROOT_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct td_root {
    _Atomic int refs;
    int fd;          /* O_PATH directory */
    char *path;      /* as the operator gave it, for messages and re-opening */
    char *real_path; /* without symlinks, to recognise absolute symlinks that stay inside */
    uint64_t device, inode;
};

/* A file's identity: which bytes a path led to at some moment. Two equal identities mean equal content, provided that
 * the file's mtime was older than one clock tick when the first was taken (catalog/ waits until it is). */
struct td_file_id {
    uint64_t device, inode;
    uint64_t size_bytes;
    int64_t mtime_ns, ctime_ns; /* since 1970 */
};

/* Returns the identity of the file that stat described. */
struct td_file_id td_file_id_of(const struct stat *st);

/* Returns whether all members are equal. */
bool td_file_id_equal(const struct td_file_id *a, const struct td_file_id *b);

/* Returns whether the open file has this identity now. */
bool td_file_id_is(int fd, const struct td_file_id *id);

/* Opens the directory at `path` (any path of the system) as a root with one reference for the caller. Errors:
 * TD_NOT_FOUND, TD_PERMISSION_DENIED, TD_FAILED_PRECONDITION (not a directory, or openat2 is not available),
 * TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_root_create(const char *path, struct td_root **out, struct td_error *err);

/* Takes a reference for the caller. Returns `root`. */
struct td_root *td_root_ref(struct td_root *root);

/* Drops a reference; the last one closes the directory. NULL: does nothing. */
void td_root_unref(struct td_root *root);

/* Opens the regular file at `path` (relative to the root, no leading '/') for reading; follows symlinks that stay
 * inside the root. Never blocks on a FIFO and never opens a device. Sets *fd, which the caller closes, and *id by fstat
 * of it. Errors: TD_NOT_FOUND; TD_PERMISSION_DENIED (the path leads outside the root, or permissions are missing);
 * TD_FAILED_PRECONDITION (not a regular file); TD_RESOURCE_EXHAUSTED (descriptors, memory); TD_IO. */
bool td_root_open_file(const struct td_root *root, const char *path, int *fd, struct td_file_id *id,
                       struct td_error *err);

/* Opens the directory at `path` ("" is the root itself) for listing. Sets *fd, which the caller closes. Errors as
 * td_root_open_file, except that a path that is not a directory is TD_NOT_FOUND. */
bool td_root_open_directory(const struct td_root *root, const char *path, int *fd, struct td_error *err);

/* Writes the last component of the target of the symlink at `path`, with a NUL, to `name` (capacity bytes): in a
 * Hugging Face cache, the name of a blob. Returns false when `path` is not a symlink, or the component does not fit. */
bool td_root_link_name(const struct td_root *root, const char *path, char *name, size_t capacity);

/* Sets *st to the stat of the file at `path`; follows symlinks within the root. Opens nothing for reading. Errors as
 * td_root_open_file; any type of file will do. */
bool td_root_stat(const struct td_root *root, const char *path, struct stat *st, struct td_error *err);

/* Removes the file at `path`, or the empty directory there (AT_REMOVEDIR in flags), as unlinkat does; nothing outside
 * of the root, and of a symlink at the end the link. Returns false, with errno, when it stays. */
bool td_root_remove(const struct td_root *root, const char *path, int flags);

#endif
