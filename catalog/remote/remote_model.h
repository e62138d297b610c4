/* Asks servers which files a model has: the interface of the Hugging Face Hub, which tensord has, too. */
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
    bool is_tensord;                         /* /version of that server says so; else it is a Hub */
    char commit[72];                         /* hexadecimal digits, of the revision as it was listed */
    char revision[TD_REMOTE_REVISION_BYTES]; /* by which to ask for files: the commit, or the name that was given. The
                                                commit, so that all files are of one state; but a tensord's commits are
                                                its own, so the name when there are several servers or it is one */
};

/* Of which kind a client's servers are, as far as it was found out: a caller that lists many models keeps it for a
 * while. All zeros: nothing is known. */
struct td_remote_kinds {
    bool known[TD_FETCH_MAX_SERVERS];
    bool is_tensord[TD_FETCH_MAX_SERVERS];
};

/* Returns whether the id can be that of a model: "name" or "org/name" of letters, digits and "-._", no component that
 * begins with a dot, at most 96 bytes each. Errors: TD_INVALID_ARGUMENT. */
bool td_remote_id_check(struct td_text id, struct td_error *err);

/* Asks for /version by which a tensord is told from a Hub, which has nothing there, or something else: the servers in
 * turn, from *server on, until one answers, which is *server then. Notes its kind in *kinds, and in the client's
 * reputations. Sets *status to that of the answer; 0: it was too long. Errors as td_fetch_session_get, but for answers
 * that are too long. */
bool td_remote_find_kind(struct td_fetch_session *session, struct td_remote_kinds *kinds, size_t *server,
                         unsigned *status, struct td_error *err);

/* Lists the files of a model at a revision ("main", a commit, "tp8-rank0-vllm"); servers are asked in turn until one
 * answers. A server that `kinds` (NULL: none) knows is not asked of which kind it is; others are, and noted there. Sets
 * *model, which the caller frees with td_remote_model_fini in any case. Errors: TD_NOT_FOUND when all
 * servers answer 404, for the model or the revision (TD_UNAVAILABLE when one could not be asked); TD_PERMISSION_DENIED
 * for 401 and 403 (a Hub answers 401 for models that do not exist); TD_RESOURCE_EXHAUSTED with sys EFBIG when the model
 * is too large for a server, and no other one has it or fails of something else; TD_FAILED_PRECONDITION for other
 * answers that stay, with the server's own message, and for listings past the bounds; TD_INVALID_ARGUMENT for a listing
 * that is wrong; TD_UNAVAILABLE, TD_RESOURCE_EXHAUSTED, TD_CONFLICT as td_fetch_session_get; TD_UNAVAILABLE also when
 * the time of the bounds is over. */
bool td_remote_model_list(struct td_fetch_session *session, const char *id, const char *revision,
                          struct td_remote_kinds *kinds, struct td_remote_model *model, struct td_error *err);

void td_remote_model_init(struct td_remote_model *model);
void td_remote_model_fini(struct td_remote_model *model);

/* Fetches a file of the model by its listed path, from below "/ID/resolve/REVISION/". Of `job` all but url_path is
 * given; the session has the servers that have listed the model. Otherwise as td_fetch_file. */
bool td_remote_model_fetch(struct td_fetch_session *session, const struct td_remote_model *model, const char *id,
                           const char *path, const struct td_fetch_job *job, struct td_fetch_outcome *outcome,
                           struct td_error *err);

#endif
