/* Media types. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_MEDIA_H
#define TD_API_OCI_OCI_MEDIA_H

#include "catalog/model/snapshot.h"

#define TD_OCI_BLOB_TYPE "application/octet-stream"
#define TD_OCI_MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define TD_OCI_INDEX_TYPE "application/vnd.oci.image.index.v1+json"
#define TD_OCI_MODEL_TYPE "application/vnd.cncf.model.manifest.v1+json"
#define TD_OCI_MODEL_CONFIG_TYPE "application/vnd.cncf.model.config.v1+json"
#define TD_OCI_WEIGHT_TYPE "application/vnd.cncf.model.weight.v1.raw"
#define TD_OCI_IMAGE_CONFIG_TYPE "application/vnd.oci.image.config.v1+json"
#define TD_OCI_IMAGE_LAYER_TYPE "application/vnd.oci.image.layer.v1.tar"
#define TD_OCI_DOCKER_MANIFEST_TYPE "application/vnd.docker.distribution.manifest.v2+json"
#define TD_OCI_DOCKER_CONFIG_TYPE "application/vnd.docker.container.image.v1+json"

/* Returns the media type of a file as a layer of a ModelPack artifact, static: weights, configuration of weights,
 * documents, code or data, by the file's name, and by its size where the name says nothing. */
const char *td_oci_layer_type(const struct td_entry *entry);

#endif
