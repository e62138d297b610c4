/* The ModelPack artifact of a repository (modelpack/model-spec, docs/spec.md and docs/config.md). Private to api/oci/.
 */
#ifndef TD_API_OCI_OCI_ARTIFACT_H
#define TD_API_OCI_OCI_ARTIFACT_H

#include "api/oci/oci_target.h"
#include "rank/repo_view.h"

/* Makes manifest and configuration of a view of files on disk: each file is a layer. The bytes follow from paths and
 * contents alone, so every server with these files makes the same. Errors as td_oci_know_digests and
 * td_oci_flat_titles; TD_FAILED_PRECONDITION for a manifest of more than TD_OCI_MANIFEST_MAX bytes;
 * TD_RESOURCE_EXHAUSTED. */
bool td_oci_artifact_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                          struct td_made_documents *made, struct td_error *err);

#endif
