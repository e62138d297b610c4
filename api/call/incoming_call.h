/* Calls for models that are not here: asks the upstream for them, so that the call goes on in the snapshot of a model
 * that is on its way. Shared by the facades; none of them knows how models are fetched. */
#ifndef TD_API_CALL_INCOMING_CALL_H
#define TD_API_CALL_INCOMING_CALL_H

#include "api/call/call.h"

enum td_incoming_look {
    TD_INCOMING_NONE,     /* there is no such model, or the thread may not wait for the answer (td_may_wait): the facade
                             answers what it always did */
    TD_INCOMING_AGAIN,    /* *snapshot is one to look in again, with a reference for the caller */
    TD_INCOMING_ANSWERED, /* the call was answered with an error */
};

/* Asks the upstream, if there is one, for the model with this id, which the call's snapshot lacks. The caller may see
 * the model; a caller who may not gets TD_INCOMING_NONE, and nothing is fetched. A caller who may not see each
 * directory of the model is answered 503 until the model is published. May wait, at most for some seconds. */
enum td_incoming_look td_incoming_call_look(const struct td_call *call, struct td_text id,
                                            struct td_snapshot **snapshot);

/* Returns the beginning of a path that is the id of a model at the upstream, if there is one: its first two segments,
 * since the path may go on in a directory of the model. */
struct td_text td_incoming_call_id(struct td_text path);

/* Returns the id at the upstream of the model that this path lies in, which is on its way or was fetched: its first two
 * segments, or the first one alone if that is known and the two are not. There is an upstream. */
struct td_text td_incoming_call_known_id(const struct td_call *call, struct td_text path);

/* Returns whether the model with this id is on its way from the upstream or was fetched. */
bool td_incoming_call_knows(const struct td_call *call, struct td_text id);

/* Returns whether the snapshot is one of a model on its way, which has files but no checkpoints. */
bool td_incoming_call_is_of(const struct td_snapshot *snapshot);

/* Returns whether what needs the checkpoints of the call's model has to wait: it is on its way, and names of its files
 * are those of checkpoints. */
bool td_incoming_call_awaits(const struct td_call *call);

/* The text for clients that can ask for single files meanwhile. */
#define TD_INCOMING_HAS_FILES "its files can be read already"

/* How long a call waits for a fetch that is nearly done. */
#define TD_INCOMING_WAIT_NS UINT64_C(1000000000)

/* Makes the call wait (td_response's wait_until_ns), at most TD_INCOMING_WAIT_NS from its arrival on, if the model will
 * be published within about that time at the rate so far. The publication ends the wait, and the call is handled again.
 * Returns false, and does nothing, if the fetch will take longer or the wait is over. `id` is the model's at the
 * upstream. */
bool td_incoming_call_waits(const struct td_call *call, struct td_text id);

/* Answers 503 and says how far the model is, and what the client can do meanwhile: for what needs all of its files,
 * such as a manifest. `id` is the model's at the upstream. */
void td_incoming_call_fail(const struct td_call *call, struct td_text id, const char *meanwhile);

/* Notes that something at this path below the served directory is being read, so that the model that it lies in, if it
 * was fetched from the upstream, is not the next one to be removed. Never waits. */
void td_incoming_call_note_read(const struct td_call *call, struct td_text path);

#endif
