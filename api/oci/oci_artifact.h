/* The ModelPack artifact of a repository (modelpack/model-spec, docs/spec.md and docs/config.md): its layers, their
 * titles, its manifest and configuration. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_ARTIFACT_H
#define TD_API_OCI_OCI_ARTIFACT_H

#include "api/oci/oci_call.h"
#include "api/oci/oci_target.h"
#include "core/arena.h"
#include "core/error.h"
#include "rank/repo_view.h"

/* Sets *titles, in the arena, to a title for each of these paths, which all differ: the path with "--" for each '/'.
 * Where titles meet, those that were changed get the first 16 hexadecimal digits of the SHA-256 of the path and '-'
 * before them. So do titles of more than 255 bytes, the longest name of a file on Linux, and lose their beginnings.
 * Takes n log n time. Errors: TD_FAILED_PRECONDITION when titles still meet, which takes a file whose name was chosen
 * to that end; TD_RESOURCE_EXHAUSTED. */
bool td_oci_flat_titles(const char *const *paths, size_t count, struct td_arena *arena, const char ***titles,
                        struct td_error *err);

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

/* Makes manifest and configuration of a view of files on disk: each file is a layer. The bytes follow from paths and
 * contents alone, so every server with these files makes the same. Errors as td_oci_know_digests and
 * td_oci_flat_titles; TD_FAILED_PRECONDITION for a manifest of more than TD_OCI_MANIFEST_MAX bytes;
 * TD_RESOURCE_EXHAUSTED. */
bool td_oci_artifact_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                          struct td_made_documents *made, struct td_error *err);

#endif
