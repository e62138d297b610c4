/* The parameters that have a description wait for a change of the model: wait and timeout. */
#ifndef TD_API_NATIVE_WAIT_PARAMETER_H
#define TD_API_NATIVE_WAIT_PARAMETER_H

#include "api/call.h"

/* For how long a request waits, in seconds: without ?timeout=, and at most. */
enum { TD_WAIT_DEFAULT_S = 60, TD_WAIT_MAX_S = 300 };

enum td_wait {
    TD_WAIT_NONE,      /* the request does not wait */
    TD_WAIT_CHANGED,   /* the model is not the one that ?wait= names: describe it */
    TD_WAIT_UNCHANGED, /* the model is that one, and the wait is over: answer 304 */
    TD_WAIT_ANSWERED,  /* the response is set: an error, or its wait_until_ns */
};

/* Compares the model with the entity tag in ?wait=, of a description of it; quotes and W/ around the tag are optional.
 * Only the part of the tag that is the model's own counts, so that digests which became known since are no change. A
 * text that is no such tag names no state of the model. The wait is over at the timeout, when the server drains, when
 * the client is gone, and at once when request->since_ns is 0. Does not wait itself. */
enum td_wait td_wait_parameter(const struct td_call *call);

#endif
