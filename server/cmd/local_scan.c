#include "server/cmd/local_scan.h"

#include "catalog/hub_cache.h"
#include "catalog/scan.h"
#include "server/cmd/progress.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static void describe(const void *context, char *text, size_t capacity)
{
    const struct td_scan_progress *scan = context;
    (void)snprintf(text, capacity, "reading, %" PRIu64 " files found, %" PRIu64 " checkpoint files read",
                   atomic_load(&scan->files_found), atomic_load(&scan->files_read));
}

/* A snapshot of a Hugging Face cache consists of symlinks to files beside it, so the scan starts at the folder that
 * holds both. */
bool td_local_scan(const char *path, struct td_snapshot **snapshot, struct td_error *err)
{
    struct td_hub_place place;
    char real_path[PATH_MAX];
    struct td_scan_config config = td_scan_config_default();
    struct td_scan_progress progress = {0};
    struct td_unsettled_list unsettled = {0};
    struct td_root *root = NULL;
    _Atomic bool never = false;
    config.settle_ns = 0;
    if (realpath(path, real_path) != NULL && td_hub_cache_place(real_path, &place))
        config.place = &place;
    struct td_progress line;
    td_progress_start(&line, path, describe, &progress);
    bool ok = td_root_create(config.place == NULL ? path : place.folder, &root, err) &&
              td_scan(root, NULL, NULL, &config, &unsettled, &progress, &never, snapshot, err);
    td_progress_stop(&line);
    td_unsettled_list_fini(&unsettled);
    td_root_unref(root);
    return ok;
}
