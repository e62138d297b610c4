#include "catalog/upstream/published_tree.h"

#include "catalog/remote/remote_listing.h"
#include "storage/served_root.h"

#include <errno.h>
#include <fts.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

static int compare_names(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Adds one item. The top directory's own path counts as empty. */
static void add_item(struct td_digest *digest, const FTSENT *item, size_t top_len)
{
    const struct stat *st = item->fts_statp;
    const uint64_t numbers[] = {
        st->st_mode & S_IFMT,
        st->st_ino,
        S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
        (uint64_t)td_file_id_of(st).mtime_ns,
    };
    td_digest_add_cstring(digest, item->fts_path + top_len);
    td_digest_add(digest, numbers, sizeof numbers);
}

/* Returns whether an item may be part of a published model. */
static bool is_fit(const FTSENT *item, dev_t device)
{
    bool is_known =
        item->fts_info == FTS_D || item->fts_info == FTS_F || item->fts_info == FTS_SL || item->fts_info == FTS_DEFAULT;
    return is_known && item->fts_level <= TD_REMOTE_MAX_DEPTH && item->fts_statp->st_dev == device;
}

bool td_published_tree_tag(const char *directory, char tag[TD_TAG_BYTES])
{
    char *const paths[] = {(char *)directory, NULL};
    size_t top_len = strlen(directory);
    struct stat top;
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, compare_names);
    struct td_digest *digest = td_digest_create();
    FTSENT *item;
    bool ok = tree != NULL && digest != NULL && lstat(directory, &top) == 0 && S_ISDIR(top.st_mode);
    while (ok && (item = fts_read(tree)) != NULL) {
        if (item->fts_info == FTS_DP)
            continue;
        ok = is_fit(item, top.st_dev);
        if (ok)
            add_item(digest, item, top_len);
    }
    ok = ok && errno == 0; /* fts_read tells an error from the end by it */
    if (tree != NULL)
        (void)fts_close(tree);
    bool is_done = td_digest_finish(digest, tag);
    if (!ok)
        tag[0] = '\0';
    return ok && is_done;
}
