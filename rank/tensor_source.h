/* The bytes of a checkpoint's tensors, as single blobs and as the sources of composed answers; and the model's
 * config.json, for its description, the engines and `tensord plan`. */
#ifndef TD_RANK_TENSOR_SOURCE_H
#define TD_RANK_TENSOR_SOURCE_H

#include "catalog/catalog.h"
#include "slicing/rank_file.h"

/* The caches through which the files of tensors are read; borrowed, and outlive the blobs. */
struct td_tensor_caches {
    struct td_mapping_cache *maps;
    struct td_decode_cache *decodes;
};

/* Opens a blob that holds a tensor's bytes, little-endian and in row-major order, from byte *base on; the caller gets
 * one reference. A tensor that is stored in this form gets the mapping of its file; for any other, the blob computes
 * the bytes when it is read. The tensor must be addressable (its manifest gives no `reason`). `cancel`, which is
 * borrowed and must outlive the blob, ends long reads; NULL: nothing ends them. Errors as td_file_source_map;
 * TD_RESOURCE_EXHAUSTED; TD_INTERNAL. */
bool td_tensor_open(struct td_catalog *catalog, const struct td_snapshot *snapshot,
                    const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                    struct td_blob **blob, uint64_t *base, struct td_error *err);

/* Does the same without a catalog. The snapshot must have a root. */
bool td_tensor_open_by(const struct td_tensor_caches *caches, const struct td_snapshot *snapshot,
                       const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                       struct td_blob **blob, uint64_t *base, struct td_error *err);

/* Orders tensors of one checkpoint by their place in the files, so that files are read from the beginning to the end,
 * and a deflated stream is not unpacked from its beginning for each tensor. Returns a number as strcmp does. */
int td_tensor_compare_places(struct td_tensor_ref x, struct td_tensor_ref y);

/* The selected part of a tensor of a checkpoint. All members are borrowed. */
struct td_tensor_slice {
    struct td_catalog *catalog;
    struct td_snapshot *snapshot;
    const struct td_checkpoint *checkpoint;
    size_t number; /* of the tensor, which must be addressable, in the checkpoint */
    const struct td_selection *selection;
    struct td_budget *budget;       /* for the memory that the slice takes; outlives what is opened; NULL: none */
    const struct td_cancel *cancel; /* as in td_tensor_open */
};

/* Opens a blob of the slice's bytes, little-endian and in row-major order; the caller gets one reference. as_file: the
 * blob is a safetensors file of this one tensor, under the tensor's name. The blob holds a reference on the snapshot.
 * Errors as td_plan_from_selection, td_rank_file_create and td_blob_composed; reads fail as td_tensor_open. */
bool td_tensor_slice_open(const struct td_tensor_slice *slice, bool as_file, struct td_blob **blob,
                          struct td_error *err);

/* Returns the checkpoint's tensors as slicing reads them. Borrows the checkpoint. */
struct td_tensor_list td_checkpoint_tensors(const struct td_checkpoint *checkpoint);

/* Reads the model's config.json. Sets *text to its bytes, without a NUL, which the caller frees with free(), and *len
 * to their number. Without a config.json, sets NULL and 0 and returns true. `maps` is the cache through which the
 * snapshot's files are mapped. Errors: TD_FAILED_PRECONDITION when the file has more than TD_CONFIG_MAX_BYTES or is a
 * Git LFS pointer; TD_UNAVAILABLE when the file changed while it was read; TD_RESOURCE_EXHAUSTED; as
 * td_file_source_map. After an error *text is NULL. */
bool td_model_config_text(struct td_mapping_cache *maps, const struct td_snapshot *snapshot,
                          const struct td_model *model, char **text, size_t *len, struct td_error *err);

/* Appends a blob of a rank file's bytes to a body: the header, and the tensors of `checkpoint`, from which the file was
 * planned. The blob holds references on the snapshot and the file. `cancel` as in td_tensor_open. Errors as
 * td_blob_composed; reads fail as td_tensor_open. */
bool td_rank_file_append(struct td_catalog *catalog, struct td_snapshot *snapshot,
                         const struct td_checkpoint *checkpoint, struct td_rank_file *file,
                         const struct td_cancel *cancel, struct td_body *body, struct td_error *err);

#endif
