/* The SHA-256 of a model's tensors as a tensord states them: in a manifest, or in the description of a rank's file
 * (docs/files.md, "Digests of tensors"), from a server or from a file with such an answer. Hostile JSON. */
#ifndef TD_CATALOG_REMOTE_REMOTE_DIGESTS_H
#define TD_CATALOG_REMOTE_REMOTE_DIGESTS_H

#include "core/arena.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/fetch/fetch_session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_REMOTE_MAX_DIGEST_PAGES = 16384,               /* of a manifest, of 1,000 tensors each */
    TD_REMOTE_MAX_DIGEST_PAGE = 256 * 1024 * 1024,    /* bytes of one page, or of the description of a rank's file */
    TD_REMOTE_MAX_DIGESTS_BYTES = 1024 * 1024 * 1024, /* memory of a list */
    TD_REMOTE_MAX_DIMENSIONS = 64,                    /* of a tensor's shape */
};

/* A tensor. The texts are in the list's arena. */
struct td_remote_tensor {
    const char *name;
    const char *dtype; /* such as "BF16" */
    const char *shape; /* as JSON without spaces: "[2,3]" */
    uint64_t nbytes;
    bool has_sha256; /* false: the tensor's bytes cannot be served, or digests were not asked for */
    uint8_t sha256[TD_SHA256_BYTES];
};

struct td_remote_digests {
    struct td_arena arena;
    struct td_remote_tensor *items; /* sorted by name, and names unique; in the arena */
    size_t count, capacity;
    bool is_selection;   /* the answer was to have those tensors alone that a pattern or a type selects */
    const char *version; /* the version of the model, if one was asked for; else NULL */
    const char *tag;     /* of the whole manifest or file: equal tags mean equal tensors */
    size_t server;       /* that answered */
};

/* A request for digests. All texts are borrowed. */
struct td_remote_digests_query {
    const char *id;                 /* of the model */
    const char *version;            /* NULL: of the model itself */
    const char *checkpoint, *match; /* as the parameters of a manifest; NULL: not given */
    const char *engine;             /* those of a rank's file; NULL: those of the checkpoint */
    uint64_t tp_size, rank;         /* with engine */
};

void td_remote_digests_init(struct td_remote_digests *digests);
void td_remote_digests_fini(struct td_remote_digests *digests);

/* Reads an answer that is a whole list, as a file may hold it, into the empty list. Errors: TD_INVALID_ARGUMENT with
 * the position for JSON or members that are wrong, for two tensors of one name, and for one page of a longer list;
 * TD_FAILED_PRECONDITION past a limit; TD_RESOURCE_EXHAUSTED. */
bool td_remote_digests_read(struct td_remote_digests *digests, struct td_text answer, struct td_error *err);

/* Gets the digests from the servers into the empty list: from the first one that has the model. Waits while a server
 * hashes the tensors, as long as more of them are hashed from one answer to the next. Reads the list again when the
 * model has changed between two pages. Errors: TD_NOT_FOUND when no server has what was asked for; TD_PERMISSION_DENIED
 * for 401 and 403; TD_FAILED_PRECONDITION for a server that is no tensord, for a model that changes again and again,
 * for lists past the bounds and for other permanent failures; as td_remote_digests_read and td_fetch_session_get. */
bool td_remote_digests_get(struct td_fetch_session *session, const struct td_remote_digests_query *query,
                           struct td_remote_digests *digests, struct td_error *err);

/* Returns the tensor of this name, or NULL. */
struct td_remote_tensor *td_remote_digests_find(const struct td_remote_digests *digests, const char *name);

#endif
