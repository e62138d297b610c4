/* Scans a directory once, without a server. */
#ifndef TD_SERVER_LOCAL_SCAN_H
#define TD_SERVER_LOCAL_SCAN_H

#include "catalog/snapshot.h"

#include <stdbool.h>

/* Reads all checkpoints below the directory, and shows progress on standard error when that takes longer than 1 s. The
 * caller owns one reference on *snapshot. Errors as td_root_create and td_scan. */
bool td_local_scan(const char *path, struct td_snapshot **snapshot, struct td_error *err);

#endif
