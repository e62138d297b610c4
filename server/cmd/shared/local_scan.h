/* Scans a directory once, without a server. */
#ifndef TD_SERVER_CMD_SHARED_LOCAL_SCAN_H
#define TD_SERVER_CMD_SHARED_LOCAL_SCAN_H

#include "catalog/model/hub_cache.h"
#include "catalog/model/snapshot.h"
#include "catalog/sandbox/parse_pool.h"

#include <stdbool.h>

/* Reads all checkpoints below the directory, and shows progress on standard error when that takes longer than 1 s.
 * sandboxed: a process of td_local_parsers parses the files. The caller owns one reference on *snapshot. Errors as
 * td_root_create and td_scan. */
bool td_local_scan(const char *path, bool sandboxed, struct td_snapshot **snapshot, struct td_error *err);

/* Reads one checkpoint file. for_reading: the snapshot has a root, so that the bytes of tensors can be read. sandboxed
 * and *snapshot as above. Errors as td_scan_file_to_read. */
bool td_local_scan_file(const char *path, bool sandboxed, bool for_reading, struct td_snapshot **snapshot,
                        struct td_error *err);

/* Opens a directory as a root. A snapshot of a Hugging Face cache consists of symlinks to files beside it, so for a
 * place in one the root is the folder that holds both, *in_cache is true, and *place is set. The caller owns *root.
 * Errors as td_root_create. */
bool td_local_root(const char *path, struct td_root **root, bool *in_cache, struct td_hub_place *place,
                   struct td_error *err);

/* Returns a pool with one parser process, which the caller destroys. Returns NULL, and warns, when the host does not
 * allow the process; files are then parsed in this process. */
struct td_parse_pool *td_local_parsers(void);

#endif
