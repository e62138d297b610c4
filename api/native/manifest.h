/* Manifests as JSON: blobs whose rows, the tensors, are rendered while they are sent (http/rendered.h). */
#ifndef TD_API_NATIVE_MANIFEST_H
#define TD_API_NATIVE_MANIFEST_H

#include "catalog/snapshot.h"
#include "core/buffer.h"
#include "http/lru.h"
#include "storage/blob.h"

#include <stdbool.h>
#include <stddef.h>

/* The part of a manifest that a request asks for. Texts are borrowed. */
struct td_manifest_query {
    const struct td_text *match;  /* glob over names, or NULL */
    const struct td_dtype *dtype; /* only these, or NULL */
    size_t page_size;             /* tensors; 0 = all */
    struct td_text after;         /* continue after this name; len 0 with page_first = from the start */
    bool page_first;
    struct td_text listing; /* names the listing in page tokens */
};

/* Makes a blob of the manifest, one reference for the caller. The blob holds a reference on the snapshot. cache: where
 * the indexes of whole manifests are kept (td_rendered_index_class), by checkpoint; may be NULL. One thread at a time
 * may read the blob. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_manifest_view_create(struct td_lru *cache, struct td_snapshot *snapshot, const struct td_model *model,
                             const struct td_checkpoint *checkpoint, const struct td_manifest_query *query,
                             struct td_blob **out, struct td_error *err);

/* A tensor's path in the interface: /models/{id}/tensors/{name}[?checkpoint=]. */
void td_manifest_write_href(struct td_buffer *out, const struct td_model *model, const struct td_checkpoint *checkpoint,
                            const struct td_tensor *tensor);

/* A shape as JSON: [2,3]; and strides, which are there. */
void td_manifest_write_shape(struct td_buffer *out, const struct td_tensor *tensor);
void td_manifest_write_strides(struct td_buffer *out, const struct td_tensor *tensor);

#endif
