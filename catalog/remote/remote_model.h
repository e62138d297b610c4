/* Lists and fetches the files of a model by the interface of the Hugging Face Hub, which tensord offers too. */
#ifndef TD_CATALOG_REMOTE_REMOTE_MODEL_H
#define TD_CATALOG_REMOTE_REMOTE_MODEL_H

#include "catalog/remote/remote_listing.h"
#include "core/buffer.h"
#include "storage/fetch/fetch_session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_REMOTE_REVISION_BYTES = 256 }; /* of the longest name, with a NUL */

/* Bounds on the list of a model's files, over all of its pages, from one server. */
struct td_remote_bounds {
    uint64_t time_ns;
    uint64_t bytes;
    size_t items; /* files and directories */
};

struct td_remote_model {
    struct td_remote_bounds bounds; /* td_remote_model_init sets them to the ones that docs/pull.md lists */
    struct td_remote_listing listing;
    size_t server;                           /* that listed the files */
    bool is_tensord;                         /* by that server's /version; else it is a Hub */
    bool is_newest;                          /* the revision is only the newest version of a folder of versions, which
                                                is no model itself */
    char commit[72];                         /* hexadecimal digits, of the revision as it was listed */
    char revision[TD_REMOTE_REVISION_BYTES]; /* used to ask for files. For one Hub the commit, so that all files are of
                                                one state; for a tensord or several servers the name, since a tensord's
                                                commits differ from those of other servers */
};

/* The known kinds of a client's servers. A caller that lists many models keeps them for a while. All zeros: no kind is
 * known. */
struct td_remote_kinds {
    bool known[TD_FETCH_MAX_SERVERS];
    bool is_tensord[TD_FETCH_MAX_SERVERS];
};

/* Returns whether the id can be that of a model: "name" or "org/name" of letters, digits and "-._", no component that
 * begins with a dot, at most 96 bytes each. Errors: TD_INVALID_ARGUMENT. */
bool td_remote_id_check(struct td_text id, struct td_error *err);

/* Asks the servers in turn for /version, from *server on, until one answers, and sets *server to it. The answer
 * distinguishes a tensord from a Hub, which has no such path or another page there. Stores its kind in *kinds and in
 * the client's reputations. Sets *status to the answer's status, or to 0 for an answer that was too long. Errors as
 * td_fetch_session_get, except for answers that are too long. */
bool td_remote_find_kind(struct td_fetch_session *session, struct td_remote_kinds *kinds, size_t *server,
                         unsigned *status, struct td_error *err);

/* Lists the files of a model at a revision ("main", a commit, "tp8-rank0-vllm"); servers are asked in turn until one
 * answers. A server with a kind in `kinds` (may be NULL) is not asked for its kind; the kinds of others are asked for
 * and stored there. Sets *model, which the caller frees with td_remote_model_fini in any case. Errors: TD_NOT_FOUND
 * when all servers answer 404, for the model or the revision (TD_UNAVAILABLE when one could not be asked);
 * TD_PERMISSION_DENIED for 401 and 403 (a Hub answers 401 for models that do not exist); TD_RESOURCE_EXHAUSTED with sys
 * EFBIG when the model is too large for a server, and no other server has it or fails for another reason;
 * TD_FAILED_PRECONDITION for other permanent failures, with the server's own message, and for listings past the bounds;
 * TD_INVALID_ARGUMENT for a wrong listing; TD_UNAVAILABLE, TD_RESOURCE_EXHAUSTED, TD_CONFLICT as td_fetch_session_get;
 * TD_UNAVAILABLE also when the time of the bounds is over. */
bool td_remote_model_list(struct td_fetch_session *session, const char *id, const char *revision,
                          struct td_remote_kinds *kinds, struct td_remote_model *model, struct td_error *err);

void td_remote_model_init(struct td_remote_model *model);
void td_remote_model_fini(struct td_remote_model *model);

/* Fetches a file of the model by its listed path, from below "/ID/resolve/REVISION/". The caller sets all of `job`
 * except url_path; the session must use the servers that listed the model. Otherwise as td_fetch_file. */
bool td_remote_model_fetch(struct td_fetch_session *session, const struct td_remote_model *model, const char *id,
                           const char *path, const struct td_fetch_job *job, struct td_fetch_outcome *outcome,
                           struct td_error *err);

#endif
