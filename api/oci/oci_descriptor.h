/* Descriptors: how manifests name bytes (image-spec, descriptor.md). Private to api/oci/. */
#ifndef TD_API_OCI_OCI_DESCRIPTOR_H
#define TD_API_OCI_OCI_DESCRIPTOR_H

#include "catalog/model/snapshot.h"
#include "core/json_build.h"
#include "rank/made_document.h"

/* Begins a descriptor: an object, under this key or in an array (NULL), with mediaType, digest and size. The caller may
 * add members, and ends the object. sha256 is in hexadecimal. */
void td_oci_begin_descriptor(struct td_json_builder *json, const char *key, const char *media_type, const char *sha256,
                             uint64_t size_bytes);

/* Begins a manifest: an object with schemaVersion, mediaType, artifactType (NULL: none), the descriptor of its
 * configuration, and the array "layers". The caller adds the layers, and ends the array and the object. */
void td_oci_begin_manifest(struct td_json_builder *json, const char *media_type, const char *artifact_type,
                           const struct td_made_document *config);

/* Adds a digest as a string, under this key or to an array (NULL). sha256 is in hexadecimal. */
void td_oci_add_sha256(struct td_json_builder *json, const char *key, const char *sha256);

/* Adds an array of the digests of these files, all of which are known. */
void td_oci_add_digests(struct td_json_builder *json, const char *key, const struct td_entry *const *entries,
                        size_t count);

#endif
