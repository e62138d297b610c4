/* Manifests as documents (core/message/document.h): blobs with one row for each tensor, rendered while they are sent
 * (http/rendered.h). */
#ifndef TD_API_NATIVE_MANIFEST_VIEW_H
#define TD_API_NATIVE_MANIFEST_VIEW_H

#include "api/call/shown_model.h"
#include "catalog/model/snapshot.h"
#include "core/buffer.h"
#include "core/message/document.h"
#include "http/lru.h"
#include "rank/tensor_sums.h"

#include <stdbool.h>
#include <stddef.h>

/* The part of a manifest that a request asks for. Texts are borrowed. */
struct td_manifest_query {
    struct td_shown_model shown;         /* with texts of the snapshot; id NULL: the model's own names */
    const struct td_text *match;         /* a glob over names; NULL: all names */
    const struct td_dtype *dtype;        /* the only data type to show; NULL: all */
    size_t page_size;                    /* number of tensors; 0: all */
    struct td_text after;                /* the end of the page before, from its token; unused with page_first */
    bool page_first;                     /* the page begins with the first tensor */
    struct td_text listing;              /* identifies the listing in page tokens (http/page_token.h) */
    const struct td_document_kind *kind; /* NULL: JSON of REST */
    struct td_tensor_sums *sums; /* the digests of the tensors that it shows, in their order; NULL: it shows none */
};

/* Adds the tensors that the manifest shows to the set, whose source has the snapshot and the checkpoint. The query has
 * no sums yet. Errors as td_tensor_sums_add. */
bool td_manifest_view_collect(const struct td_manifest_query *query, struct td_tensor_sums *sums, struct td_error *err);

/* Creates a blob of the manifest, with one reference for the caller. The blob holds a reference on the snapshot. cache:
 * stores the indexes of whole manifests (td_rendered_index_class), by checkpoint; may be NULL. Takes the digests out of
 * query->sums, which is then empty. One thread at a time may read the blob. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_manifest_view_create(struct td_lru *cache, struct td_snapshot *snapshot, const struct td_model *model,
                             const struct td_checkpoint *checkpoint, const struct td_manifest_query *query,
                             struct td_blob **out, struct td_error *err);

#endif
