#include "api/oci/oci_descriptor.h"

#include <stdio.h>

enum { DIGEST_BYTES = 7 + TD_SHA256_TEXT_BYTES };

void td_oci_add_sha256(struct td_json_builder *json, const char *key, const char *sha256)
{
    char digest[DIGEST_BYTES];
    (void)snprintf(digest, sizeof digest, "sha256:%s", sha256);
    td_json_add_string(json, key, digest);
}

void td_oci_begin_descriptor(struct td_json_builder *json, const char *key, const char *media_type, const char *sha256,
                             uint64_t size_bytes)
{
    td_json_begin_object(json, key);
    td_json_add_string(json, "mediaType", media_type);
    td_oci_add_sha256(json, "digest", sha256);
    td_json_add_u64(json, "size", size_bytes);
}

void td_oci_begin_manifest(struct td_json_builder *json, const char *media_type, const char *artifact_type,
                           const struct td_made_document *config)
{
    td_json_begin_object(json, NULL);
    td_json_add_u64(json, "schemaVersion", 2);
    td_json_add_string(json, "mediaType", media_type);
    if (artifact_type != NULL)
        td_json_add_string(json, "artifactType", artifact_type);
    td_oci_begin_descriptor(json, "config", config->media_type, config->sha256, config->bytes->len_bytes);
    td_json_end(json);
    td_json_begin_array(json, "layers");
}

void td_oci_add_digests(struct td_json_builder *json, const char *key, const struct td_entry *const *entries,
                        size_t count)
{
    td_json_begin_array(json, key);
    for (size_t i = 0; i < count; i++)
        td_oci_add_sha256(json, NULL, td_file_sha256(entries[i]->file));
    td_json_end(json);
}
