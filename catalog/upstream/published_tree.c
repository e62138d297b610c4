#include "catalog/upstream/published_tree.h"

#include "catalog/remote/remote_listing.h"
#include "storage/disk_tree.h"
#include "storage/served_root.h"

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

struct tagging {
    struct td_digest *digest;
    size_t top_len; /* of the top directory's path, which counts as empty */
    dev_t device;
};

/* Adds one item. Returns false for one that cannot be part of a published model. */
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

bool td_published_tree_tag(const char *directory, char tag[TD_TAG_BYTES])
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
