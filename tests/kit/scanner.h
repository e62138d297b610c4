/* Scans of a tree, one after the other, without a catalog or a thread. */
#ifndef TD_TESTS_KIT_SCANNER_H
#define TD_TESTS_KIT_SCANNER_H

#include "catalog/scan/scan.h"
#include "tests/kit/tree.h"

struct scanner {
    struct td_root *root;
    struct td_mapping_cache maps;
    struct td_scan_config config; /* settling is off */
    struct td_unsettled_list unsettled;
    struct td_scan_progress progress;
    _Atomic bool stop;
    struct td_snapshot *snapshot; /* of the last good scan */
};

void scanner_open(struct scanner *scanner, const struct tree *tree);
void scanner_close(struct scanner *scanner);

/* Scans the tree. The scan reuses the last snapshot; on success the new snapshot replaces the last one, which frees its
 * models and entries. Errors as td_scan. */
bool scanner_try(struct scanner *scanner, struct td_error *err);

/* Does the same; the scan must succeed. */
const struct td_snapshot *scanner_scan(struct scanner *scanner);

/* Return a model and an entry of the last snapshot, or NULL. Valid until the next scan. */
const struct td_model *scanner_model(const struct scanner *scanner, const char *id);
const struct td_entry *scanner_entry(const struct scanner *scanner, const char *path);

/* Returns the message about a path below the model, or NULL. model NULL: searches the snapshot's own list. */
const char *scanner_problem(const struct scanner *scanner, const struct td_model *model, const char *path);

#endif
