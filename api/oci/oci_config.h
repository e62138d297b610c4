/* The configuration of a ModelPack artifact (modelpack/model-spec, docs/config.md). Private to api/oci/. */
#ifndef TD_API_OCI_OCI_CONFIG_H
#define TD_API_OCI_OCI_CONFIG_H

#include "core/json_build.h"
#include "rank/repo_about.h"

enum { TD_OCI_SIZE_BYTES = 24 };

/* Begins the configuration of a repository with this id: adds descriptor and config. The caller adds modelfs and ends
 * the object. Holds no time, so that the text follows from the files alone. */
void td_oci_config_begin(struct td_json_builder *json, const struct td_repo_about *about, const char *id);

/* Writes a number of parameters as the specification has it: "6.7B", "0.5K". */
void td_oci_write_size(uint64_t count, char out[TD_OCI_SIZE_BYTES]);

#endif
