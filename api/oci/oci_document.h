/* Documents of the registry: media types, the writing of manifests and configurations, the descriptors by which they
 * name bytes (image-spec, descriptor.md), and the configuration of a ModelPack artifact (modelpack/model-spec,
 * docs/config.md). Private to api/oci/. */
#ifndef TD_API_OCI_OCI_DOCUMENT_H
#define TD_API_OCI_OCI_DOCUMENT_H

#include "catalog/model/snapshot.h"
#include "core/message/document.h"
#include "rank/made_document.h"
#include "rank/repo_about.h"

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

/* Returns the media type (static) of a file as a layer of a ModelPack artifact: weights, configuration of weights,
 * documents, code or data. The file's name decides; if it says nothing, the size does. */
const char *td_oci_layer_type(const struct td_entry *entry);

/* A document that is being written. */
struct td_oci_document {
    struct td_buffer text;
    struct td_document json;
};

/* Starts a document. Returns its JSON builder, valid until td_oci_end_document, which the caller must call. */
struct td_document *td_oci_begin_document(struct td_oci_document *document);

/* Ends a document and adds it to `made`. The caller has ended all of its JSON levels. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_end_document(struct td_oci_document *document, struct td_made_documents *made, const char *media_type,
                         bool is_manifest, struct td_error *err);

/* Starts a descriptor: an object, under this key or in an array (NULL), with mediaType, digest and size. The caller may
 * add members and must end the object. sha256 is in hexadecimal. */
void td_oci_begin_descriptor(struct td_document *json, const char *key, const char *media_type, const char *sha256,
                             uint64_t size_bytes);

/* Starts a manifest: an object with schemaVersion, mediaType, artifactType (unless NULL), the descriptor of its
 * configuration, and the array "layers". The caller adds the layers and ends the array and the object. */
void td_oci_begin_manifest(struct td_document *json, const char *media_type, const char *artifact_type,
                           const struct td_made_document *config);

/* Adds a digest as a string, under this key or to an array (NULL). sha256 is in hexadecimal. */
void td_oci_add_sha256(struct td_document *json, const char *key, const char *sha256);

enum { TD_OCI_SIZE_BYTES = 24 };

/* Starts the configuration of a repository with this id: adds descriptor and config. The caller adds modelfs and ends
 * the object. The configuration contains no time, so its text depends on the files alone. */
void td_oci_config_begin(struct td_document *json, const struct td_repo_about *about, const char *id);

/* Writes a number of parameters in the form of the specification: "6.7B", "0.5K". */
void td_oci_write_size(uint64_t count, char out[TD_OCI_SIZE_BYTES]);

#endif
