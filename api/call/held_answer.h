/* Answers from files that are still arriving from the upstream: no answer is completed before its bytes are checked,
 * and no client joins bytes that turned out to be wrong with others. */
#ifndef TD_API_CALL_HELD_ANSWER_H
#define TD_API_CALL_HELD_ANSWER_H

#include "api/call/state.h"
#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

/* Has the end of the answer wait until its file is checked (td_incoming_hold_end), unless the client checks it itself:
 * then the answer may be complete before, and no cache may keep it. Nor does the answer go on waiting for bytes when
 * its client has left. Does nothing without an upstream. Call it when ranges have been applied. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_held_answer_apply(const struct td_api *api, const struct td_request *request, struct td_response *response,
                          struct td_error *err);

/* Returns whether a range may be answered with a part, as far as entity tags have to do with it: not where the client
 * would go on with one under which bytes that were wrong may have been given out. If-Range then gets the whole, and
 * If-Match without it an answer of 412, which this function makes. */
bool td_held_answer_may_go_on(const struct td_api *api, const struct td_request *request, struct td_response *response);

#endif
