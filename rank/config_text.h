/* A model's config.json as text, for all who read it: the model's description, the engines, `tensord plan`. */
#ifndef TD_RANK_CONFIG_TEXT_H
#define TD_RANK_CONFIG_TEXT_H

#include "catalog/catalog.h"

/* config.json's text (free()) and its length; NULL when the model has none. maps: the cache that the snapshot's files
 * are mapped by. Errors: TD_FAILED_PRECONDITION for one of more than TD_CONFIG_MAX_BYTES; TD_UNAVAILABLE when it
 * changed meanwhile; as td_file_source_map. */
bool td_model_config_text(struct td_mapping_cache *maps, const struct td_snapshot *snapshot,
                          const struct td_model *model, char **text, size_t *len, struct td_error *err);

#endif
