/* Checkpoints with tensors in other files: ONNX models with external data. Those files may have any name, but must be
 * in the snapshot below the directory of the model; else they count as missing. */
#ifndef TD_CATALOG_MODEL_EXTERNAL_DATA_H
#define TD_CATALOG_MODEL_EXTERNAL_DATA_H

#include "catalog/model/snapshot.h"

/* Lists the files that hold the tensors of `entry`: `entry` first, then the files of its manifest that the snapshot
 * has, in the manifest's order. parts has room for 1 + manifest.file_count. Returns the number of parts. */
size_t td_external_parts(const struct td_snapshot *snapshot, const struct td_entry *entry,
                         const struct td_entry **parts);

/* Joins each tensor of parts[0] with the part that holds it. A tensor gets a reason when its file is not among the
 * parts or is a Git LFS pointer, or when the tensor leaves its file. Returns the joined tensors with one reference for
 * the caller, who keeps the parts' files as long, or NULL: TD_RESOURCE_EXHAUSTED. */
struct td_joined_tensors *td_external_join(const struct td_entry *const *parts, size_t part_count,
                                           struct td_error *err);

/* Returns the most memory, in bytes, that these joined tensors take; 0 when the manifest names no other files. */
uint64_t td_external_join_bytes(const struct td_manifest *manifest);

/* Returns the path of the first file that the manifest of parts[0] names and that is not among the parts; NULL when all
 * are there. The path counts from the directory of parts[0] and is borrowed from the manifest. */
const char *td_external_missing(const struct td_entry *const *parts, size_t part_count);

#endif
