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
 * If two titles are equal, each of them that replaces a '/' gets a prefix: the first 16 hexadecimal digits of the
 * SHA-256 of its path, and '-'. A title of more than 255 bytes, the longest file name on Linux, gets the same prefix
 * and is cut at its beginning. Takes n log n time. Errors: TD_FAILED_PRECONDITION when titles are still equal, which
 * happens only if somebody chose a file's name to cause it; TD_RESOURCE_EXHAUSTED. */
bool td_oci_flat_titles(const char *const *paths, size_t count, struct td_arena *arena, const char ***titles,
                        struct td_error *err);

/* Builds the manifest and the configuration of a view of files on disk. Each file is a layer. The bytes depend on paths
 * and contents alone, so every server with these files builds the same documents. Errors as td_oci_know_digests and
 * td_oci_flat_titles; TD_FAILED_PRECONDITION for a manifest of more than TD_OCI_MANIFEST_MAX bytes;
 * TD_RESOURCE_EXHAUSTED. */
bool td_oci_artifact_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                          struct td_made_documents *made, struct td_error *err);

#endif
