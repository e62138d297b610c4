#include "storage/disk_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool fail_list(const char *shown, int sys, struct td_error *err)
{
    bool is_short = sys == ENOMEM || sys == EMFILE || sys == ENFILE;
    return td_error_sys(err, is_short ? TD_RESOURCE_EXHAUSTED : TD_IO, sys, "cannot list \"%.300s\"", shown);
}

bool td_disk_list(int fd, const char *shown,
                  bool (*visit)(void *context, int at, const char *name, struct td_error *err), void *context,
                  struct td_error *err)
{
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int sys = errno;
        if (fd >= 0)
            (void)close(fd);
        return fail_list(shown, sys, err);
    }
    bool ok = true;
    const struct dirent *item = NULL;
    errno = 0;
    while (ok && (item = readdir(directory)) != NULL) { // NOLINT(concurrency-mt-unsafe): one thread uses it
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            ok = visit(context, fd, item->d_name, err);
        errno = 0;
    }
    if (ok && errno != 0)
        ok = fail_list(shown, errno, err);
    (void)closedir(directory);
    return ok;
}

/* Returns whether the item could not be looked at: then it has no state, or what is in it is not known. */
static bool has_failed(const FTSENT *item)
{
    return item->fts_info == FTS_ERR || item->fts_info == FTS_DNR || item->fts_info == FTS_NS;
}

static int compare_names(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

bool td_disk_tree_visit(const char *path, bool (*visit)(void *context, const FTSENT *item), void *context)
{
    char *const paths[] = {(char *)(uintptr_t)path, NULL}; /* which fts only reads */
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, compare_names);
    FTSENT *item;
    bool ok = tree != NULL;
    while (ok && (item = fts_read(tree)) != NULL) {
        if (has_failed(item)) {
            errno = item->fts_errno;
            ok = false;
        } else {
            ok = visit(context, item);
        }
    }
    ok = ok && errno == 0; /* fts_read sets errno on an error, not at the end */
    int sys = errno;
    if (tree != NULL)
        (void)fts_close(tree);
    errno = sys;
    return ok;
}

static bool remove_item(void *context, const FTSENT *item)
{
    (void)context;
    int flags = item->fts_info == FTS_DP ? AT_REMOVEDIR : 0;
    return item->fts_info == FTS_D || unlinkat(AT_FDCWD, item->fts_path, flags) == 0 || errno == ENOENT;
}

bool td_disk_tree_remove(const char *path)
{
    return td_disk_tree_visit(path, remove_item, NULL);
}

static bool add_blocks(void *context, const FTSENT *item)
{
    uint64_t *bytes = context;
    *bytes += item->fts_info == FTS_F ? (uint64_t)item->fts_statp->st_blocks * 512 : 0;
    return true;
}

uint64_t td_disk_tree_bytes(const char *path)
{
    uint64_t bytes = 0;
    (void)td_disk_tree_visit(path, add_blocks, &bytes);
    return bytes;
}
