/* The layers of a ModelPack artifact: the files of a view, on disk or virtual. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_LAYERS_H
#define TD_API_OCI_OCI_LAYERS_H

#include "api/oci/oci_call.h"
#include "rank/repo_view.h"

/* A file of a view, whose digest is known. */
struct td_oci_layer {
    const char *path;       /* in the view */
    const char *media_type; /* static */
    const char *sha256;     /* in hexadecimal */
    uint64_t size_bytes;
};

/* Sets *layers, in the call's arena, to all files of the view, of which there are TD_OCI_MOST_FILES at most, sorted by
 * path, after it has had them hashed, where oci->until_ns allows to wait. Keeps the rank files with `made`. Errors as
 * td_oci_know_digests and td_oci_know_virtual; as td_rank_store_get; TD_RESOURCE_EXHAUSTED. */
bool td_oci_layers(struct td_oci_call *oci, const struct td_repo_view *view, struct td_made_documents *made,
                   struct td_oci_layer **layers, size_t *count, struct td_error *err);

#endif
