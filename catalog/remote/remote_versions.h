/* The list of a model's versions on a remote tensord, GET /models/{id}/versions: hostile JSON and hostile names. */
#ifndef TD_CATALOG_REMOTE_REMOTE_VERSIONS_H
#define TD_CATALOG_REMOTE_REMOTE_VERSIONS_H

#include "core/arena.h"
#include "core/budget.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/fetch/fetch_session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_REMOTE_VERSION_BYTES = 200,                   /* of the longest name, without a NUL */
    TD_REMOTE_MAX_VERSION_PAGES = 4096,              /* of a list */
    TD_REMOTE_MAX_VERSIONS_BYTES = 64 * 1024 * 1024, /* memory of a list */
};

/* A version. The texts are in the list's arena. */
struct td_remote_version {
    const char *name; /* by td_remote_version_check */
    const char *base; /* of a delta: the version that it changes, or any other text; NULL: not known */
    bool is_delta;
    bool has_number;
    uint64_t number;         /* 0 without one */
    const char *commit;      /* of a version in a Hugging Face cache: the folder of its snapshot; else NULL */
    const char *const *refs; /* of such a version: the refs to it */
    size_t ref_count;
    uint64_t total_bytes, file_bytes;
    int64_t updated_ns; /* when its newest file changed, since 1970; 0: not known */
};

struct td_remote_versions {
    struct td_arena arena;
    struct td_remote_version *items; /* in the order of the list, the oldest first; in the arena */
    size_t count, capacity;
    const char *latest;            /* the newest one that is whole and served without an error; NULL: none */
    char tag[TD_FETCH_ETAG_BYTES]; /* of the list, without quotes; empty: the server sent none */
    size_t server;                 /* that answered; the next list is asked from it first */
};

/* A request for a list. */
struct td_remote_versions_query {
    const char *id; /* of the model, by td_remote_id_check */
    bool waits;     /* until the list has another tag than `tag`, or the model exists if `tag` is empty */
    const char *tag;
    unsigned timeout_s;       /* the longest wait */
    bool all;                 /* all versions; else `latest` alone, and no items */
    struct td_budget *budget; /* of the memory of this list and of a page that is read, beside the list's own bound;
                                 borrowed, and the list holds a share until td_remote_versions_fini; NULL: no budget */
};

void td_remote_versions_init(struct td_remote_versions *versions);
void td_remote_versions_fini(struct td_remote_versions *versions);

/* Returns whether the name of a version can be that of a directory and of a revision: at most TD_REMOTE_VERSION_BYTES
 * bytes, one part of a path by td_remote_path_check, not beginning with '.' or '-', and not "latest". Otherwise sets
 * the error. Errors: TD_INVALID_ARGUMENT. */
bool td_remote_version_check(struct td_text name, struct td_error *err);

/* Gets the list. Sets *has_changed to false, and leaves *versions as they are, when the list still has the tag after
 * the wait. Else replaces *versions, which td_remote_versions_init has prepared. A server that has no such model is
 * followed by the next one. Errors: TD_NOT_FOUND when no server has the model; TD_PERMISSION_DENIED for 401 and 403;
 * TD_FAILED_PRECONDITION for other permanent failures and lists past the bounds; TD_INVALID_ARGUMENT for a wrong list
 * or a name that td_remote_version_check refuses; TD_RESOURCE_EXHAUSTED; as td_fetch_session_get. After an error
 * *versions are as they were. */
bool td_remote_versions_get(struct td_fetch_session *session, const struct td_remote_versions_query *query,
                            struct td_remote_versions *versions, bool *has_changed, struct td_error *err);

#endif
