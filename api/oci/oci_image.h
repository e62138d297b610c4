/* The image of a repository: its files at the root of a file system, for container runtimes, which mount it or use it
 * as a volume. It contains nothing to run. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_IMAGE_H
#define TD_API_OCI_OCI_IMAGE_H

#include "api/oci/oci_target.h"
#include "rank/repo_view.h"

enum {
    /* The most layers of an image. Docker Engine takes 125 (daemon, layer: "max depth exceeded"), overlayfs 500. */
    TD_OCI_IMAGE_LAYERS = 100,
    /* The most bytes of the tar headers of an image, which an answer has in memory. Headers hold paths, and the paths
     * of many deep directories can be longer than the files. */
    TD_OCI_IMAGE_HEADER_BYTES = 32 * 1024 * 1024,
};

/* Builds an index, and for each of linux/amd64 and linux/arm64 a manifest and a configuration (image-spec) over the
 * same layers. Each file is a layer (rank/tar_layer.h); if there are more files than TD_OCI_IMAGE_LAYERS, consecutive
 * files share layers. The bytes depend on paths and contents alone. Errors as td_oci_know_digests, td_oci_know_virtual
 * and td_tar_path_check; TD_FAILED_PRECONDITION for more than TD_OCI_MOST_FILES files, and for paths so long that
 * headers may pass TD_OCI_IMAGE_HEADER_BYTES; TD_RESOURCE_EXHAUSTED. */
bool td_oci_image_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                       struct td_made_documents *made, struct td_error *err);

/* Answers the layer of the repository's image with this SHA-256, in hexadecimal. kept: the documents of that image;
 * NULL: not built yet, so the layer is looked up in the table of virtual digests. Returns false, with no answer, when
 * no layer is known to have it; *err then is TD_OK. Does not wait for digests. Errors: of files that cannot be opened;
 * TD_RESOURCE_EXHAUSTED. */
bool td_oci_image_answer_layer(struct td_oci_call *oci, const struct td_made_documents *kept, struct td_text sha256,
                               struct td_error *err);

#endif
