/* Paths of files in a model, by one rule: what a client publishes, another one can fetch. Pure. */
#ifndef TD_STORAGE_FETCH_FETCH_PATH_H
#define TD_STORAGE_FETCH_FETCH_PATH_H

#include "core/text.h"

#include <stdbool.h>

enum {
    TD_FETCH_PATH_BYTES = 1024, /* of the longest path, without a NUL */
    TD_FETCH_PATH_PARTS = 32,   /* names between slashes */
};

/* Returns why the path cannot be that of a file, as the rest of a sentence ("has an empty part"); NULL when it can:
 * relative, UTF-8 without control characters and backslashes, within the bounds above, and no part is empty, ".", ".."
 * or longer than TD_FETCH_NAME_BYTES. refuse_part: returns further faults of a part (1 to TD_FETCH_NAME_BYTES bytes),
 * or NULL. The text is static. */
const char *td_fetch_path_fault(struct td_text path, const char *(*refuse_part)(struct td_text part));

#endif
