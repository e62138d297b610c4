/* Blobs of files that are open only while they are read: for answers that are made of many files, since each open file
 * takes a descriptor and a mapping, and a process has few of them. */
#ifndef TD_CATALOG_MODEL_LATE_FILE_H
#define TD_CATALOG_MODEL_LATE_FILE_H

#include "catalog/model/snapshot.h"
#include "storage/blob.h"

/* Makes a generated blob over a file of this root, with one reference for the caller. Takes references on the root and
 * on the file; the cache is borrowed and must outlive the blob. Each read opens the file through the cache, and fails
 * as td_file_source_map; it fails with TD_UNAVAILABLE when the file changed while it was read, so what has been read
 * never changes afterwards. Any number of threads may read the blob. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_late_file(struct td_mapping_cache *maps, struct td_root *root, struct td_file *file, struct td_blob **out,
                  struct td_error *err);

#endif
