/* A model's config.json as text, for all its readers: the model's description, the engines, and `tensord plan`. */
#ifndef TD_RANK_CONFIG_TEXT_H
#define TD_RANK_CONFIG_TEXT_H

#include "catalog/catalog.h"

/* Reads the model's config.json. Sets *text to its bytes, which the caller frees, and *len to their number; sets NULL
 * and 0, and returns true, when the model has no config.json. `maps` is the cache through which the snapshot's files
 * are mapped. Errors: TD_FAILED_PRECONDITION when it has more than TD_CONFIG_MAX_BYTES or is a Git LFS pointer;
 * TD_UNAVAILABLE when it changed meanwhile; TD_RESOURCE_EXHAUSTED; as td_file_source_map. */
bool td_model_config_text(struct td_mapping_cache *maps, const struct td_snapshot *snapshot,
                          const struct td_model *model, char **text, size_t *len, struct td_error *err);

#endif
