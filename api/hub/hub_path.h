/* Paths of the Hub facade, taken apart. Clients quote a revision whole (refs%2Fpr%2F1) or not at all, so the raw path
 * is split first and its segments are decoded then. */
#ifndef TD_API_HUB_HUB_PATH_H
#define TD_API_HUB_HUB_PATH_H

#include "core/error.h"
#include "http/request.h"

#include <stdbool.h>

enum { TD_HUB_MAX_SEGMENTS = 256 };

/* Decoded segments; in memory they are parted by one '/', so neighbours joined are the text from one's beginning to the
 * other's end. */
struct td_hub_path {
    char *memory;
    struct td_text segments[TD_HUB_MAX_SEGMENTS];
    size_t count;
    bool is_folder; /* the path ends in '/' */
};

/* Without memory of its own: the segments point into the raw path, not decoded. Empty segments (// or a '/' at the end)
 * are dropped; the last that there may be has all the rest. */
void td_hub_path_split(struct td_hub_path *path, struct td_text raw_path);

/* Splits and decodes. Errors: TD_INVALID_ARGUMENT (a bad escape, not UTF-8), TD_RESOURCE_EXHAUSTED. Fini in every case.
 */
bool td_hub_path_parse(struct td_hub_path *path, struct td_text raw_path, struct td_error *err);
void td_hub_path_fini(struct td_hub_path *path);

/* Segments [first, end) joined; empty when there are none. */
struct td_text td_hub_path_join(const struct td_hub_path *path, size_t first, size_t end);

#endif
