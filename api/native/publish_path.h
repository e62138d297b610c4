/* The paths of publishing in the native interface. */
#ifndef TD_API_NATIVE_PUBLISH_PATH_H
#define TD_API_NATIVE_PUBLISH_PATH_H

#include "core/text.h"

#include <stdbool.h>

enum td_publish_place {
    TD_PLACE_NONE,    /* not a path of publishing */
    TD_PLACE_REPO,    /* /models/{id} */
    TD_PLACE_BLOBS,   /* /models/{id}/blobs */
    TD_PLACE_BLOB,    /* /models/{id}/blobs/{digest} */
    TD_PLACE_COMMITS, /* /models/{id}/commits */
    TD_PLACE_FILE,    /* /models/{id}/files/{path} */
};

/* A path below /models or /datasets. Texts are borrowed from the path. */
struct td_publish_path {
    enum td_publish_place place;
    bool is_dataset;
    struct td_text id;   /* one or two segments, not checked */
    struct td_text rest; /* the digest, or the file's path */
};

/* Splits a decoded path. */
void td_publish_path_split(struct td_text path, struct td_publish_path *out);

#endif
