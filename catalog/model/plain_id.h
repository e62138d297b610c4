/* Ids and paths without the commit of a Hugging Face cache.
 *
 * A cache's commit has the id org/name while it is the one that the server shows by that id, and org/name@commit when
 * another one is. Its content does not change then, and neither do tags that are made of plain ids and paths. */
#ifndef TD_CATALOG_MODEL_PLAIN_ID_H
#define TD_CATALOG_MODEL_PLAIN_ID_H

#include "catalog/model/snapshot.h"

/* Two texts that make a plain path together: of org/name@commit/unet these are org/name and /unet. Both are borrowed;
 * the second one may be empty. */
struct td_plain_path {
    struct td_text before, after;
};

/* Returns a path without the commit of the model's cache. `path` is the model's id, or the path of a file. */
struct td_plain_path td_plain_path(const struct td_model *model, const char *path);

/* Adds a path without the commit of the model's cache to a digest, as td_digest_add_cstring adds a string. */
void td_plain_path_digest(const struct td_model *model, const char *path, struct td_digest *digest);

#endif
