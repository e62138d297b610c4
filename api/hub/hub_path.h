/* The segments of paths of the Hub facade. Clients quote a revision whole (refs%2Fpr%2F1) or not at all, so the raw
 * path is split first, and its segments are decoded afterwards. */
#ifndef TD_API_HUB_HUB_PATH_H
#define TD_API_HUB_HUB_PATH_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>

enum { TD_HUB_MAX_SEGMENTS = 256 };

/* The segments of a path. In memory one '/' stands between two of them, so joined neighbours are one stretch of text.
 */
struct td_hub_path {
    char *memory; /* of the decoded segments, owned; NULL after td_hub_path_split */
    struct td_text segments[TD_HUB_MAX_SEGMENTS];
    size_t count;
    bool is_folder; /* the path ends in '/' */
};

/* Splits a path without decoding it or allocating memory: the segments point into the raw path. Drops empty segments
 * (// or a '/' at the end). A path of more than TD_HUB_MAX_SEGMENTS has the rest in its last segment. */
void td_hub_path_split(struct td_hub_path *path, struct td_text raw_path);

/* Splits and decodes. Errors: TD_INVALID_ARGUMENT (a bad escape, not UTF-8), TD_RESOURCE_EXHAUSTED. Call
 * td_hub_path_fini in every case. */
bool td_hub_path_parse(struct td_hub_path *path, struct td_text raw_path, struct td_error *err);
void td_hub_path_fini(struct td_hub_path *path);

/* Returns the parsed segments first to end - 1, joined by '/'; borrowed from the path; empty when first >= end. */
struct td_text td_hub_path_join(const struct td_hub_path *path, size_t first, size_t end);

#endif
