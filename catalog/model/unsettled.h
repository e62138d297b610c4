/* Unsettled files: files that scans have seen but not yet published, and since when. The list is carried from scan to
 * scan. */
#ifndef TD_CATALOG_MODEL_UNSETTLED_H
#define TD_CATALOG_MODEL_UNSETTLED_H

#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_unsettled {
    char *path;             /* as clients will know it; owned */
    struct td_file_id id;   /* as last seen */
    uint64_t first_seen_ns; /* monotonic time since which the identity is the same */
    bool half_changed;      /* its size changed without its mtime: a truncation that was seen half-way */
    bool has_arrived;       /* came by a rename, so that it is complete as long as its identity is the same */
};

struct td_unsettled_list {
    struct td_unsettled *items; /* sorted by path */
    size_t count, capacity;
};

/* Frees the items and empties the list. */
void td_unsettled_list_fini(struct td_unsettled_list *list);

/* Returns the file at this path, or NULL. */
const struct td_unsettled *td_unsettled_find(const struct td_unsettled_list *list, const char *path);

/* Appends *file with a copy of `path`, which must sort behind all others. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_unsettled_add(struct td_unsettled_list *list, const struct td_unsettled *file, const char *path,
                      struct td_error *err);

#endif
