/* Calls for models that this server does not have: asks the upstream for the model and continues the call in the
 * snapshot of the model on its way. Shared by the facades, which do not know how models are fetched. */
#ifndef TD_API_CALL_INCOMING_CALL_H
#define TD_API_CALL_INCOMING_CALL_H

#include "api/call/call.h"
#include "catalog/upstream/upstream.h"
#include "core/clock.h"

enum td_incoming_look {
    TD_INCOMING_NONE, /* the upstream has no such model, or the thread may not wait (td_may_wait): the facade answers as
                         without an upstream */
    TD_INCOMING_AGAIN,    /* look again in *snapshot, which has a reference for the caller */
    TD_INCOMING_ANSWERED, /* the call was answered with an error */
};

/* Asks the upstream, if the server has one, for the model with this id, which the call's snapshot lacks. If the caller
 * may not see the model, returns TD_INCOMING_NONE and fetches nothing. Answers 503 until the model is published if the
 * caller may not see each of its directories. May wait, at most for some seconds. */
enum td_incoming_look td_incoming_call_look(const struct td_call *call, struct td_text id,
                                            struct td_snapshot **snapshot);

/* Asks the upstream, if the server has one, for its list of the versions of `id`, unless the model with this id here is
 * the operator's. Sets call->remote_family to those that the caller may see, and returns true. Otherwise returns false;
 * if the upstream may have a list that cannot be read now, reply->answer is then not TD_UPSTREAM_HAS_NOT.
 * May wait as td_incoming_call_look. */
bool td_incoming_call_list_versions(struct td_call *call, struct td_text id, struct td_upstream_reply *reply);

/* Looks for a version of call->remote_family in the call's snapshot, and asks the upstream for it if it is not here.
 * TD_INCOMING_NONE: it is here, or the upstream does not have it any more. Otherwise as td_incoming_call_look. */
enum td_incoming_look td_incoming_call_look_version(const struct td_call *call, const struct td_version *version,
                                                    struct td_snapshot **snapshot);

/* Answers with the reason why the upstream's answer cannot be had. */
void td_incoming_call_fail_ask(const struct td_call *call, const struct td_upstream_reply *reply);

/* Returns the beginning of a path that would be the id of a model at the upstream: its first two segments. More
 * segments may follow, for a directory of the model. */
struct td_text td_incoming_call_id(struct td_text path);

/* Returns the kept id of the model or version that contains this path and is on its way or was fetched: the path's
 * first two segments, or the first one alone if only that one is known. The server must have an upstream. */
struct td_text td_incoming_call_known_id(const struct td_call *call, struct td_text path);

/* Returns whether the model with this id is on its way from the upstream or was fetched. */
bool td_incoming_call_knows(const struct td_call *call, struct td_text id);

/* Returns whether the snapshot is one of a model on its way, which has files but no checkpoints. */
bool td_incoming_call_is_of(const struct td_snapshot *snapshot);

/* How a model comes from the upstream. */
struct td_incoming_state {
    bool is_kept;                        /* it was fetched, and is here; else it is on its way */
    bool is_verified;                    /* of a model that was fetched */
    bool has_progress;                   /* of a model on its way: the next two members are known */
    uint64_t arrived_bytes, total_bytes; /* else 0 */
};

/* Sets *out to the state of the call's model. Returns false for a model that does not come from an upstream. Never
 * waits. */
bool td_incoming_call_state(const struct td_call *call, struct td_incoming_state *out);

/* Returns whether an answer that needs the checkpoints of the call's model has to wait: the model is on its way, and
 * some of its files have names of checkpoints. */
bool td_incoming_call_awaits(const struct td_call *call);

/* The advice for clients that can already ask for single files. */
#define TD_INCOMING_HAS_FILES "its files can be read already"

/* How long a call waits for a fetch that is nearly done. */
#define TD_INCOMING_WAIT_NS TD_NS_PER_S

/* Makes the call wait (td_response's wait_until_ns), at most TD_INCOMING_WAIT_NS from its arrival on, if the model will
 * be published within about that time at the rate so far. The publication ends the wait, and the call is handled again.
 * Returns false, and does nothing, if the fetch will take longer or the wait is over. `id` is the model's at the
 * upstream. */
bool td_incoming_call_waits(const struct td_call *call, struct td_text id);

/* Copies the models that are being fetched from the upstream and that the caller may see, at most TD_UPSTREAM_MODELS.
 * Returns their number; 0 without an upstream. Never waits. */
size_t td_incoming_call_list(const struct td_call *call, struct td_upstream_arrival out[TD_UPSTREAM_MODELS]);

/* Answers 503 for a document that needs all files of the model, such as a manifest: says how much of the model has
 * arrived, and gives `advice` on what the client can do until the rest has. `id` is the model's at the upstream. */
void td_incoming_call_fail(const struct td_call *call, struct td_text id, const char *advice);

/* Records that a file at this path below the served directory is being read. If its model was fetched from the
 * upstream, the model is then not the next one to be evicted. Never waits. */
void td_incoming_call_note_read(const struct td_call *call, struct td_text path);

#endif
