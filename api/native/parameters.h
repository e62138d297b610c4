/* The parameters that several routes share. The check that a request's manifest is still the checkpoint's. Those that
 * delay an answer: wait and timeout. With an entity tag in `wait`, a description or a list waits until it changes. With
 * an empty `wait`, the answer waits for a model or a dataset that does not exist yet. */
#ifndef TD_API_NATIVE_PARAMETERS_H
#define TD_API_NATIVE_PARAMETERS_H

#include "api/call/call.h"

/* Checks that the checkpoint's manifest has this tag (its member "etag"), or had it before the files were hashed.
 * tag NULL: the request is not bound. Returns false after it answered 412. */
bool td_native_check_manifest(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag);

/* For how long a request waits, in seconds: without ?timeout=, and at most. */
enum { TD_WAIT_DEFAULT_S = 60, TD_WAIT_MAX_S = 300 };

enum td_wait {
    TD_WAIT_NONE,      /* the request does not wait */
    TD_WAIT_CHANGED,   /* the state is not the one that ?wait= names: answer now */
    TD_WAIT_UNCHANGED, /* the state is that one, and the wait is over: answer 304 */
    TD_WAIT_ANSWERED,  /* the response is set: an error, or its wait_until_ns */
};

/* Compares `state`, a text without '-', with the entity tag in ?wait=; quotes and W/ around the tag are optional. Only
 * the part of the tag before its '-' counts (td_wait_end), so that only the state matters. `former` is the same
 * state in tags from before its digests were known; it may equal `state`. A text that is no such tag names no state.
 * The wait is over at the timeout, when the server drains, when the client is gone, and at once when request->since_ns
 * is 0. Does not wait itself. */
enum td_wait td_wait_parameter(const struct td_call *call, const char *state, const char *former);

/* Makes the call wait until something has the path's name, if its `wait` is empty and its method is GET or HEAD.
 * Answers 400 for wrong parameters; `known` lists those that the path takes (NULL-terminated). Returns false, with
 * nothing answered, when the call does not wait or the wait is over. A name that the client may not see is waited for
 * like one that does not exist, so that the client cannot distinguish them. */
bool td_wait_for_name(const struct td_call *call, const char *const *known);

/* Makes the call wait until something is published, if the query has `wait` and the wait is not over: at the latest at
 * the timeout, which the caller has checked. Returns false, with nothing answered, otherwise. */
bool td_wait_for_more(const struct td_call *call);

/* Makes the entity tag of a 200 answer begin with the state, for later waits; the rest of the tag is the answer's own.
 * Turns the answer into 304 for TD_WAIT_UNCHANGED. Call it when all header fields are added. */
void td_wait_end(struct td_response *response, enum td_wait wait, const char *state);

#endif
