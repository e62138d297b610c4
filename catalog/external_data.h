/* Checkpoints whose tensors lie in files beside the one that describes them: ONNX models with external data. The other
 * files are any files of the snapshot, whatever their names; what is not in it is not there. */
#ifndef TD_CATALOG_EXTERNAL_DATA_H
#define TD_CATALOG_EXTERNAL_DATA_H

#include "catalog/snapshot.h"

/* The files that hold the tensors of `entry`, itself first, then those of its manifest's that the snapshot has, in
 * their order. parts has room for 1 + manifest.file_count. Returns how many there are. */
size_t td_external_parts(const struct td_snapshot *snapshot, const struct td_entry *entry,
                         const struct td_entry **parts);

/* The tensors of parts[0], each with the part that it lies in. A tensor has a reason when its file is not among
 * the parts or is a Git LFS pointer, or when the tensor leaves its file. One reference is the caller's, who keeps the
 * parts' files as long. NULL is TD_RESOURCE_EXHAUSTED. */
struct td_joined_tensors *td_external_join(const struct td_entry *const *parts, size_t part_count,
                                           struct td_error *err);

/* What that takes at most; 0 where the manifest names no other files. */
uint64_t td_external_join_bytes(const struct td_manifest *manifest);

/* The first file that the manifest of parts[0] names and that is not among the parts; NULL when all are there. */
const char *td_external_missing(const struct td_entry *const *parts, size_t part_count);

#endif
