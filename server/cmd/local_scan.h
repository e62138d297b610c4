/* One scan of a directory without a server, with a line of progress when it takes long. */
#ifndef TD_SERVER_LOCAL_SCAN_H
#define TD_SERVER_LOCAL_SCAN_H

#include "catalog/snapshot.h"

#include <stdbool.h>

/* Reads all below the directory; one reference on the snapshot for the caller. */
bool td_local_scan(const char *path, struct td_snapshot **snapshot, struct td_error *err);

#endif
