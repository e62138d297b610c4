/* The served root: the one directory below which files may be opened. Every open goes through openat2 with
 * RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS (Linux 5.6), so no name, symlink or race leads outside. */
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
    char *real_path; /* resolved, to recognise absolute symlinks that stay inside */
    uint64_t device, inode;
};

/* Which bytes a path stood for when it was looked at. Two equal identities mean unchanged content, provided the
 * file's mtime was not within one clock tick of the look (see the catalog's settling). */
struct td_file_id {
    uint64_t device, inode;
    uint64_t size_bytes;
    int64_t mtime_ns, ctime_ns; /* since 1970 */
};

struct td_file_id td_file_id_of(const struct stat *st);
bool td_file_id_equal(const struct td_file_id *a, const struct td_file_id *b);

/* Opens the directory at path. Result has one reference. Errors: TD_NOT_FOUND, TD_PERMISSION_DENIED,
 * TD_FAILED_PRECONDITION (not a directory, or a kernel without openat2), TD_IO. */
bool td_root_create(const char *path, struct td_root **out, struct td_error *err);
struct td_root *td_root_ref(struct td_root *root);
void td_root_unref(struct td_root *root);

/* Opens the regular file at `path` (relative to the root, no leading '/') for reading, following symlinks that
 * stay inside. Never blocks on a FIFO and never opens a device. *fd is the caller's to close; *id is from its
 * fstat. Errors: TD_NOT_FOUND; TD_PERMISSION_DENIED (leads outside the root, or no right);
 * TD_FAILED_PRECONDITION (not a regular file); TD_RESOURCE_EXHAUSTED (descriptors); TD_IO. */
bool td_root_open_file(const struct td_root *root, const char *path, int *fd, struct td_file_id *id,
                       struct td_error *err);

/* Opens the directory at `path` ("" is the root itself) for listing. */
bool td_root_open_directory(const struct td_root *root, const char *path, int *fd, struct td_error *err);

/* The last component of what the symlink at `path` points to: the name of a blob in a Hugging Face cache. False when it
 * is no symlink, or longer than capacity - 1. */
bool td_root_link_name(const struct td_root *root, const char *path, char *name, size_t capacity);

/* fstat of what `path` leads to, symlinks followed within the root, nothing opened for reading. */
bool td_root_stat(const struct td_root *root, const char *path, struct stat *st, struct td_error *err);

#endif
