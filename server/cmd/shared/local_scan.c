#include "server/cmd/shared/local_scan.h"

#include "catalog/scan/scan.h"
#include "server/cmd/shared/progress.h"
#include "server/host/terminal.h"

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

struct td_parse_pool *td_local_parsers(void)
{
    const struct td_parse_pool_config config = td_parse_pool_config_default();
    struct td_parse_pool *parsers = NULL;
    struct td_error err = TD_ERROR_INIT;
    if (!td_parse_pool_create(&config, &parsers, &err))
        td_terminal_complain("files are parsed without a sandbox: %s", err.message);
    return parsers;
}

bool td_local_root(const char *path, struct td_root **root, bool *in_cache, struct td_hub_place *place,
                   struct td_error *err)
{
    char real_path[PATH_MAX];
    *in_cache = realpath(path, real_path) != NULL && td_hub_cache_place(real_path, place);
    return td_root_create(*in_cache ? place->folder : path, root, err);
}

bool td_local_scan(const char *path, bool sandboxed, struct td_snapshot **snapshot, struct td_error *err)
{
    struct td_hub_place place;
    bool in_cache = false;
    struct td_scan_config config = td_scan_config_default();
    struct td_scan_progress progress = {0};
    struct td_unsettled_list unsettled = {0};
    struct td_root *root = NULL;
    _Atomic bool never = false;
    config.settle_ns = 0;
    config.parsers = sandboxed ? td_local_parsers() : NULL;
    struct td_progress line;
    td_progress_start(&line, path, describe, &progress);
    bool ok = td_local_root(path, &root, &in_cache, &place, err);
    config.place = in_cache ? &place : NULL;
    ok = ok && td_scan(root, NULL, NULL, &config, &unsettled, &progress, &never, snapshot, err);
    td_progress_stop(&line);
    td_unsettled_list_fini(&unsettled);
    td_root_unref(root);
    td_parse_pool_destroy(config.parsers);
    return ok;
}

bool td_local_scan_file(const char *path, bool sandboxed, bool for_reading, struct td_snapshot **snapshot,
                        struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    struct td_parse_pool *parsers = sandboxed ? td_local_parsers() : NULL;
    bool ok = for_reading ? td_scan_file_to_read(path, &limits, parsers, snapshot, err)
                          : td_scan_file(path, &limits, parsers, snapshot, err);
    td_parse_pool_destroy(parsers);
    return ok;
}
