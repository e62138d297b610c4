/* A model's config.json as text, for those who read it: the model's description and the engines. */
#ifndef TD_API_CONFIG_TEXT_H
#define TD_API_CONFIG_TEXT_H

#include "catalog/catalog.h"

/* config.json's text (free()) and its length; NULL when the model has none, or one that is too long to be one. False when
 * it cannot be read, or changed meanwhile. */
bool td_model_config_text(struct td_catalog *catalog, const struct td_snapshot *snapshot,
                          const struct td_model *model, char **text, size_t *len, struct td_error *err);

#endif
