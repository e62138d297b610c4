/* Words that cannot end a model's id, since they follow an id in paths of the native interface. */
#ifndef TD_CATALOG_MODEL_RESERVED_ID_H
#define TD_CATALOG_MODEL_RESERVED_ID_H

#include "core/text.h"

#include <stdbool.h>

/* Returns whether the last segment of the id, which has no '/' at its end, is such a word. */
bool td_id_is_reserved(struct td_text id);

#endif
