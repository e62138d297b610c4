/* A model's config.json as text, for all its readers: the model's description, the engines, and `tensord plan`. */
#ifndef TD_RANK_CONFIG_TEXT_H
#define TD_RANK_CONFIG_TEXT_H

#include "catalog/catalog.h"

/* Reads the model's config.json. Sets *text to its bytes, without a NUL, which the caller frees with free(), and *len
 * to their number. Without a config.json, sets NULL and 0 and returns true. `maps` is the cache through which the
 * snapshot's files are mapped. Errors: TD_FAILED_PRECONDITION when the file has more than TD_CONFIG_MAX_BYTES or is a
 * Git LFS pointer; TD_UNAVAILABLE when the file changed while it was read; TD_RESOURCE_EXHAUSTED; as
 * td_file_source_map. After an error *text is NULL. */
bool td_model_config_text(struct td_mapping_cache *maps, const struct td_snapshot *snapshot,
                          const struct td_model *model, char **text, size_t *len, struct td_error *err);

#endif
